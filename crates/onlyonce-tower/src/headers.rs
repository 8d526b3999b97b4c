//! Which response headers are worth storing. What belongs to one connection, one moment or one
//! caller is not replayed.

use http::header::{
    CONNECTION, DATE, PROXY_AUTHENTICATE, RETRY_AFTER, SERVER, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, HeaderName};
use onlyonce_core::policy::HttpRules;

const NEVER_STORED: [HeaderName; 11] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    DATE,
    SERVER,
    RETRY_AFTER,
];

/// The headers to store: without hop-by-hop ones, those `Connection` names, and what the policy
/// drops.
pub(crate) fn storable(headers: &HeaderMap, rules: &HttpRules) -> HeaderMap {
    let named = named_by_connection(headers);
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let dropped = NEVER_STORED.contains(name)
            || rules.drop_headers.contains(name)
            || *name == rules.opt_out_header
            || named.contains(name);
        if !dropped {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect()
}

/// How many bytes headers take.
pub(crate) fn bytes(headers: &HeaderMap) -> usize {
    headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum()
}
