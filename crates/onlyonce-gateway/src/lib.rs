//! A gateway in front of any HTTP service: each keyed request runs once, every retry gets the same
//! answer, everything else passes through.

mod admin;
mod auth_check;
mod body;
pub mod config;
mod failure;
mod forward;
mod gateway;
mod identify;
pub mod log;
mod lookup;
mod mcp;
mod observing;
mod pace;
mod path;
mod proxied;
mod scopes;
mod server;
mod settings;
mod settling;
mod site;
mod streams;
mod target;
mod tls;
pub mod traces;
pub mod trust;
mod upgrade;
mod upstream;
mod workers;

pub use admin::{
    AuditPage, CallersView, ExampleView, FailureView, HeaderView, HealthView, NowView,
    ObservedReport, ObservedRouteView, ObservedView, PurgedView, RecordView, RecordsPage,
    ResponseView, RouteView, SampleView, SecretView, SeenView, SettingView, SettingsView,
    SettledView, StatsView, StepView, StoreHealthView, StoreOperationView, TopView, TotalsView,
    UnsettledView, UpstreamView, UpstreamsView, WarningView,
};
pub use config::Config;
pub use gateway::{Gateway, StartError, operators};
pub use onlyonce_observe::{BusyCaller, EventLine, HotKey, audit};
pub use settings::{Settings, Warning};
