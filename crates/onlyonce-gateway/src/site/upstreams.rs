//! The upstreams of a site, one for all routes that lead to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;

use super::IDLE_MAX;
use crate::config::{self, Config, ConfigError, Span, Timeout};
use crate::upstream::{Health, Healths, Patience, Upstream};

const CONNECT_MAX: Duration = Duration::from_secs(5);
const RESPONSE_MAX: Duration = Duration::from_secs(60);

/// The upstreams by address, so that routes share connections.
#[derive(Default)]
pub(super) struct Upstreams(BTreeMap<String, Upstream>);

impl Upstreams {
    /// The upstream at this address.
    pub(super) fn named(
        &mut self,
        address: &str,
        patience: Patience,
        healths: &Healths,
    ) -> Result<Upstream, ConfigError> {
        let uri = config::is_upstream(address).map_err(|why| ConfigError::new("upstream", why))?;
        let health = healths.of(&uri);
        Ok(self.at(&uri, patience, &health))
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

/// How long to wait for an upstream.
pub(crate) fn patience(config: &Config) -> Patience {
    let or = |timeout: Option<Timeout>, usual| timeout.map_or(usual, Span::get);
    Patience {
        connect_max: or(config.timeouts.connect, CONNECT_MAX),
        response_max: or(config.timeouts.response, RESPONSE_MAX),
        idle_max: or(config.timeouts.idle, IDLE_MAX),
    }
}
