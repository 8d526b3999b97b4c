//! Whether a proxy is in front of the gateway that its settings do not know of: then all callers behind
//! it come from one address.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};

/// What proxies add.
static SIGNS: [HeaderName; 3] = [
    HeaderName::from_static("x-forwarded-for"),
    FORWARDED,
    HeaderName::from_static("x-real-ip"),
];

/// Tells an operator once, for all workers.
#[derive(Clone, Default)]
pub(crate) struct ProxyHint {
    is_told: Arc<AtomicBool>,
}

impl ProxyHint {
    /// Looks at a request of a gateway without an address header.
    pub(crate) fn look(&self, headers: &HeaderMap, peer: Option<IpAddr>) {
        if self.is_told.load(Ordering::Relaxed) {
            return;
        }
        let Some(header) = SIGNS.iter().find(|name| headers.contains_key(*name)) else {
            return;
        };
        if !self.is_told.swap(true, Ordering::Relaxed) {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(
                target: "onlyonce",
                %header,
                peer,
                "a request came with a header that proxies add: if a proxy is in front of this \
                 gateway, all callers behind it count as one address for [limits]; set \
                 address_header to the header in which that proxy writes the client's address"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing::span;

    use super::*;

    /// Counts what is logged.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<usize>>);

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, _: &tracing::Event<'_>) {
            *self.0.lock().unwrap() += 1;
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn a_proxy_that_the_settings_do_not_know_of_is_told_once() {
        let lines = Lines::default();
        let hint = ProxyHint::default();
        let plain = HeaderMap::new();
        let mut proxied = HeaderMap::new();
        proxied.insert(
            "x-forwarded-for",
            http::HeaderValue::from_static("192.0.2.1"),
        );

        tracing::subscriber::with_default(lines.clone(), || {
            hint.look(&plain, None);
            assert_eq!(*lines.0.lock().unwrap(), 0);
            for _ in 0..3 {
                hint.clone().look(&proxied, None);
            }
        });

        assert_eq!(*lines.0.lock().unwrap(), 1);
    }
}
