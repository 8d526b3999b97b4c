//! The caller by the credential it shows (docs/protocol.md#rule-17). A verified [`Principal`] comes first. An
//! unverified JWT gives issuer and subject for the address, but then the record remembers the
//! credential, and another one neither runs nor replays. An opaque credential is its own address.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::{HeaderValue, request};
use onlyonce_core::{Engine, Refusal};
use serde::Deserialize;

use super::read::unscoped;
use super::{Principal, Scoped};

/// Schemes whose credential differs with every request: there is no stable caller in them.
const PER_REQUEST_SCHEMES: [&str; 8] = [
    "aws4-hmac-sha256",
    "dpop",
    "digest",
    "signature",
    "hawk",
    "oauth",
    "negotiate",
    "ntlm",
];

/// Schemes that say nothing without what follows them. Any other single word may be a key.
const NAMED_SCHEMES: [&str; 2] = ["bearer", "basic"];

pub(super) fn read<'a>(
    parts: &'a request::Parts,
    engine: &Engine,
    read: &mut Scoped<'a>,
) -> Result<(), Refusal> {
    if let Some(Principal(name)) = parts.extensions.get() {
        read.actor = Some(name.clone());
        read.prove(&[b"principal", name.as_bytes()]);
        read.part("principal", Some(name.as_bytes()));
        return Ok(());
    }
    let Some(credential) = credential(parts)? else {
        read.part("caller", None::<&[u8]>);
        return Ok(());
    };
    match claims(credential) {
        Some(Claims {
            iss,
            sub: Some(sub),
        }) => {
            read.actor = Some(sub.as_str().into());
            read.credential = Some(engine.credential(credential.as_bytes()));
            read.part("issuer", iss);
            read.part("subject", Some(sub));
        }
        _ => opaque(credential, read),
    }
    Ok(())
}

/// The credential, if there is one: sent once, and the same with every retry.
pub(super) fn credential(parts: &request::Parts) -> Result<Option<&HeaderValue>, Refusal> {
    let mut lines = parts.headers.get_all(AUTHORIZATION).iter();
    let Some(credential) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(unscoped("Authorization was sent more than once"));
    }
    let (scheme, rest) = split(credential);
    if scheme.is_empty() {
        return Err(unscoped("Authorization was sent without a credential"));
    }
    let names_nobody = rest.is_empty() && NAMED_SCHEMES.iter().any(|it| is(scheme, it));
    if names_nobody {
        let scheme = String::from_utf8_lossy(scheme);
        let why = format!("Authorization has the scheme {scheme} without a credential");
        return Err(unscoped(why));
    }
    if PER_REQUEST_SCHEMES.iter().any(|it| is(scheme, it)) {
        let scheme = String::from_utf8_lossy(scheme);
        let why = format!(
            "credentials of the scheme {scheme} differ with every request, so this route needs a configured scope"
        );
        return Err(unscoped(why));
    }
    Ok(Some(credential))
}

/// An opaque credential is its own address: of a scope, only a keyed digest is ever kept.
pub(super) fn opaque<'a>(credential: &'a HeaderValue, read: &mut Scoped<'a>) {
    read.part("credential", Some(credential.as_bytes()));
    read.secret = Some(credential.as_bytes());
}

/// The token of a `Bearer` credential.
pub(super) fn bearer(credential: &HeaderValue) -> Option<&str> {
    let (scheme, token) = split(credential);
    if !is(scheme, "bearer") {
        return None;
    }
    str::from_utf8(token).ok().filter(|token| !token.is_empty())
}

/// The first word of a credential, and the rest.
fn split(credential: &HeaderValue) -> (&[u8], &[u8]) {
    let text = credential.as_bytes().trim_ascii();
    let end = text.iter().position(u8::is_ascii_whitespace);
    let (scheme, rest) = text.split_at(end.unwrap_or(text.len()));
    (scheme, rest.trim_ascii())
}

fn is(scheme: &[u8], name: &str) -> bool {
    scheme.eq_ignore_ascii_case(name.as_bytes())
}

#[derive(Deserialize)]
struct Claims {
    iss: Option<String>,
    sub: Option<String>,
}

/// What a JWT claims, unverified.
fn claims(credential: &HeaderValue) -> Option<Claims> {
    let mut parts = bearer(credential)?.split('.');
    let (_header, payload, _signature) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    serde_json::from_slice(&payload).ok()
}
