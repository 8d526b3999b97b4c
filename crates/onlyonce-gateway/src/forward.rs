//! What a proxy owes to both sides: hop-by-hop headers stay on their hop, and the upstream hears
//! who asked, by which name and how.

use std::net::IpAddr;

use http::header::{
    CONNECTION, FORWARDED, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, Version, request, response};

const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const VIA_NAME: &str = "onlyonce";

/// Who is on the other end of a client's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) ip: IpAddr,
    pub(crate) tls: bool,
}

/// The protocol a request wants to change to, if it does.
pub(crate) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    if asked {
        headers.get(UPGRADE).cloned()
    } else {
        None
    }
}

/// Makes a client's request the upstream's: the client's own hop is taken off, ours is told.
pub(crate) fn to_upstream(parts: &mut request::Parts, peer: Peer) {
    let host = host_of(parts);
    strip(&mut parts.headers);
    // What tells the upstream whether we can take trailers survives our own hop.
    if parts.headers.contains_key(TRAILER) || parts.version == Version::HTTP_2 {
        parts
            .headers
            .insert(TE, HeaderValue::from_static("trailers"));
    }
    let proto = if peer.tls { "https" } else { "http" };
    append(&mut parts.headers, X_FORWARDED_FOR, &peer.ip.to_string());
    set(&mut parts.headers, X_FORWARDED_PROTO, proto);
    let by_name = match &host {
        Some(host) => {
            parts.headers.insert(X_FORWARDED_HOST, host.clone());
            format!(";host=\"{}\"", host.to_str().unwrap_or_default())
        }
        None => String::new(),
    };
    let node = match peer.ip {
        IpAddr::V4(ip) => format!("for={ip}"),
        IpAddr::V6(ip) => format!("for=\"[{ip}]\""),
    };
    append(
        &mut parts.headers,
        FORWARDED,
        &format!("{node};proto={proto}{by_name}"),
    );
    via(&mut parts.headers, parts.version);
    if let Some(host) = host {
        parts.headers.insert(HOST, host);
    }
}

/// Makes an upstream's response the client's.
pub(crate) fn to_client(parts: &mut response::Parts) {
    strip(&mut parts.headers);
    via(&mut parts.headers, parts.version);
    // What the upstream speaks is between it and us.
    parts.version = Version::HTTP_11;
}

/// Whom something in front of us names as the client: the last entry, which it added itself.
pub(crate) fn client_of(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let last = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    let entry = last.rsplit(',').next()?.trim();
    entry.parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

/// By which name the client called: HTTP/2 has it in the target, HTTP/1 in a header.
fn host_of(parts: &request::Parts) -> Option<HeaderValue> {
    match parts.uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => parts.headers.get(HOST).cloned(),
    }
}

/// Takes off what belongs to one hop, and what `Connection` names.
fn strip(headers: &mut HeaderMap) {
    if let Some(connection) = headers.get(CONNECTION) {
        // `close` and `keep-alive` name no header that is not listed here anyway.
        let named: Vec<HeaderName> = connection
            .to_str()
            .unwrap_or_default()
            .split(',')
            .filter_map(|token| HeaderName::from_bytes(token.trim().as_bytes()).ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

fn via(headers: &mut HeaderMap, version: Version) {
    let version = match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2.0",
        _ => "1.1",
    };
    append(headers, VIA, &format!("{version} {VIA_NAME}"));
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Adds to a comma-separated list, keeping what earlier hops said.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    let earlier: Vec<&str> = headers
        .get_all(&name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    if earlier.is_empty() {
        set(headers, name, value);
    } else {
        let list = format!("{}, {value}", earlier.join(", "));
        set(headers, name, &list);
    }
}
