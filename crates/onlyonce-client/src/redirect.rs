//! Redirects, as far as a request with a key may follow them: within its own origin, and only where
//! the same request is to be sent again. Everything else is for a person to look at.

use http::header::LOCATION;
use http::{Request, StatusCode, Uri};
use reqwest::Url;

use crate::reply::Reply;

#[cfg(test)]
mod tests;

/// How often one attempt is sent on.
pub(crate) const REDIRECTS_MAX: usize = 5;

/// Where the service wants the same request, method and body, to be sent: nothing if it does not, or
/// if that is at another origin.
pub(crate) fn same_request_elsewhere<B>(request: &Request<B>, reply: &Reply) -> Option<Uri> {
    let again = [
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    if !again.contains(&reply.status) || reply.was_redirected {
        return None;
    }
    let here = Url::parse(&request.uri().to_string()).ok()?;
    let there = target(&here, reply)?;
    let has_credential = !there.username().is_empty() || there.password().is_some();
    let is_same = there.origin() == here.origin() && !has_credential;
    is_same.then(|| there.as_str().parse().ok()).flatten()
}

/// The origin that a redirect leads to, for a person to read: the rest of it may be a secret.
pub(crate) fn shown(asked: &Url, reply: &Reply) -> Option<String> {
    Some(target(asked, reply)?.origin().ascii_serialization())
}

fn target(here: &Url, reply: &Reply) -> Option<Url> {
    let mut there = here
        .join(reply.headers.get(LOCATION)?.to_str().ok()?)
        .ok()?;
    there.set_fragment(None);
    Some(there)
}
