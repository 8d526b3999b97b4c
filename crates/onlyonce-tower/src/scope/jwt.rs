//! The caller by a verified token: issuer and a claim of its choice, so that a refreshed token of
//! the same user reaches the same record.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::request;
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use onlyonce_core::Refusal;
use serde_json::Value;
use thiserror::Error;

use super::{Scoped, caller};

/// Verifies bearer tokens and takes the caller from one of their claims.
///
/// ```
/// use onlyonce_tower::scope::JwtVerifier;
///
/// let verifier = JwtVerifier::hs256(b"a secret of at least 32 bytes.....")
///     .issuer("https://login.example.org")
///     .claim("sub");
/// # let _ = verifier;
/// ```
#[derive(Clone)]
pub struct JwtVerifier {
    keys: Arc<[VerifyingKey]>,
    issuer: Option<Arc<str>>,
    audience: Option<Arc<str>>,
    claim: Arc<str>,
}

/// A key, and the one algorithm it is for: what a token says of itself never chooses.
struct VerifyingKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// A verification key that cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JwtError {
    /// Not a public key.
    #[error("the JWT verification key cannot be read: give a PEM public key")]
    Key(#[from] jsonwebtoken::errors::Error),
    /// Not a key set.
    #[error("the JWKS file cannot be read: give {{\"keys\": [...]}}")]
    Set(#[from] serde_json::Error),
    /// A key set without a key for a known algorithm.
    #[error("the JWKS file has no key for RS256, ES256 or HS256")]
    NoKey,
}

impl JwtVerifier {
    /// Tokens signed with a shared secret.
    pub fn hs256(secret: &[u8]) -> Self {
        Self::new(DecodingKey::from_secret(secret), Algorithm::HS256)
    }

    /// Tokens signed with RSA, by the public key in PEM form.
    pub fn rs256(public_key_pem: &[u8]) -> Result<Self, JwtError> {
        let key = DecodingKey::from_rsa_pem(public_key_pem)?;
        Ok(Self::new(key, Algorithm::RS256))
    }

    /// Tokens signed with ECDSA on P-256, by the public key in PEM form.
    pub fn es256(public_key_pem: &[u8]) -> Result<Self, JwtError> {
        let key = DecodingKey::from_ec_pem(public_key_pem)?;
        Ok(Self::new(key, Algorithm::ES256))
    }

    /// Tokens signed with a key of this set (RFC 7517): the one whose id the token names, or any
    /// of its algorithm if it names none. Keys for other algorithms are left out.
    pub fn jwks(json: &[u8]) -> Result<Self, JwtError> {
        let set: JwkSet = serde_json::from_slice(json)?;
        let mut keys = Vec::new();
        for jwk in &set.keys {
            let Some(algorithm) = algorithm(jwk) else {
                continue;
            };
            keys.push(VerifyingKey {
                id: jwk.common.key_id.clone(),
                algorithm,
                key: DecodingKey::from_jwk(jwk)?,
            });
        }
        if keys.is_empty() {
            return Err(JwtError::NoKey);
        }
        Ok(Self::of(keys))
    }

    fn new(key: DecodingKey, algorithm: Algorithm) -> Self {
        Self::of(vec![VerifyingKey {
            id: None,
            algorithm,
            key,
        }])
    }

    fn of(keys: Vec<VerifyingKey>) -> Self {
        Self {
            keys: keys.into(),
            issuer: None,
            audience: None,
            claim: "sub".into(),
        }
    }

    /// Takes only tokens of this issuer.
    #[must_use]
    pub fn issuer(mut self, issuer: &str) -> Self {
        self.issuer = Some(issuer.into());
        self
    }

    /// Takes only tokens for this audience.
    #[must_use]
    pub fn audience(mut self, audience: &str) -> Self {
        self.audience = Some(audience.into());
        self
    }

    /// Takes the caller from this claim instead of `sub`.
    #[must_use]
    pub fn claim(mut self, claim: &str) -> Self {
        self.claim = claim.into();
        self
    }

    /// No credential is anonymous; one that does not verify is only ever itself.
    pub(super) fn read<'a>(
        &self,
        parts: &'a request::Parts,
        read: &mut Scoped<'a>,
    ) -> Result<(), Refusal> {
        let Some(credential) = caller::credential(parts)? else {
            read.part("caller", None::<&[u8]>);
            return Ok(());
        };
        match caller::bearer(credential).and_then(|token| self.verify(token)) {
            Some((issuer, claim)) => {
                read.actor = Some(claim.as_str().into());
                let known_issuer = issuer.as_deref().unwrap_or_default();
                read.prove(&[b"jwt", known_issuer.as_bytes(), claim.as_bytes()]);
                read.part("verified issuer", issuer);
                read.part("verified claim", Some(claim));
            }
            None => caller::opaque(credential, read),
        }
        Ok(())
    }

    fn verify(&self, token: &str) -> Option<(Option<String>, String)> {
        let header = jsonwebtoken::decode_header(token).ok()?;
        let wanted = header.kid.as_deref();
        let fits = |key: &&VerifyingKey| {
            key.algorithm == header.alg
                && match (wanted, &key.id) {
                    (Some(wanted), Some(id)) => wanted == id,
                    (Some(_) | None, _) => true,
                }
        };
        let mut fitting = self.keys.iter().filter(fits);
        fitting.find_map(|key| self.verify_by(key, token))
    }

    fn verify_by(&self, key: &VerifyingKey, token: &str) -> Option<(Option<String>, String)> {
        let mut validation = Validation::new(key.algorithm);
        validation.validate_aud = self.audience.is_some();
        if let Some(audience) = &self.audience {
            validation.set_audience(&[audience]);
        }
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
        }
        let token: jsonwebtoken::TokenData<BTreeMap<String, Value>> =
            jsonwebtoken::decode(token, &key.key, &validation).ok()?;
        let text = |name: &str| token.claims.get(name)?.as_str().map(str::to_owned);
        Some((text("iss"), text(&self.claim)?))
    }
}

/// The algorithm a key of a set is for: what it says, else what its type is used for.
fn algorithm(jwk: &Jwk) -> Option<Algorithm> {
    if jwk.common.public_key_use == Some(PublicKeyUse::Encryption) {
        return None;
    }
    let usual = if matches!(&jwk.algorithm, AlgorithmParameters::RSA(_)) {
        Algorithm::RS256
    } else if matches!(&jwk.algorithm, AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256)
    {
        Algorithm::ES256
    } else if matches!(&jwk.algorithm, AlgorithmParameters::OctetKey(_)) {
        Algorithm::HS256
    } else {
        return None;
    };
    let fits = match jwk.common.key_algorithm {
        None => true,
        Some(KeyAlgorithm::RS256) => usual == Algorithm::RS256,
        Some(KeyAlgorithm::ES256) => usual == Algorithm::ES256,
        Some(KeyAlgorithm::HS256) => usual == Algorithm::HS256,
        Some(_) => false,
    };
    fits.then_some(usual)
}

impl fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JwtVerifier({})", self.claim)
    }
}
