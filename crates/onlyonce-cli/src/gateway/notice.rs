//! What a gateway says about itself: once at its start, and what is new when its settings are read
//! again. Text for a person at a terminal, one JSON object per line for everything else.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::Path;

use onlyonce_core::{Clock as _, SystemClock};
use onlyonce_gateway::config::LogFormat;
use onlyonce_gateway::{Config, Gateway, Settings, Warning};
use serde_json::{Map, Value, json};

use crate::said::say;

/// Speaks for one gateway.
pub(super) struct Notices {
    is_json: bool,
    /// A warning is given once, however often the settings are read.
    given: BTreeSet<Warning>,
}

impl Notices {
    /// In the format that the settings ask for, or else as text to a terminal and as JSON elsewhere.
    pub(super) fn new(settings: &Settings) -> Self {
        let is_json = match settings.config().log.format {
            Some(LogFormat::Json) => true,
            Some(LogFormat::Text) => false,
            None => !std::io::stderr().is_terminal(),
        };
        Self {
            is_json,
            given: BTreeSet::new(),
        }
    }

    /// Where it listens, what keeps its answers, and by which rules it works.
    pub(super) fn started(&mut self, settings: &Settings, file: Option<&Path>, gateway: &Gateway) {
        let config = settings.config();
        let listen = url(config.tls.is_some(), gateway.address());
        let admin = url(false, gateway.admin_address());
        let (store, survives) = kept(config);
        let profile = config.profile_name();
        let from = file.map(|file| file.display().to_string());
        if self.is_json {
            let message = format!("onlyonce listens on {listen}, operators on {admin}");
            let told = json!({
                "version": env!("CARGO_PKG_VERSION"),
                "listen": listen,
                "admin": admin,
                "store": store,
                "store_survives": survives,
                "profile": profile,
                "routes": config.route.len(),
                "config": from,
            });
            line("info", &message, told);
        } else {
            let routes = match config.route.len() {
                0 => String::new(),
                1 => ", 1 route".to_owned(),
                more => format!(", {more} routes"),
            };
            let from = from.map_or_else(String::new, |it| format!(", from {it}"));
            say(format_args!(
                "onlyonce listens on {listen}, operators on {admin}\n\
                 store      {store} (survives: {survives})\n\
                 profile    {profile}{routes}{from}"
            ));
        }
        self.warn(settings);
    }

    /// The settings were read again.
    pub(super) fn reloaded(&mut self, settings: &Settings) {
        self.say("settings read again");
        self.warn(settings);
    }

    /// Says one sentence.
    pub(super) fn say(&self, message: &str) {
        if self.is_json {
            line("info", message, json!({}));
        } else {
            say(format_args!("{message}"));
        }
    }

    /// Says what an operator wanted and did not get.
    pub(super) fn complain(&self, message: &str) {
        if self.is_json {
            line("warn", message, json!({}));
        } else {
            say(format_args!("warning: {message}"));
        }
    }

    /// What an operator should know of these settings and was not told yet.
    fn warn(&mut self, settings: &Settings) {
        for warning in settings.warnings() {
            if !self.given.insert(warning.clone()) {
                continue;
            }
            if self.is_json {
                line("warn", &warning.text, json!({"setting": warning.setting}));
            } else {
                say(format_args!("warning: {warning}"));
            }
        }
    }
}

fn url(is_tls: bool, address: SocketAddr) -> String {
    let scheme = if is_tls { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// The store without its password, and what its records survive.
fn kept(config: &Config) -> (String, &'static str) {
    let url = config.store_url();
    (onlyonce_stores::shown(url), survives(url))
}

fn survives(url: &str) -> &'static str {
    let is_quorum = ["redis+quorum:", "redlock:"]
        .iter()
        .any(|it| url.starts_with(it));
    match onlyonce_stores::backend(url) {
        "memory" => "nothing; a restart forgets every answer",
        "file" => "a crash and power loss; not the loss of this disk; one process at a time",
        "sqlite" => "a crash and power loss; not the loss of this disk; several processes",
        "redis" if is_quorum => {
            "a crash and power loss, and the loss of a minority of its servers with their disks"
        }
        "redis" => {
            "a crash of this process; of Redis itself, what its persistence and replicas keep"
        }
        "postgres" | "mysql" => "a crash of this process, and what the database survives",
        _ => "see docs/stores.md",
    }
}

fn line(level: &str, message: &str, more: Value) {
    let mut told = Map::new();
    let now = SystemClock::new().wall().to_rfc3339();
    told.insert("timestamp".into(), now.into());
    told.insert("level".into(), level.into());
    told.insert("component".into(), "gateway".into());
    told.insert("message".into(), message.into());
    if let Value::Object(more) = more {
        told.extend(more.into_iter().filter(|(_, value)| !value.is_null()));
    }
    say(format_args!("{}", Value::Object(told)));
}

#[cfg(test)]
mod tests {
    use super::survives;

    #[test]
    fn a_quorum_is_not_described_as_one_redis() {
        for url in ["redis+quorum://a,b,c", "redlock://a,b,c"] {
            assert!(survives(url).contains("a minority of its servers"), "{url}");
        }
        for url in ["redis://a", "redis+cluster://a", "redis+sentinel://a/m"] {
            assert!(survives(url).contains("Redis itself"), "{url}");
        }
    }
}
