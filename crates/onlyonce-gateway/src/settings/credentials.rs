//! What is in the files that the settings name: the operators' token, slot secrets, the certificate, the keys
//! that verify tokens, and what lookups ask with. Each is read once.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use http::HeaderValue;
use onlyonce_core::SlotSecret;
use onlyonce_core::engine::FormerSecret;
use onlyonce_tower::scope::{JwtError, JwtVerifier};
use rustls::ServerConfig;

use super::finding::Findings;
use crate::config::{Algorithm, Config, ConfigError, Jwt, Lookup, Tls};
use crate::tls;

/// Names the secret that the store keeps, in place of a file.
const KEPT: &str = "store";
/// Shorter tokens can be guessed.
const ADMIN_TOKEN_BYTES_MIN: usize = 16;

/// The token that operators must send.
#[derive(Clone)]
pub(crate) struct AdminToken(Arc<str>);

impl AdminToken {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

/// What was read. Nothing shows it.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) admin_token: Option<AdminToken>,
    pub(crate) secret: Option<SlotSecret>,
    pub(crate) former_secret: Option<FormerSecret>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) verifier: Option<JwtVerifier>,
    /// What the lookup of each route asks with, by its number.
    pub(crate) lookups: Vec<Option<HeaderValue>>,
}

impl Credentials {
    /// Reads the files; what cannot be used is noted and left out.
    pub(super) fn read(config: &Config, findings: &mut Findings) -> Self {
        if let Some(audit) = config.audit.as_ref().filter(|it| it.path.is_dir()) {
            let why = "is a folder: name a file, as in path = \"audit.jsonl\"";
            let why = format!("audit.path: {}: {why}", audit.path.display());
            findings.note("audit.path", why);
        }
        let mut secret_of = |at: &str, path: &Path| findings.take(at, secret(path));
        let own = config.secret_file.as_deref();
        let own = own.and_then(|path| secret_of("secret_file", path));
        let former = config.former_secret_file.as_deref();
        let former = former.and_then(|path| match path.as_os_str() == KEPT {
            true => Some(FormerSecret::Kept),
            false => secret_of("former_secret_file", path).map(FormerSecret::Given),
        });
        let token = config.admin_token_file.as_deref();
        let lookups = config.route.iter().enumerate().map(|(number, route)| {
            let at = format!("route.{number}.reconcile");
            let lookup = route.reconcile.as_ref()?;
            findings.take(&at, authorization(lookup)).flatten()
        });
        Self {
            lookups: lookups.collect(),
            secret: own,
            former_secret: former,
            admin_token: token.and_then(|it| findings.take("admin_token_file", admin_token(it))),
            tls: config.tls.as_ref().and_then(|it| server(it, findings)),
            verifier: config.jwt.as_ref().and_then(|it| verifier(it, findings)),
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> ConfigError {
    let why = format!("cannot be read: {error}; make one with `openssl rand -hex 32 > FILE`");
    ConfigError::new(path.display(), why)
}

fn secret(path: &Path) -> Result<SlotSecret, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    SlotSecret::from_hex(text.trim()).ok_or_else(|| {
        let why = "is not 64 hex digits: make one with `openssl rand -hex 32`";
        ConfigError::new(path.display(), why)
    })
}

fn admin_token(path: &Path) -> Result<AdminToken, ConfigError> {
    let token = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    if token.trim().len() < ADMIN_TOKEN_BYTES_MIN {
        let why = "is too short for a token: make one with `openssl rand -hex 32`";
        return Err(ConfigError::new(path.display(), why));
    }
    Ok(AdminToken(token.into()))
}

fn server(files: &Tls, findings: &mut Findings) -> Option<Arc<ServerConfig>> {
    let certificates = findings.take("tls.cert", tls::certificates(files));
    let key = findings.take("tls.key", tls::private_key(files));
    let server = tls::server(files, certificates?, key?);
    findings.take("tls.cert", server).map(Arc::new)
}

/// Without an algorithm the key cannot be read, and that is noted elsewhere.
fn verifier(jwt: &Jwt, findings: &mut Findings) -> Option<JwtVerifier> {
    if jwt.algorithm.is_none() && !jwt.is_key_set() {
        return None;
    }
    findings.take("jwt.key_file", verifying(jwt))
}

fn verifying(jwt: &Jwt) -> Result<JwtVerifier, ConfigError> {
    let place = jwt.key_file.display();
    let key = std::fs::read(&jwt.key_file)
        .map_err(|error| ConfigError::new(&place, format!("cannot be read: {error}")))?;
    let mut verifier =
        verifying_by(jwt, &key).map_err(|error| ConfigError::new(&place, error.to_string()))?;
    if let Some(issuer) = &jwt.issuer {
        verifier = verifier.issuer(issuer);
    }
    if let Some(audience) = &jwt.audience {
        verifier = verifier.audience(audience);
    }
    Ok(verifier)
}

fn verifying_by(jwt: &Jwt, key: &[u8]) -> Result<JwtVerifier, JwtError> {
    if jwt.is_key_set() {
        return JwtVerifier::jwks(key);
    }
    match jwt.algorithm {
        Some(Algorithm::HS256) | None => Ok(JwtVerifier::hs256(key.trim_ascii())),
        Some(Algorithm::RS256) => JwtVerifier::rs256(key),
        Some(Algorithm::ES256) => JwtVerifier::es256(key),
    }
}

/// The credential that a lookup asks with, where a file has it.
fn authorization(lookup: &Lookup) -> Result<Option<HeaderValue>, ConfigError> {
    let Some(path) = &lookup.table().authorization_file else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::new(path.display(), format!("cannot be read: {error}")))?;
    let mut value = HeaderValue::from_str(text.trim())
        .ok()
        .filter(|it| !it.is_empty())
        .ok_or_else(|| {
            let why = "is not the value of an Authorization header: write it like Bearer TOKEN";
            ConfigError::new(path.display(), why)
        })?;
    value.set_sensitive(true);
    Ok(Some(value))
}
