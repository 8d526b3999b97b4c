//! Who is who: how tokens are verified, from files that are read again on a reload, and what one
//! caller may take.

use std::num::NonZeroU32;

use onlyonce_tower::AllowanceRule;
use onlyonce_tower::scope::{JwtError, JwtVerifier};

use crate::config::{Algorithm, Config, ConfigError, Count, Jwt, Limits};

/// The verifier that the settings describe, if they do.
pub(crate) fn verifier(config: &Config) -> Result<Option<JwtVerifier>, ConfigError> {
    let Some(jwt) = &config.jwt else {
        return Ok(None);
    };
    let place = jwt.key_file.display();
    let key = std::fs::read(&jwt.key_file)
        .map_err(|error| ConfigError::new(&place, format!("cannot be read: {error}")))?;
    let mut verifier =
        read(jwt, &key).map_err(|error| ConfigError::new(&place, error.to_string()))?;
    if let Some(issuer) = &jwt.issuer {
        verifier = verifier.issuer(issuer);
    }
    if let Some(audience) = &jwt.audience {
        verifier = verifier.audience(audience);
    }
    Ok(Some(verifier))
}

fn read(jwt: &Jwt, key: &[u8]) -> Result<JwtVerifier, JwtError> {
    if jwt.is_key_set() {
        return JwtVerifier::jwks(key);
    }
    match jwt.algorithm {
        Some(Algorithm::HS256) | None => Ok(JwtVerifier::hs256(key.trim_ascii())),
        Some(Algorithm::RS256) => JwtVerifier::rs256(key),
        Some(Algorithm::ES256) => JwtVerifier::es256(key),
    }
}

/// What one caller may take.
pub(crate) fn allowance(limits: &Limits) -> AllowanceRule {
    let usual = AllowanceRule::default();
    AllowanceRule {
        keys_max: limits.keys_a_caller.map(Count::get),
        bytes_max: limits.bytes_a_caller.map(Count::get),
        bad_requests_a_minute: limits
            .bad_requests_a_minute
            .and_then(|count| NonZeroU32::new(count.as_u32()))
            .unwrap_or(usual.bad_requests_a_minute),
    }
}
