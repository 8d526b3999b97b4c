//! What every answer of the admin address carries, pages, JSON and refusals alike: it is shown in no
//! frame, taken for no other kind of content, embedded by no other site, and kept by no cache.

use axum::response::Response;
use http::header::{HeaderName, HeaderValue};

/// What an answer carries that does not say otherwise: pages have a policy of their own, and files may be
/// kept. `same-origin` and not `no-referrer`: with that one a browser hides the origin of our own forms
/// too, and they would be refused.
const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// The same answer with what it lacks.
pub(super) async fn complete(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        let header = headers.entry(HeaderName::from_static(name));
        header.or_insert(HeaderValue::from_static(value));
    }
    response
}
