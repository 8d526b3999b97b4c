//! Who answered: the service, or something on the way to it. A hotel's login page answers every request
//! with a friendly 200, and a company's proxy with a 403 of its own; neither has seen the operation.

use std::fmt;
use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_TYPE, REFRESH};
use http::{HeaderName, StatusCode};

use crate::operation::Operation;
use crate::redirect;
use crate::reply::Reply;

/// By what an answer is known as the service's own. What is not is
/// [`Cause::NotTheService`](crate::Cause::NotTheService): neither done nor rejected, but sent again
/// under the same key.
///
/// Whatever else is asked for, redirects are no answers (but for 307 and 308 within the service's
/// origin, which are sent on), nor is 511, which networks say that want a sign-in. By default any other
/// answer is the service's, unless it is a web page that the operation did not ask for with `Accept`, or
/// a success of a media type that the operation's `Accept` rules out. A 202 says that the operation was
/// taken, not that it is done: it is sent again under its key until the answer is another one, or is
/// marked as the one that the service keeps.
/// A service that can be told by more should be: over plain http, anybody can answer anything else.
///
/// ```
/// use onlyonce_client::{Evidence, Http, Sender};
///
/// # fn main() -> Result<(), reqwest::Error> {
/// let evidence = Evidence::default()
///     .media_types(["application/json"])
///     .header(http::HeaderName::from_static("x-request-id"));
/// let sender = Sender::new(Http::new()?).evidence(evidence);
/// # let _ = sender; Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Evidence {
    allows_pages: bool,
    see_other_is_done: bool,
    accepted_is_done: bool,
    media_types: Option<Vec<String>>,
    header: Option<HeaderName>,
    check: Option<Arc<Check>>,
}

type Check = dyn Fn(&Operation, &Reply) -> bool + Send + Sync;

impl Evidence {
    /// The same for a service that answers with web pages.
    #[must_use]
    pub fn pages(mut self) -> Self {
        self.allows_pages = true;
        self
    }

    /// The same for a service that answers an operation that is done with 303 See Other. The page
    /// that it points to is not fetched.
    #[must_use]
    pub fn see_other(mut self) -> Self {
        self.see_other_is_done = true;
        self
    }

    /// The same for a service whose 202 Accepted is all that it will ever answer: it is done for the
    /// caller once the service has taken it.
    #[must_use]
    pub fn accepted(mut self) -> Self {
        self.accepted_is_done = true;
        self
    }

    /// The same for a service whose bodies all have one of these media types. `application/json`
    /// stands for every type that is JSON.
    #[must_use]
    pub fn media_types(mut self, types: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let types = types.into_iter();
        self.media_types = Some(types.map(|it| it.into().to_ascii_lowercase()).collect());
        self
    }

    /// The same for a service that has this header in every answer.
    #[must_use]
    pub fn header(mut self, name: HeaderName) -> Self {
        self.header = Some(name);
        self
    }

    /// The same with a test of your own: whether this answer is the service's.
    #[must_use]
    pub fn check(
        mut self,
        check: impl Fn(&Operation, &Reply) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.check = Some(Arc::new(check));
        self
    }

    /// Whether an answer of the service says that the operation is done.
    pub(crate) fn is_done(&self, reply: &Reply) -> bool {
        let is_see_other = reply.status == StatusCode::SEE_OTHER && self.see_other_is_done;
        // What the service keeps as its answer will not become another one.
        let is_taken_only =
            reply.status == StatusCode::ACCEPTED && !self.accepted_is_done && !reply.is_replayed();
        let is_success = reply.status.is_success() && !reply.says_in_progress();
        is_see_other || (is_success && !is_taken_only)
    }

    /// Why an answer is not the service's; nothing if it is.
    pub(crate) fn missing(&self, operation: &Operation, reply: &Reply) -> Option<String> {
        let status = reply.status;
        if reply.was_redirected {
            return Some(format!("{status}: from another address than was asked"));
        }
        if status == StatusCode::NETWORK_AUTHENTICATION_REQUIRED {
            return Some(format!("{status}: sign in to the network"));
        }
        if status.is_redirection() && !self.is_done(reply) {
            return Some(match redirect::shown(operation.url(), reply) {
                Some(origin) => format!("{status}: a redirect to {origin} is not followed"),
                None => format!("{status}: a redirect that leads nowhere"),
            });
        }
        if reply.headers.contains_key(REFRESH) && !self.allows_pages {
            return Some(format!("{status}: a page that leads elsewhere"));
        }
        if status.is_informational() {
            return Some(format!("{status}: no answer"));
        }
        if is_of_a_proxy(status) {
            // A proxy's status means neither done nor rejected, also where the service itself sent it.
            return None;
        }
        let why = self.why_not(operation, reply)?;
        Some(format!("{status}: {why}"))
    }

    fn why_not(&self, operation: &Operation, reply: &Reply) -> Option<String> {
        if !self.allows_pages && is_page(reply) && !asks_for_pages(operation) {
            // A service that fails may well do so with a page.
            if !reply.status.is_server_error() {
                return Some("a web page, which was not asked for".to_owned());
            }
        }
        if reply.status.is_success() && self.media_types.is_none() && is_ruled_out(operation, reply)
        {
            return Some("a body of a media type that was not asked for".to_owned());
        }
        if let Some(types) = &self.media_types
            && !reply.body.is_empty()
            && !is_one_of(types, reply)
        {
            return Some(format!("a body that is not {}", types.join(" or ")));
        }
        if let Some(name) = &self.header
            && !reply.headers.contains_key(name)
        {
            return Some(format!("the header {name} is missing"));
        }
        let is_passed = |check: &Arc<Check>| check(operation, reply);
        if !self.check.as_ref().is_none_or(is_passed) {
            return Some("it is not what the application expects".to_owned());
        }
        None
    }
}

impl fmt::Debug for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evidence")
            .field("allows_pages", &self.allows_pages)
            .field("see_other_is_done", &self.see_other_is_done)
            .field("accepted_is_done", &self.accepted_is_done)
            .field("media_types", &self.media_types)
            .field("header", &self.header)
            .field("has_check", &self.check.is_some())
            .finish()
    }
}

/// Answers that proxies give for a service. Each is tried again, and none says that nothing ran.
fn is_of_a_proxy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 407 | 408 | 425 | 429 | 502..=504)
}

fn media_type(reply: &Reply) -> Option<String> {
    let value = reply.headers.get(CONTENT_TYPE)?;
    let text = String::from_utf8_lossy(value.as_bytes());
    let essence = text.split(';').next().unwrap_or_default();
    Some(essence.trim().to_ascii_lowercase())
}

/// Whether this is a web page. Nothing, or JSON, under a page's media type is none: some frameworks
/// have that type for everything.
fn is_page(reply: &Reply) -> bool {
    if reply.body.is_empty() {
        return false;
    }
    match media_type(reply).as_deref() {
        Some("text/html" | "application/xhtml+xml") => !reply.is_json(),
        Some("") | None => starts_like_a_page(&reply.body),
        Some(_) => false,
    }
}

fn starts_like_a_page(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    body.trim_ascii_start().starts_with(b"<")
}

fn asks_for_pages(operation: &Operation) -> bool {
    let accept = operation.headers().get(ACCEPT);
    accept.is_some_and(|accept| {
        let accept = accept.to_str().unwrap_or_default().to_ascii_lowercase();
        accept.contains("text/html") || accept.contains("application/xhtml+xml")
    })
}

/// Whether the operation's `Accept` names media types, and that of the body is none of them. JSON under
/// any of its names is JSON.
fn is_ruled_out(operation: &Operation, reply: &Reply) -> bool {
    let Some(accept) = operation.headers().get(ACCEPT) else {
        return false;
    };
    let Some(found) = media_type(reply).filter(|it| !it.is_empty() && !reply.body.is_empty())
    else {
        return false;
    };
    let accept = accept.to_str().unwrap_or("*/*").to_ascii_lowercase();
    let mut ranges = accept.split(',').map(|range| {
        let essence = range.split(';').next().unwrap_or_default();
        essence.trim().to_owned()
    });
    !ranges.any(|range| is_in_range(&range, &found))
}

fn is_in_range(range: &str, found: &str) -> bool {
    let is_json = |it: &str| it == "application/json" || it.ends_with("+json");
    match range.strip_suffix("/*") {
        Some("*") => true,
        Some(kind) => found.split('/').next() == Some(kind),
        None => range == found || (is_json(range) && is_json(found)),
    }
}

fn is_one_of(types: &[String], reply: &Reply) -> bool {
    let Some(found) = media_type(reply) else {
        return false;
    };
    types.iter().any(|expected| {
        let is_json = expected == "application/json" && found.ends_with("+json");
        *expected == found || is_json
    })
}
