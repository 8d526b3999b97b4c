//! Operators see every setting, and no secret.

use super::*;

fn settings(text: &str) -> Vec<SettingView> {
    resolved(&toml::from_str(text).unwrap())
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
    let settings = settings(
        "upstream = \"http://me:hunter2@127.0.0.1:3000\"\n\
         store = \"redis://:hunter2@127.0.0.1:6379/0?wait_replicas=1&password=hunter2\"\n\
         auth_check = \"GET /me?token=hunter2\"\n\
         [[route]]\nmatch = \"POST /pay\"\nupstream = \"https://me:hunter2@pay.example.org\"\n\
         auth_check = \"GET /you?token=hunter2\"\n\
         reconcile = \"GET /charges/{operation}?token=hunter2\"\n\
         [[route]]\nmatch = \"POST /mcp\"\nprotocol = \"mcp\"\n\
         mcp.reconcile = ['pay=find:{\"token\":\"hunter2\",\"reference\":\"{key}\"}']\n",
    );

    for it in &settings {
        assert!(!it.value.contains("hunter2"), "{it:?}");
    }
    let (store, _) = value(&settings, "store");
    assert!(
        store.ends_with("?wait_replicas=***&password=***"),
        "{store}"
    );
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
    let settings = settings("[[route]]\nmatch = \"POST /pay\"\n");
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
