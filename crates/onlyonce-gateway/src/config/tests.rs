//! What is wrong with the settings is said with its place and the right word.

use std::io::Write as _;

use super::*;

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn told(text: &str) -> String {
    let file = file(text);
    let error = load(Some(file.path()), [], &[]).unwrap_err().to_string();
    error.replace(&file.path().display().to_string(), "FILE")
}

#[test]
fn an_upstream_is_enough() {
    let config = load(None, [], &[("upstream", "http://127.0.0.1:3000".into())]).unwrap();

    assert_eq!(config.upstream.as_deref(), Some("http://127.0.0.1:3000"));
}

#[test]
fn a_flag_goes_before_a_variable_and_a_variable_before_the_file() {
    let file = file("upstream = \"http://a\"\nnamespace = \"file\"\ninstance = \"file\"");
    let variables = [
        ("ONLYONCE_NAMESPACE".to_owned(), "variable".to_owned()),
        ("ONLYONCE_INSTANCE".to_owned(), "variable".to_owned()),
        ("HOME".to_owned(), "/".to_owned()),
    ];

    let config = load(Some(file.path()), variables, &[("instance", "flag".into())]).unwrap();

    assert_eq!(config.namespace.as_deref(), Some("variable"));
    assert_eq!(config.instance.as_deref(), Some("flag"));
}

#[test]
fn a_typing_slip_is_named_with_its_line_and_the_right_word() {
    let told = told("listen = \"127.0.0.1:1\"\n\nuptream = \"http://a\"\n");

    assert!(told.starts_with("FILE:3: "), "{told}");
    assert!(told.contains("did you mean `upstream`?"), "{told}");
}

#[test]
fn a_typing_slip_in_a_route_is_named_with_its_line() {
    let told =
        told("upstream = \"http://a\"\n[[route]]\nmatch = \"POST /a\"\nscoop = [\"caller\"]\n");

    assert!(told.starts_with("FILE:4: "), "{told}");
    assert!(told.contains("did you mean `scope`?"), "{told}");
}

#[test]
fn every_wrong_value_is_told_with_what_would_be_right() {
    for (text, right) in [
        ("profile = \"standart\"", "did you mean `standard`?"),
        ("ttl = \"soon\"", "write it like 30s"),
        ("listen = \"8080\"", "socket address"),
        ("scope = [\"user\"]", "there are route, caller"),
        ("upstream = \"127.0.0.1:3000\"", "write it like http://"),
        (
            "upstream = \"http://user:secret@host\"",
            "write it like http://",
        ),
        ("[rules]\non_lapse = \"retry\"", "rerun"),
        ("[[route]]\nmatch = \"/orders\"", "write it like POST"),
        ("[[route]]\nmatch = \"POST /a/{\"", "not a pattern"),
        ("listen = ", "string"),
        ("auth_check = \"POST /me\"", "write it like GET /me"),
        ("auth_check = \"/me\"", "write it like GET /me"),
        ("[limits]\nconnections = 0", "nonzero"),
    ] {
        let told = told(text);
        assert!(told.contains(right), "{text}: {told}");
    }
}

#[test]
fn a_password_in_an_upstream_is_not_repeated() {
    let told = told("upstream = \"http://user:s3cret@host:1\"");

    assert!(told.contains("`…@host:1`"), "{told}");
    assert!(!told.contains("s3cret"), "{told}");
}

#[test]
fn settings_that_do_not_fit_together_are_refused() {
    let up = "upstream = \"http://a\"\n";
    for (text, right) in [
        ("", "--upstream"),
        ("admin = \"0.0.0.0:9090\"", "admin_token_file"),
        ("scope = [\"jwt:sub\"]", "add [jwt]"),
        ("scope = [\"path:id\"]", "{id}"),
        ("[jwt]\nkey_file = \"key.pem\"", "`algorithm`"),
        ("[limits]\naddress_header = \"no header\"", "address_header"),
        (
            "[[route]]\nmatch = \"POST /a\"\nscope = [\"path:id\"]",
            "{id}",
        ),
    ] {
        let text = if text.is_empty() {
            String::new()
        } else {
            format!("{up}{text}")
        };
        let told = told(&text);
        assert!(told.contains(right), "{text}: {told}");
    }
}

#[test]
fn a_variable_that_is_nearly_right_is_named() {
    let variables = [("ONLYONCE_UPSTREEM".to_owned(), "http://a".to_owned())];

    let told = load(None, variables, &[]).unwrap_err().to_string();

    assert!(told.starts_with("ONLYONCE_UPSTREEM: "), "{told}");
    assert!(told.contains("did you mean ONLYONCE_UPSTREAM?"), "{told}");
}

#[test]
fn the_reference_names_every_setting() {
    let page = markdown();

    for setting in [
        "`listen`*",
        "`[[route]]`",
        "`match`",
        "`on_lapse`",
        "`algorithm`",
        "`HS256` or",
    ] {
        assert!(page.contains(setting), "{setting} in {page}");
    }
}

#[test]
fn an_operator_is_warned_of_every_route_that_knows_callers_only_by_what_they_say() {
    let file = file(
        "upstream = \"http://a\"\nscope = [\"jwt:sub\"]\n\
         [jwt]\nalgorithm = \"HS256\"\nkey_file = \"key\"\n\
         [[route]]\nmatch = \"POST /a\"\nscope = [\"caller\"]\n\
         [[route]]\nmatch = \"POST /b\"\nscope = [\"header:x-user\"]\n\
         [[route]]\nmatch = \"POST /c\"\nscope = [\"trusted-header:x-user\"]\n\
         [[route]]\nmatch = \"POST /d\"\npass = true\nscope = [\"caller\"]\n",
    );
    let config = load(Some(file.path()), [], &[]).unwrap();

    let told = warnings(&config).join("\n");

    assert!(told.ends_with("route POST /a, route POST /b"), "{told}");
    let plain = load(None, [], &[("upstream", "http://a".into())]).unwrap();
    assert!(warnings(&plain)[0].contains("refreshed opaque token"));
}

#[test]
fn the_page_in_the_repository_is_the_one_that_is_printed() {
    let kept = include_str!("../../../../docs/configuration.md");

    assert_eq!(
        kept,
        markdown(),
        "write it again: onlyonce config docs > docs/configuration.md"
    );
}

#[test]
fn the_largest_answer_is_that_of_the_most_generous_route() {
    let largest = |text: &str| {
        let text = format!("upstream = \"http://127.0.0.1:3000\"\n{text}");
        read("FILE", &text).unwrap().response_bytes_max()
    };
    let route = "[[route]]\nmatch = \"POST /a\"\n";
    let generous = "rules.response_bytes_max = 5000000\n";

    assert_eq!(largest(""), 1 << 20);
    assert_eq!(largest("[rules]\nresponse_bytes_max = 1000"), 1000);
    assert_eq!(largest(&format!("{route}{generous}")), 5_000_000);
    // What passes through is not stored.
    assert_eq!(largest(&format!("{route}pass = true\n{generous}")), 1 << 20);
}

#[test]
fn the_breaker_is_set_within_bounds_only() {
    for (wrong, right) in [
        ("failures = 0", "from 1 to 5"),
        ("failures = 6", "from 1 to 5"),
        ("reset = \"0s\"", "from 1s to 60s"),
        ("reset = \"2m\"", "from 1s to 60s"),
        ("probe = \"0s\"", "from 100ms to 60s"),
        ("probe = \"1h\"", "from 100ms to 60s"),
    ] {
        let told = told(&format!("upstream = \"http://a\"\n[breaker]\n{wrong}\n"));
        assert!(told.contains(right), "{told}");
    }
    let file = file(
        "upstream = \"http://a\"\n[breaker]\nfailures = 3\nreset = \"10s\"\nprobe = \"500ms\"\n",
    );
    let config = load(Some(file.path()), [], &[]).unwrap();
    assert_eq!(config.breaker.failures, Some(3));
}
