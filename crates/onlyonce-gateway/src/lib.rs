//! A gateway in front of any HTTP service: each keyed request runs once, every retry gets the same
//! answer, everything else passes through.

mod admin;
mod auth_check;
mod body;
pub mod config;
mod forward;
mod gateway;
mod identity;
mod server;
mod site;
mod tls;
mod upgrade;
mod upstream;

pub use admin::{RecordView, RecordsPage, ResponseView, StatsView};
pub use config::Config;
pub use gateway::{Gateway, StartError};
