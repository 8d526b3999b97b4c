//! What a proxy owes to both sides: hop-by-hop headers stay on their hop, and the upstream hears
//! who asked, by which name and how.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    CONNECTION, Entry, FORWARDED, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
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

/// Who is on the other end of a client's connection, and how the upstream hears of it; cheap to
/// clone.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<PeerText>);

#[derive(Debug)]
struct PeerText {
    ip: IpAddr,
    proto: &'static str,
    /// For `X-Forwarded-For`.
    address: HeaderValue,
    /// For `Forwarded`: its `for` and `proto`.
    node: String,
}

impl Peer {
    pub(crate) fn new(ip: IpAddr, is_tls: bool) -> Self {
        let proto = if is_tls { "https" } else { "http" };
        let node = match ip {
            IpAddr::V4(ip) => format!("for={ip};proto={proto}"),
            IpAddr::V6(ip) => format!("for=\"[{ip}]\";proto={proto}"),
        };
        Self(Arc::new(PeerText {
            ip,
            proto,
            address: value(ip.to_string()),
            node,
        }))
    }

    pub(crate) fn ip(&self) -> IpAddr {
        self.0.ip
    }
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
pub(crate) fn to_upstream(parts: &mut request::Parts, Peer(peer): &Peer) {
    let host = host_of(parts);
    let headers = &mut parts.headers;
    strip(headers);
    // What tells the upstream whether we can take trailers survives our own hop.
    if headers.contains_key(TRAILER) || parts.version == Version::HTTP_2 {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    append(headers, X_FORWARDED_FOR, peer.address.clone());
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(peer.proto));
    let by_name = host.as_ref().and_then(|host| host.to_str().ok());
    let forwarded = match by_name.filter(|host| !host.contains(['"', '\\'])) {
        Some(host) => [&peer.node, ";host=\"", host, "\""].concat(),
        None => peer.node.clone(),
    };
    append(headers, FORWARDED, value(forwarded));
    via(headers, parts.version);
    if let Some(host) = host {
        headers.insert(X_FORWARDED_HOST, host.clone());
        headers.insert(HOST, host);
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
    // Most messages have nothing of the kind; one look at each name tells.
    if !headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return;
    }
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
    let via = match version {
        Version::HTTP_10 => "1.0 onlyonce",
        Version::HTTP_2 => "2.0 onlyonce",
        _ => "1.1 onlyonce",
    };
    append(headers, VIA, HeaderValue::from_static(via));
}

/// A value made of what is known to fit into one.
fn value(text: String) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(text))
        .unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// Adds to a comma-separated list, keeping what earlier hops said.
fn append(headers: &mut HeaderMap, name: HeaderName, last: HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(entry) => {
            entry.insert(last);
        }
        Entry::Occupied(mut entry) => {
            let mut list: Vec<&[u8]> = entry.iter().map(HeaderValue::as_bytes).collect();
            list.push(last.as_bytes());
            let list = Bytes::from(list.join(&b", "[..]));
            entry.insert(HeaderValue::from_maybe_shared(list).unwrap_or(last));
        }
    }
}
