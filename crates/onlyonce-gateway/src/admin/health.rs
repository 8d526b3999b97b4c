//! How the gateway does, in one look: what it stands on, and by which settings it works.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Json;
use axum::extract::State;
use onlyonce_core::OnLapse;
use onlyonce_core::policy::StoreDown;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::resolved::resolved;
use super::upstreams::UpstreamView;
use crate::config::HostName;
use crate::settings::{RouteSettings, Settings, Warning};

/// How a gateway does.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct HealthView {
    /// Its version.
    pub version: String,
    /// What it is called in records and logs.
    pub instance: String,
    /// How long it has run, in seconds.
    pub uptime_seconds: u64,
    /// Why `/readyz` says no; absent if it does not.
    pub not_ready: Option<String>,
    /// How the store does.
    pub store: StoreHealthView,
    /// How its slot secret does.
    pub secret: SecretView,
    /// How far the store's clock is ahead of this machine's, in milliseconds, as seen last.
    pub clock_skew_ms: i64,
    /// How the upstreams do.
    pub upstreams: Vec<UpstreamView>,
    /// Whether it keeps an audit trail.
    pub audit: bool,
    /// By which settings it works.
    pub settings: SettingsView,
    /// What an operator should know of these.
    pub warnings: Vec<WarningView>,
}

/// How a store does.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct StoreHealthView {
    /// Its URL without credentials and options; absent if somebody else opened it.
    pub url: Option<String>,
    /// What it answers with instead of an answer; absent if it answers.
    pub error: Option<String>,
    /// Where its circuit breaker stands: `closed`, `open` or `half-open`.
    pub breaker: String,
}

/// How a slot secret does.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SecretView {
    /// Whether the store's is this gateway's own; keyed requests are refused if it is not.
    pub agrees: bool,
    /// Whether it is being rotated.
    pub rotating: bool,
}

/// Settings as they are in force.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingsView {
    /// Where the gateway listens; absent if nothing does.
    pub listen: Option<String>,
    /// Where operators reach it.
    pub admin: String,
    /// Whether operators need a token.
    pub admin_token: bool,
    /// Names by which operators reach it besides its own.
    pub admin_hosts: Vec<String>,
    /// What keeps its records apart on the store.
    pub namespace: Option<String>,
    /// The contract of requests that no route gives another.
    pub profile: String,
    /// Routes, in their order; the last one is for all other requests.
    pub routes: Vec<RouteView>,
    /// Every setting by its name, with its value in force. Nothing secret is shown: URLs come without
    /// credentials, the values of their options and the queries of requests as `***`.
    pub all: Vec<SettingView>,
}

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingView {
    /// Its name, as in `limits.running` or `route.0.match`.
    pub name: String,
    /// What is in force.
    pub value: String,
    /// Whether it was given; what was not has its default, or what the gateway has for all routes.
    pub given: bool,
}

/// A route and its contract.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RouteView {
    /// Which requests; absent for all that no route matches.
    pub matches: Option<String>,
    /// What they are called in records; absent if that is their path.
    pub operation: Option<String>,
    /// Where they go, without credentials.
    pub upstream: Option<String>,
    /// Whether they pass through, unprotected.
    pub pass: bool,
    /// Their contract's name.
    pub profile: String,
    /// What follows when it is unknown whether one ran: `rerun` or `hold`.
    pub on_lapse: String,
    /// What happens while the store is down: `refused` or `run unprotected`.
    pub store_down: String,
    /// How long an answer is kept, in seconds.
    pub keep_seconds: u64,
    /// Their whole contract, as the file of a profile would give it; absent where they pass through.
    pub contract: Option<String>,
}

/// Something that an operator should know of the settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WarningView {
    /// The setting that ends it.
    pub setting: String,
    /// What there is to know.
    pub text: String,
}

/// The settings in force, for those who show them. They change when a gateway reads them again.
#[derive(Clone)]
pub(crate) struct Shown {
    listen: Option<SocketAddr>,
    admin: SocketAddr,
    /// None if the store was opened by somebody else: then the settings do not name it.
    store: Option<String>,
    read: Arc<ArcSwap<Read>>,
}

struct Read {
    view: SettingsView,
    warnings: Vec<WarningView>,
}

impl Shown {
    /// Those of a gateway at these addresses.
    pub(crate) fn new(
        settings: &Settings,
        listen: Option<SocketAddr>,
        admin: SocketAddr,
        opened_store: bool,
    ) -> Self {
        let read = Read::new(settings, listen, admin, opened_store);
        Self {
            listen,
            admin,
            store: opened_store.then(|| onlyonce_stores::shown(&settings.storage.url)),
            read: Arc::new(ArcSwap::from_pointee(read)),
        }
    }

    /// They were read again.
    pub(crate) fn replace(&self, settings: &Settings) {
        let read = Read::new(settings, self.listen, self.admin, self.store.is_some());
        self.read.store(Arc::new(read));
    }
}

impl Read {
    fn new(
        settings: &Settings,
        listen: Option<SocketAddr>,
        admin: SocketAddr,
        opened_store: bool,
    ) -> Self {
        let hosts = settings.operators.hosts.iter().flatten();
        // Of a store that somebody else opened the settings know nothing.
        let all = resolved(settings).into_iter();
        let all = all.filter(|it| opened_store || it.name != "store");
        let view = SettingsView {
            listen: listen.map(|it| it.to_string()),
            admin: admin.to_string(),
            admin_token: settings.credentials.admin_token.is_some(),
            admin_hosts: hosts.map(HostName::as_str).map(str::to_owned).collect(),
            namespace: settings.storage.namespace.clone(),
            profile: settings.config().profile_name().to_owned(),
            routes: settings.routes.each().map(RouteView::of).collect(),
            all: all.collect(),
        };
        let warning = |it: Warning| WarningView {
            setting: it.setting.to_owned(),
            text: it.text,
        };
        let warnings = settings.warnings().into_iter();
        let warnings = warnings.filter(|it| opened_store || it.setting != "store");
        Self {
            view,
            warnings: warnings.map(warning).collect(),
        }
    }
}

impl RouteView {
    fn of(route: &RouteSettings) -> Self {
        let policy = &route.policy;
        let operation = route.operation.as_ref();
        Self {
            matches: route.matches.as_ref().map(ToString::to_string),
            operation: operation.map(|it| it.name().to_string()),
            upstream: Some(route.upstream_shown.clone()),
            pass: route.passes(),
            profile: route.profile.clone(),
            on_lapse: match policy.on_lapse {
                OnLapse::Rerun => "rerun",
                OnLapse::Hold => "hold",
            }
            .to_owned(),
            store_down: match policy.store_down {
                StoreDown::Closed => "refused",
                StoreDown::Open => "run unprotected",
            }
            .to_owned(),
            keep_seconds: policy.keep_for.as_secs(),
            contract: (!route.passes()).then(|| policy.to_toml()),
        }
    }
}

pub(super) async fn health(State(admin): State<Admin>) -> Json<HealthView> {
    Json(admin.health().await)
}

impl Admin {
    pub(super) async fn health(&self) -> HealthView {
        let read = self.shown.read.load();
        HealthView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: self.engine.instance().to_owned(),
            uptime_seconds: self.history.uptime().as_secs(),
            not_ready: self.not_ready().await.map(|it| it.detail().to_owned()),
            store: StoreHealthView {
                url: self.shown.store.clone(),
                error: self.store_error().await,
                breaker: self.observed.breaker().to_string(),
            },
            secret: SecretView {
                agrees: self.engine.agrees(),
                rotating: self.engine.former().is_some(),
            },
            clock_skew_ms: self.observers.metrics().clock_skew_ms(),
            upstreams: self.upstreams(),
            audit: self.trail.is_some(),
            settings: read.view.clone(),
            warnings: read.warnings.clone(),
        }
    }

    /// What the store answers with instead of an answer.
    pub(super) async fn store_error(&self) -> Option<String> {
        let answered = self.engine.store().operate()?.ping().await;
        answered.err().map(|error| error.to_string())
    }
}
