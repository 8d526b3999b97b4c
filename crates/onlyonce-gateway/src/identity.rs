//! How tokens are verified, from files that are read again on a reload.

use onlyonce_tower::scope::JwtVerifier;

use crate::config::{Algorithm, Config, ConfigError};

/// The verifier that the settings describe, if they do.
pub(crate) fn verifier(config: &Config) -> Result<Option<JwtVerifier>, ConfigError> {
    let Some(jwt) = &config.jwt else {
        return Ok(None);
    };
    let place = jwt.key_file.display();
    let key = std::fs::read(&jwt.key_file)
        .map_err(|error| ConfigError::new(&place, format!("cannot be read: {error}")))?;
    let mut verifier = match jwt.algorithm {
        Algorithm::HS256 => Ok(JwtVerifier::hs256(key.trim_ascii())),
        Algorithm::RS256 => JwtVerifier::rs256(&key),
        Algorithm::ES256 => JwtVerifier::es256(&key),
    }
    .map_err(|error| ConfigError::new(&place, error.to_string()))?;
    if let Some(issuer) = &jwt.issuer {
        verifier = verifier.issuer(issuer);
    }
    if let Some(audience) = &jwt.audience {
        verifier = verifier.audience(audience);
    }
    Ok(Some(verifier))
}
