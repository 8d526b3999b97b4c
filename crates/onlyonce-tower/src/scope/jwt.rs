//! The caller by a verified token: issuer and a claim of its choice, so that a refreshed token of
//! the same user reaches the same record.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::request;
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
    key: Arc<DecodingKey>,
    validation: Arc<Validation>,
    claim: Arc<str>,
}

/// A verification key that cannot be read.
#[derive(Debug, Error)]
#[error("the JWT verification key cannot be read: give a PEM public key")]
pub struct JwtError(#[from] jsonwebtoken::errors::Error);

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

    fn new(key: DecodingKey, algorithm: Algorithm) -> Self {
        let mut validation = Validation::new(algorithm);
        validation.validate_aud = false;
        Self {
            key: Arc::new(key),
            validation: Arc::new(validation),
            claim: "sub".into(),
        }
    }

    /// Takes only tokens of this issuer.
    #[must_use]
    pub fn issuer(mut self, issuer: &str) -> Self {
        Arc::make_mut(&mut self.validation).set_issuer(&[issuer]);
        self
    }

    /// Takes only tokens for this audience.
    #[must_use]
    pub fn audience(mut self, audience: &str) -> Self {
        let validation = Arc::make_mut(&mut self.validation);
        validation.validate_aud = true;
        validation.set_audience(&[audience]);
        self
    }

    /// Takes the caller from this claim instead of `sub`.
    #[must_use]
    pub fn claim(mut self, claim: &str) -> Self {
        self.claim = claim.into();
        self
    }

    /// No credential is anonymous; one that does not verify is only ever itself.
    pub(super) fn read(&self, parts: &request::Parts, read: &mut Scoped) -> Result<(), Refusal> {
        let Some(credential) = caller::credential(parts)? else {
            read.part("caller", None::<&[u8]>);
            return Ok(());
        };
        match caller::bearer(credential).and_then(|token| self.verify(token)) {
            Some((issuer, claim)) => {
                read.actor = Some(claim.as_str().into());
                read.part("verified issuer", issuer);
                read.part("verified claim", Some(claim));
            }
            None => caller::opaque(credential, read),
        }
        Ok(())
    }

    fn verify(&self, token: &str) -> Option<(Option<String>, String)> {
        let token: jsonwebtoken::TokenData<BTreeMap<String, Value>> =
            jsonwebtoken::decode(token, &self.key, &self.validation).ok()?;
        let text = |name: &str| token.claims.get(name)?.as_str().map(str::to_owned);
        Some((text("iss"), text(&self.claim)?))
    }
}

impl fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JwtVerifier({})", self.claim)
    }
}
