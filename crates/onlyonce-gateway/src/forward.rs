//! What a proxy owes to both sides: hop-by-hop headers stay on their hop, and the upstream hears
//! who asked, by which name and how.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, COOKIE, DATE, Entry, FORWARDED, HOST, HeaderName,
    HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    VIA,
};
use http::{HeaderMap, Version, request, response};

const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];
/// Headers that are for everyone on the way (RFC 9110, section 7.6.1): naming one of them in
/// `Connection` does not remove it. Who asks, for what, and under which key must be the same for us
/// and for the upstream.
const END_TO_END: [HeaderName; 11] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    COOKIE,
    DATE,
    FORWARDED,
    HOST,
    VIA,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-request-id"),
];
/// The same for every header that begins like this.
const END_TO_END_STARTS: [&str; 5] = [
    "content-",
    "idempotency-",
    "if-",
    "x-forwarded-",
    "x-idempotency-",
];
/// In which an upstream gets the right to complete a record. It is between the gateway and its upstream:
/// nobody else sends it, and nobody else gets it.
pub(crate) const LEASE: HeaderName = HeaderName::from_static("onlyonce-lease");
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

/// The members of a header that is a list, in all of its lines.
pub(crate) fn list_of<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).iter();
    let members = lines.flat_map(|line| line.as_bytes().split(|&it| it == b','));
    members.map(<[u8]>::trim_ascii)
}

/// Removes what belongs to the client's own hop from a request, but nothing that is for everyone,
/// nor what is `read` here.
pub(crate) fn end_hop(headers: &mut HeaderMap, read: &[HeaderName]) {
    headers.remove(LEASE);
    strip(headers, |name| {
        let is_for_all = END_TO_END.contains(name)
            || END_TO_END_STARTS
                .iter()
                .any(|start| name.as_str().starts_with(start));
        is_for_all || read.contains(name)
    });
}

/// Makes a client's request, whose hop has ended, the upstream's: it hears of this hop.
pub(crate) fn to_upstream(parts: &mut request::Parts, Peer(peer): &Peer) {
    let headers = &mut parts.headers;
    let host = headers.get(HOST).cloned();
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
        headers.insert(X_FORWARDED_HOST, host);
    }
}

/// Makes an upstream's response the client's.
pub(crate) fn to_client(parts: &mut response::Parts) {
    strip(&mut parts.headers, |_| false);
    parts.headers.remove(LEASE);
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

/// Removes what belongs to one hop, and what `Connection` names unless it `stays`.
fn strip(headers: &mut HeaderMap, stays: impl Fn(&HeaderName) -> bool) {
    // Most messages have nothing of the kind; one look at each name tells.
    if !headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return;
    }
    // `close` and `keep-alive` name no header that is not listed here anyway.
    let named: Vec<HeaderName> = list_of(headers, &CONNECTION)
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .filter(|name| !stays(name))
        .collect();
    for name in named {
        headers.remove(name);
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
