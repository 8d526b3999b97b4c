//! The caller by a verified token: its issuer and the claim that the scope names, so that a refreshed token of
//! the same user reaches the same record. A token that does not verify is refused: taken for a
//! stranger, a caller whose token expires between two tries would run its operation twice.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::request;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use onlyonce_core::{Reason, Refusal};
use serde_json::Value;
use thiserror::Error;

use super::read::unscoped;
use super::{Scoped, caller};

/// Verifies bearer tokens, for the scope part [`Jwt`](super::ScopePart::Jwt).
///
/// ```
/// use onlyonce_tower::scope::JwtVerifier;
///
/// let verifier = JwtVerifier::hs256(b"a secret of at least 32 bytes.....")
///     .issuer("https://login.example.org");
/// # let _ = verifier;
/// ```
#[derive(Clone)]
pub struct JwtVerifier {
    keys: Arc<[VerifyingKey]>,
    issuer: Option<Arc<str>>,
    audience: Option<Arc<str>>,
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
        }
    }

    /// Takes only tokens of this issuer; one that names none is not taken either.
    #[must_use]
    pub fn issuer(mut self, issuer: &str) -> Self {
        self.issuer = Some(issuer.into());
        self
    }

    /// Takes only tokens for this audience; one that names none is not taken either.
    #[must_use]
    pub fn audience(mut self, audience: &str) -> Self {
        self.audience = Some(audience.into());
        self
    }

    /// No credential is anonymous, and one that is no token is only ever itself. A token has to
    /// verify.
    pub(super) fn read<'a>(
        &self,
        called: &str,
        claim: &str,
        kind: Option<&str>,
        parts: &'a request::Parts,
        read: &mut Scoped<'a>,
    ) -> Result<(), Refusal> {
        let Some(credential) = caller::credential(parts)? else {
            read.part("caller", None::<&[u8]>);
            return Ok(());
        };
        let Some(token) = caller::bearer(credential).filter(|token| is_token(token)) else {
            caller::opaque(credential, read);
            return Ok(());
        };
        let claims = self.verify(token).map_err(unverified)?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let Some(claim) = text(claim).filter(|claim| !claim.is_empty()) else {
            let why = format!("the token has no text in its claim {claim}");
            return Err(unscoped(why));
        };
        let issuer = text("iss");
        read.actor = Some(claim.into());
        read.kind = kind.and_then(text).map(str::to_owned);
        let known_issuer = issuer.unwrap_or_default();
        let who = [called, known_issuer, claim];
        read.prove(&who.map(str::as_bytes));
        read.part("verified issuer", issuer);
        read.part(called, Some(claim));
        Ok(())
    }

    /// The claims of a token that a key of ours has signed, or what is wrong with it.
    fn verify(&self, token: &str) -> Result<Claims, &'static str> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| "its header cannot be read")?;
        let wanted = header.kid.as_deref();
        let fits = |key: &&VerifyingKey| {
            key.algorithm == header.alg
                && match (wanted, &key.id) {
                    (Some(wanted), Some(id)) => wanted == id,
                    (Some(_) | None, _) => true,
                }
        };
        let mut result = Err("no key that is trusted here fits it");
        for key in self.keys.iter().filter(fits) {
            result = self.verify_by(key, token);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn verify_by(&self, key: &VerifyingKey, token: &str) -> Result<Claims, &'static str> {
        let mut validation = Validation::new(key.algorithm);
        validation.validate_nbf = true;
        validation.validate_aud = self.audience.is_some();
        let mut required = vec!["exp"];
        if let Some(audience) = &self.audience {
            validation.set_audience(&[audience]);
            required.push("aud");
        }
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        validation.set_required_spec_claims(&required);
        let token = jsonwebtoken::decode::<Claims>(token, &key.key, &validation)
            .map_err(|error| wrong(error.kind()))?;
        well_formed(token.claims)
    }
}

type Claims = BTreeMap<String, Value>;

/// Whether this has the form of a signed token, and so claims to be one.
fn is_token(token: &str) -> bool {
    token.split('.').count() == 3
}

/// Claims of the types that RFC 7519 gives them: one that cannot be read has not been checked.
fn well_formed(claims: Claims) -> Result<Claims, &'static str> {
    let is_text = |name: &str| claims.get(name).is_none_or(Value::is_string);
    let is_audience = match claims.get("aud") {
        None | Some(Value::String(_)) => true,
        Some(Value::Array(names)) => names.iter().all(Value::is_string),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => false,
    };
    if !is_text("iss") {
        return Err("its claim iss is not a text");
    }
    if !is_audience {
        return Err("its claim aud is neither a text nor a list of texts");
    }
    Ok(claims)
}

/// What is wrong with a token, in words that tell nothing of the keys.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library's errors may grow, and any of them means that it does not verify"
)]
fn wrong(error: &ErrorKind) -> &'static str {
    match error {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidIssuer => "it is of another issuer",
        ErrorKind::InvalidAudience => "it is for another audience",
        ErrorKind::MissingRequiredClaim(claim) => match claim.as_str() {
            "exp" => "it does not say when it expires (claim exp)",
            "iss" => "it does not name its issuer (claim iss)",
            "aud" => "it does not name its audience (claim aud)",
            _ => "a claim is missing",
        },
        ErrorKind::InvalidClaimFormat(_) => "a claim of time is not a number",
        _ => "its signature does not verify",
    }
}

fn unverified(why: &'static str) -> Refusal {
    Refusal::new(Reason::Unverified).because(why)
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
        f.write_str("JwtVerifier")
    }
}
