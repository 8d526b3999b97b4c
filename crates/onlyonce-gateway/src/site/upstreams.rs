//! The upstreams of a site, one for all routes that lead to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Uri;

use crate::upstream::{Health, Healths, Patience, Upstream};

/// The upstreams by address, so that routes share connections.
#[derive(Default)]
pub(super) struct Upstreams(BTreeMap<String, Upstream>);

impl Upstreams {
    /// The upstream at this address.
    pub(super) fn named(&mut self, uri: &Uri, patience: Patience, healths: &Healths) -> Upstream {
        self.at(uri, patience, &healths.of(uri))
    }

    fn at(&mut self, uri: &Uri, patience: Patience, health: &Arc<Health>) -> Upstream {
        let known = self.0.entry(uri.to_string());
        known
            .or_insert_with(|| Upstream::new(uri.clone(), patience, Arc::clone(health)))
            .clone()
    }

    /// The same upstream over these connections.
    pub(super) fn like(&mut self, upstream: &Upstream) -> Upstream {
        self.at(upstream.uri(), upstream.patience(), upstream.health())
    }
}
