//! The layer around a service of the host language.

use http::request::Parts;
use http::{HeaderMap, HeaderName, Request};
use onlyonce_core::profile::{ProfileError, UnknownProfile};
use onlyonce_core::{Engine, Policy, Profile, Release};
use onlyonce_tower::{IdempotencyLayer, Linger, Principal, RouteError};
use thiserror::Error;
use tokio::runtime::Handle;
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::exchange::{Exchange, Inner, Lost};
use crate::joined::{HeaderLines, take_apart};
use crate::pipe::Pipe;

/// How requests are protected.
#[derive(Clone, Debug, Default)]
pub struct SiteSettings {
    /// The name of a profile; `standard` otherwise.
    pub profile: Option<String>,
    /// Rules of one's own as TOML, as in a profile's file; their `base` is a profile's name.
    pub rules: Option<String>,
    /// Only paths that match this pattern are covered.
    pub route: Option<String>,
}

/// Settings that cannot be used.
#[derive(Debug, Error)]
pub enum SiteError {
    /// There is no such profile.
    #[error(transparent)]
    Profile(#[from] UnknownProfile),
    /// The rules are wrong.
    #[error("rules: {0}")]
    Rules(#[from] ProfileError),
    /// Rules name their own base.
    #[error("give a profile or rules, not both: rules name their profile with `base = \"…\"`")]
    Both,
    /// The pattern is wrong.
    #[error(transparent)]
    Route(#[from] RouteError),
}

impl SiteSettings {
    fn policy(&self) -> Result<Policy, SiteError> {
        match (&self.profile, &self.rules) {
            (Some(_), Some(_)) => Err(SiteError::Both),
            (Some(name), None) => Ok(name.parse::<Profile>()?.policy()),
            (None, Some(rules)) => Ok(Profile::from_toml(rules)?),
            (None, None) => Ok(Policy::default()),
        }
    }
}

type Classify = fn(&Lost) -> Release;

/// A protected service. Cheap to clone.
#[derive(Clone)]
pub struct Site {
    service: onlyonce_tower::Idempotent<Inner, Classify>,
    key_header: HeaderName,
    opt_out_header: HeaderName,
    runtime: Handle,
}

impl Site {
    pub(crate) fn new(
        engine: Engine,
        settings: &SiteSettings,
        runtime: Handle,
    ) -> Result<Self, SiteError> {
        let policy = settings.policy()?;
        let key_header = policy.http.key_header.clone();
        let opt_out_header = policy.http.opt_out_header.clone();
        // The rest of a refused body is left to the host's server, which owns the connection.
        let mut layer = IdempotencyLayer::new(engine)
            .policy(policy)
            .linger(Linger::NONE);
        if let Some(pattern) = &settings.route {
            layer = layer.route(pattern)?;
        }
        let layer = layer.classify_errors(classify as Classify);
        Ok(Self {
            service: layer.layer(Inner),
            key_header,
            opt_out_header,
            runtime,
        })
    }

    /// Starts a request, of which the host has read the head. `principal` is the caller, where the host
    /// has verified who that is. Nothing if the layer has nothing to do with it: then the host serves it by
    /// itself, and takes the [opt-out header](Self::opt_out_header) off its response.
    pub fn exchange(
        &self,
        mut head: Parts,
        lines: HeaderLines,
        principal: Option<&str>,
    ) -> Option<Exchange> {
        match lines {
            HeaderLines::AsSent => {}
            HeaderLines::Joined => take_apart(&mut head.headers, &self.key_header),
        }
        self.service
            .covers(&head)
            .then(|| self.start(head, principal))
    }

    /// The header by which a handler says that its answer is not to be stored.
    pub fn opt_out_header(&self) -> &HeaderName {
        &self.opt_out_header
    }

    fn start(&self, head: Parts, principal: Option<&str>) -> Exchange {
        let (upload, body) = Pipe::ends();
        let mut request = Request::from_parts(head, body);
        if let Some(principal) = principal {
            request.extensions_mut().insert(Principal::new(principal));
        }
        if has_no_body(request.headers()) {
            upload.end();
        }
        let mut service = self.service.clone();
        Exchange::new(request, upload, self.runtime.clone(), |request| {
            service.call(request)
        })
    }
}

/// Whether the request says so itself; of any other the host is asked to read the body.
fn has_no_body(headers: &HeaderMap) -> bool {
    headers
        .get(http::header::CONTENT_LENGTH)
        .is_some_and(|length| length == "0")
}

fn classify(lost: &Lost) -> Release {
    match lost {
        Lost::NotRun => Release::NotRun,
        Lost::Cancelled => Release::Unknown,
    }
}
