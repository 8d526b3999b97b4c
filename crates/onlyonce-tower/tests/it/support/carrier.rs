//! How a contract's clients send their key: tests say `key`, and it goes where the contract has it.

use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use axum::body::Body;
use http::{HeaderName, HeaderValue, Request};
use onlyonce_core::policy::{HttpRules, KeyTime};
use onlyonce_core::{Clock, SystemClock};

use super::ask::IDEMPOTENCY_KEY;

/// When the tests began: every retry was first sent then.
static FIRST_SENT: LazyLock<HeaderValue> = LazyLock::new(|| {
    let now = Duration::from_millis(SystemClock::new().wall().as_millis());
    let date = httpdate::fmt_http_date(UNIX_EPOCH + now);
    HeaderValue::try_from(date).expect("a date is a header's value")
});

/// Where the key of a request goes.
#[derive(Clone)]
pub(super) struct Carrier {
    header: HeaderName,
    /// The header that says when the request was first sent.
    pub(super) time: Option<HeaderName>,
}

impl Default for Carrier {
    fn default() -> Self {
        Self {
            header: IDEMPOTENCY_KEY,
            time: None,
        }
    }
}

impl Carrier {
    pub(super) fn of(rules: &HttpRules) -> Self {
        let time = rules.key_time.as_ref().and_then(|rule| match &rule.from {
            KeyTime::Header(name) => Some(name.clone()),
            KeyTime::UuidV7 => None,
        });
        Self {
            header: rules.key_header.clone(),
            time,
        }
    }

    /// The request with its key in the contract's header, and a time beside it.
    pub(super) fn carry(&self, mut request: Request<Body>) -> Request<Body> {
        let headers = request.headers_mut();
        if self.header != IDEMPOTENCY_KEY {
            let lines: Vec<_> = headers.get_all(IDEMPOTENCY_KEY).iter().cloned().collect();
            headers.remove(IDEMPOTENCY_KEY);
            for line in lines {
                headers.append(self.header.clone(), line);
            }
        }
        if let Some(time) = &self.time
            && headers.contains_key(&self.header)
            && !headers.contains_key(time)
        {
            headers.insert(time.clone(), FIRST_SENT.clone());
        }
        request
    }
}
