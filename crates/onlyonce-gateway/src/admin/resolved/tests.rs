//! Operators see every setting, and no secret.

use std::io::Write as _;

use super::*;
use crate::config::Config;

fn settings(text: &str) -> Vec<SettingView> {
    resolved(&Settings::resolve(&toml::from_str(text).unwrap()).unwrap())
}

fn value<'a>(settings: &'a [SettingView], name: &str) -> (&'a str, bool) {
    let found = settings.iter().find(|it| it.name == name);
    let found = found.unwrap_or_else(|| panic!("{name} is not there: {settings:?}"));
    (&found.value, found.given)
}

#[test]
fn what_is_given_is_told_from_what_is_a_default() {
    let settings = settings(
        "upstream = \"http://127.0.0.1:3000\"\ndrain = \"5m\"\nmode = \"observe\"\n\
         [limits]\nrunning = 7\n[timeouts]\nidle = \"90s\"\n\
         [[route]]\nmatch = \"POST /pay\"\nmode = \"enforce\"\n\
         [[route]]\nmatch = \"GET /free\"\npass = true\n",
    );

    for (name, expected) in [
        ("listen", ("127.0.0.1:8080", false)),
        ("upstream", ("http://127.0.0.1:3000", true)),
        ("drain", ("5m", true)),
        ("mode", ("observe", true)),
        ("store", ("file:./onlyonce-data", false)),
        ("limits.running", ("7", true)),
        ("limits.connections", ("10000", false)),
        ("limits.bad_requests_a_minute", ("60", false)),
        ("timeouts.idle", ("1m 30s", true)),
        ("timeouts.body_whole", ("5m", false)),
        ("breaker.failures", ("5", false)),
        ("audit", ("none", false)),
        ("route.0.match", ("POST /pay", true)),
        ("route.0.mode", ("enforce", true)),
        ("route.0.upstream", ("http://127.0.0.1:3000", false)),
        ("route.1.mode", ("observe", false)),
        ("route.1.pass", ("true", true)),
    ] {
        assert_eq!(value(&settings, name), expected, "{name}");
    }
}

#[test]
fn nothing_secret_is_shown() {
    let mut token = tempfile::NamedTempFile::new().unwrap();
    token.write_all(b"Bearer hunter2hunter2hunter2").unwrap();
    let token = token.path();
    let text = format!(
        "upstream = \"http://127.0.0.1:3000\"\nadmin_token_file = {token:?}\n\
         store = \"redis://:hunter2@127.0.0.1:6379/0?wait_replicas=1\"\n\
         auth_check = \"GET /me?token=hunter2\"\n\
         [[route]]\nmatch = \"POST /pay\"\nauth_check = \"GET /you?token=hunter2\"\n\
         reconcile.ask = \"GET /charges/{{operation}}?token=hunter2\"\n\
         reconcile.authorization_file = {token:?}\n\
         [[route]]\nmatch = \"* /mcp\"\nprotocol = \"mcp\"\n\
         mcp.reconcile = ['pay=find:{{\"token\":\"hunter2\",\"reference\":\"{{key}}\"}}']\n",
    );
    let checked = Settings::resolve(&toml::from_str(&text).unwrap()).unwrap();
    let settings = resolved(&checked);

    for it in &settings {
        assert!(!it.value.contains("hunter2"), "{it:?}");
    }
    let shown = format!("{checked:?}");
    assert!(shown.contains("127.0.0.1:3000") && !shown.contains("hunter2"));
    let (store, _) = value(&settings, "store");
    assert!(store.ends_with("?wait_replicas=***"), "{store}");
    assert_eq!(value(&settings, "auth_check").0, "GET /me?***");
    assert_eq!(
        value(&settings, "route.0.reconcile").0,
        "GET /charges/{operation}?***"
    );
    assert_eq!(value(&settings, "route.1.mcp.reconcile").0, "***");
}

/// What the reference of all settings has is here, but for the parts of a contract.
#[test]
fn every_setting_of_the_reference_is_there() {
    let schema = schemars::schema_for!(Config).to_value();
    let up = "upstream = \"http://127.0.0.1:3000\"";
    let settings = settings(&format!("{up}\n[[route]]\nmatch = \"POST /pay\"\n"));
    let properties = |of: &serde_json::Value| -> Vec<String> {
        of["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    let is_there = |name: &str| {
        let is_it = |it: &SettingView| it.name == name || it.name.starts_with(&format!("{name}."));
        settings.iter().any(is_it)
    };

    for name in properties(&schema) {
        let is_of_a_contract = ["rules", "scope", "ttl"].contains(&name.as_str());
        assert!(is_of_a_contract || is_there(&name), "{name}");
    }
    for (table, definition) in [
        ("breaker", "Breaker"),
        ("identity", "Identity"),
        ("limits", "Limits"),
        ("log", "Log"),
        ("timeouts", "Timeouts"),
    ] {
        for name in properties(&schema["$defs"][definition]) {
            assert!(is_there(&format!("{table}.{name}")), "{table}.{name}");
        }
    }
}

/// What the reference says of a setting that is left out is what holds then.
#[test]
fn every_default_of_the_reference_is_in_force() {
    let settings = settings("upstream = \"http://127.0.0.1:3000\"\n[audit]\npath = \"a.jsonl\"\n");
    let schema = schemars::schema_for!(Config).to_value();
    let mut compared = 0;

    let mut compare = |table: &str, of: &serde_json::Value| {
        for (name, property) in of["properties"].as_object().unwrap() {
            let description = property["description"].as_str().unwrap_or_default();
            let Some((_, told)) = description.split_once("Default ") else {
                continue;
            };
            let told = match told.strip_prefix('`') {
                Some(quoted) => quoted.split('`').next().unwrap(),
                None => told.split([' ', ',', '.', '\n']).next().unwrap(),
            };
            let name = format!("{table}{name}");
            let Some(found) = settings.iter().find(|it| it.name == name) else {
                continue;
            };
            let seconds = |text: &str| humantime::parse_duration(text).ok();
            let is_same = found.value == told
                || (seconds(told).is_some() && seconds(told) == seconds(&found.value));
            assert!(is_same, "{name}: {} is in force, not {told}", found.value);
            compared += 1;
        }
    };
    compare("", &schema);
    for (table, definition) in [
        ("audit.", "Audit"),
        ("breaker.", "Breaker"),
        ("identity.", "Identity"),
        ("limits.", "Limits"),
        ("log.", "Log"),
        ("timeouts.", "Timeouts"),
    ] {
        compare(table, &schema["$defs"][definition]);
    }

    assert!(compared > 30, "only {compared} defaults were found");
}
