//! A gateway's settings: any text is settings, or an error that says where and why.

use onlyonce_gateway::Settings;
use onlyonce_gateway::config::{self, Config, ConfigError};

use crate::NEEDLE;

const FILE: &str = "onlyonce.toml";

/// The bytes are a TOML file; and the value of a variable, of a flag and of an upstream.
pub fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match config::read(FILE, &text) {
        Ok(config) => holds(&config),
        Err(error) => located(&error, &text),
    }
    overridden(&text);
    hides(&text);
}

/// What is true of settings that were taken.
fn holds(config: &Config) {
    let reachable =
        config.upstream.is_some() || config.route.iter().any(|it| it.upstream.is_some());
    assert!(reachable, "requests have nowhere to go");
    let is_open = config.admin.is_some_and(|it| !it.ip().is_loopback());
    assert!(!is_open || config.admin_token_file.is_some());
    assert!(config.former_secret_file.is_none() || config.secret_file.is_some());
    for route in &config.route {
        let again = route.matches.to_string().parse();
        assert_eq!(again.as_ref(), Ok(&route.matches));
    }
    if !names_files(config) {
        let settings = Settings::resolve(config).expect("settings that were taken hold");
        for warning in settings.warnings() {
            assert!(!warning.text.is_empty());
        }
    }
    if let Some(store) = &config.store {
        let _ = onlyonce_stores::backend(store);
    }
}

/// Whether settings name files, which may be there or not.
fn names_files(config: &Config) -> bool {
    let names = [&config.admin_token_file, &config.secret_file];
    let lookups = config.route.iter().filter_map(|it| it.reconcile.as_ref());
    names.into_iter().any(Option::is_some)
        || lookups
            .into_iter()
            .any(|it| it.table().authorization_file.is_some())
        || config.tls.is_some()
        || config.jwt.is_some()
        || config.audit.is_some()
}

/// An error names the file, and a line of it or none.
fn located(error: &ConfigError, text: &str) {
    assert!(!error.problems().is_empty());
    for problem in error.problems() {
        let line = problem.place.strip_prefix(FILE);
        let line = line.expect("the file is named");
        if let Some(line) = line.strip_prefix(':') {
            let line: usize = line.parse().expect("a line's number");
            assert!((1..=text.split('\n').count()).contains(&line), "{error}");
        } else {
            assert_eq!(line, "");
        }
        assert!(!problem.why.is_empty());
    }
}

fn overridden(text: &str) {
    let up = ("upstream", "http://127.0.0.1:1".to_owned());
    for name in ["listen", "profile", "ttl", "drain", "upstream", "namespace"] {
        let variable = format!("ONLYONCE_{}", name.to_ascii_uppercase());
        let by_variable = config::load(
            None,
            [(variable, text.to_owned())],
            std::slice::from_ref(&up),
        );
        let by_flag = config::load(None, [], &[up.clone(), (name, text.to_owned())]);
        if name != "upstream" {
            assert_eq!(by_variable.is_ok(), by_flag.is_ok(), "{name}");
        }
        for error in [by_variable.err(), by_flag.err()].into_iter().flatten() {
            assert!(!error.to_string().is_empty());
        }
    }
    let unknown = [(format!("ONLYONCE_{text}"), String::new())];
    drop(config::load(None, unknown, &[]));
}

/// A password in an upstream is refused, and not repeated.
fn hides(text: &str) {
    for address in [
        format!("http://user:{NEEDLE}@{text}"),
        format!("http://{text}:{NEEDLE}@host"),
    ] {
        if let Err(error) = config::load(None, [], &[("upstream", address)]) {
            assert!(!error.to_string().contains(NEEDLE), "{error}");
        }
    }
}
