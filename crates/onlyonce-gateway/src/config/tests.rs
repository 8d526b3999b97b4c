//! What is wrong with the settings is said with its place and the right word.

use std::io::Write as _;

use onlyonce_core::Reason;
use onlyonce_core::policy::{Duplicate, KeyNeed};

use super::*;
use crate::settings::Settings;

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
        ("ttl = \"soon\"", "like \"30s\""),
        ("listen = \"8080\"", "write it like \"127.0.0.1:8080\""),
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
        ("[limits]\nconnections = 0", "from 1 to 1000000"),
        (
            "[[route]]\nmatch = \"POST /a\"\npass = \"yes\"",
            "write true or false",
        ),
        ("admin_hosts = [\"a:1\"]", "write only the host, `a`"),
        (
            "[identity]\nattempt_header = \"Content-Length\"",
            "another header, like idempotency-key",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nupstream_key_in = \"idempotency-key\"",
            "write header:idempotency-key or body:request_id",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nupstream_keys = true\npass = true",
            "remove `pass`",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nmode = \"observe\"\npass = true",
            "remove `pass` or `mode`",
        ),
        ("mode = \"observ\"", "did you mean `observe`?"),
        (
            "[[route]]\nmatch = \"POST /a\"\nupstream_keys = true\nrules.on_lapse = \"hold\"",
            "remove one of the two",
        ),
        (
            "[identity]\nheaders = false\n[[route]]\nmatch = \"POST /a\"\nupstream_keys = true",
            "give `upstream_key_in`",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nreconcile = \"POST /a/{operation}\"",
            "write it like GET /charges/{operation}",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nreconcile = \"GET /a\"",
            "asks the same of every operation",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nreconcile = \"GET /../{operation}\"",
            "read differently by different servers",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nreconcile = \"GET /a/{id}\"",
            "needs {id} in the route's match",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nreconcile = { ask = \"GET /{key}\", authorization_file = \"/f\" }",
            "name {operation} in `ask`",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nreconcile = { ask = \"GET /{key}\", status = 404 }",
            "not a status from 200 to 299",
        ),
        (
            "identity = { headers = false }\n[[route]]\nmatch = \"POST /a\"\n\
             reconcile = { ask = \"GET /{operation}\", echo = true }",
            "remove `headers = false`",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nreconcile = { ask = \"GET /{key}\", anser = \"/a\" }",
            "did you mean `answer`?",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nreconcile = { ask = \"GET /{body:id}\", background = \"1m\" }",
            "a record keeps no `{body:/id}`: name the operation by {operation} alone",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nreconcile = { ask = \"GET /{operation}\", background = \"1ms\" }",
            "1s",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\noperation = \"two words\"",
            "letters, digits, `_`, `.` and `-`, like submit",
        ),
    ] {
        let told = told(text);
        assert!(told.contains(right), "{text}: {told}");
    }
}

#[test]
fn contracts_that_do_not_hold_are_told_by_the_line_that_is_wrong() {
    for (text, line, right) in [
        ("profile = \"strype\"", 2, "did you mean `stripe`?"),
        (
            "profile = \"shop\"",
            2,
            "[profiles.shop], or a file, as in profile = \"./shop.toml\"",
        ),
        (
            "profile = \"./missing.toml\"",
            2,
            "./missing.toml: cannot be read",
        ),
        ("[rules]\nmethods = [\"post\"]", 3, "write it like POST"),
        (
            "[rules]\nkey = [\"GET\"]",
            3,
            "GET is not among the covered `methods`",
        ),
        ("[rules]\nkey_charset = \"ascii\"", 3, "`ascii`"),
        (
            "[rules.refusals]\nno-key = { status = 400 }",
            3,
            "missing-key",
        ),
        (
            "[rules.refusals]\nmismatch = { status = 302 }",
            3,
            "from 400 to 599",
        ),
        ("[rules.stored]\nbelow = 100", 3, "too small"),
        (
            "[rules.fingerprint]\nheaders = [\"a b\"]",
            3,
            "is not a header name",
        ),
        ("[rules]\nbase = \"stripe\"", 2, "are for a profile"),
        (
            "[profiles.stripe]\nttl = \"1h\"",
            2,
            "there is a preset of this name",
        ),
        ("[profiles.a]\nwait = \"soon\"", 3, "not a length of time"),
        (
            "profile = \"a\"\n[profiles.a]\nbase = \"b\"\n[profiles.b]\nbase = \"a\"",
            2,
            "is its own base",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nrules.key = [\"GET\"]",
            4,
            "GET is not among",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nprofile = \"strype\"",
            4,
            "did you mean `stripe`?",
        ),
    ] {
        let told = told(&format!("upstream = \"http://a\"\n{text}\n"));

        assert!(
            told.starts_with(&format!("FILE:{line}: ")),
            "{text}: {told}"
        );
        assert!(told.contains(right), "{text}: {told}");
    }
}

#[test]
fn a_contract_is_its_profile_then_the_general_rules_then_the_route_s() {
    let config = read(
        "FILE",
        "upstream = \"http://a\"\nprofile = \"shop\"\nttl = \"2h\"\n\
         [profiles.shop]\nbase = \"shops\"\nwait = \"1s\"\nexecution_max = \"1s\"\n\
         [profiles.shops]\nbase = \"stripe\"\nwait = \"9s\"\nlease = \"9s\"\n\
         [rules]\nexecution_max = \"2s\"\n\
         [[route]]\nmatch = \"POST /a\"\nrules.execution_max = \"3s\"\nttl = \"3h\"\n\
         [[route]]\nmatch = \"POST /b\"\nprofile = \"ietf\"\nrules.methods = [\"GET\"]\n",
    )
    .unwrap();
    let seconds = |route: Option<usize>| {
        let policy = config.policy(route.map(|it| &config.route[it])).unwrap();
        let spans = [
            policy.duplicate.patience(),
            policy.lease_for,
            policy.execution_max,
        ];
        (
            spans.map(|it| it.as_secs()),
            policy.keep_for.as_secs() / 3600,
        )
    };

    assert_eq!(seconds(None), ([1, 9, 2], 2));
    assert_eq!(seconds(Some(0)), ([1, 9, 3], 3));
    assert_eq!(seconds(Some(1)), ([0, 30, 2], 2));
    let policy = config.policy(Some(&config.route[1])).unwrap();
    assert!(policy.http.methods.need(&http::Method::GET).is_some());
    assert!(policy.http.methods.need(&http::Method::POST).is_none());
}

#[test]
fn the_worked_example_of_the_page_is_what_d4_asks_for() {
    let config = read("FILE", docs::EXAMPLE).unwrap();

    let policy = config.policy(None).unwrap();

    let need = |method| policy.http.methods.need(&method);
    for method in [
        http::Method::POST,
        http::Method::PUT,
        http::Method::PATCH,
        http::Method::DELETE,
    ] {
        assert_eq!(need(method), Some(KeyNeed::Required));
    }
    assert_eq!(need(http::Method::GET), None);
    assert_eq!(policy.keep_for.as_secs(), 86_400);
    assert_eq!(policy.duplicate, Duplicate::Refuse);
    assert_eq!(policy.execution_max.as_secs(), 30);
    assert_eq!(policy.limits.request_bytes_max, 1_048_576);
    let status = |reason| policy.http.refusals.row(reason).status;
    assert_eq!(status(Reason::InProgress), 202);
    assert_eq!(
        (status(Reason::Mismatch), status(Reason::BadKey)),
        (409, 422)
    );
    assert!(
        [200, 302, 404, 429, 500, 503]
            .iter()
            .all(|it| policy.stored.stores(*it))
    );
    assert_eq!(policy.fingerprint.headers, ["x-tenant"]);
    assert_eq!(
        policy.ttl.unwrap().parse(b"9999999").unwrap().as_secs(),
        7 * 86_400
    );
    assert!(markdown().contains(docs::EXAMPLE));
}

/// The first block of the page, too.
#[test]
fn every_block_of_the_page_is_a_file_that_can_be_used() {
    let page = markdown();
    let blocks: Vec<&str> = page.split("```toml\n").skip(1).collect();

    for block in &blocks {
        read("FILE", block.split("```").next().unwrap()).unwrap();
    }
    assert_eq!(blocks.len(), 2);
}

#[test]
fn a_profile_may_be_a_file() {
    let own = file("base = \"stripe\"\nttl = \"7d\"\n");
    let path = own.path().with_extension("toml");
    std::fs::copy(own.path(), &path).unwrap();
    let text = format!(
        "upstream = \"http://a\"\nprofile = \"{}\"\n",
        path.display()
    );
    let config = read("FILE", &text).unwrap();

    let policy = config.policy(None).unwrap();
    std::fs::write(&path, "\nttl = \"soon\"\n").unwrap();
    let wrong = told(&text);
    std::fs::remove_file(&path).unwrap();

    assert_eq!(policy.keep_for.as_secs(), 7 * 24 * 60 * 60);
    assert!(wrong.starts_with("FILE:2: "), "{wrong}");
    assert!(
        wrong.contains("line 2: `soon` is not a length of time"),
        "{wrong}"
    );
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
        ("store = \"rediss+x://a\"", "did you mean rediss:?"),
        ("store = \"./data\"", "it has no scheme"),
        (
            "[[route]]\nmatch = \"POST /a/{b}\"\n[[route]]\nmatch = \"POST /a/{c}\"",
            "never reached: route 1",
        ),
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

/// Every length of time, size and count, with a value below its bounds and one above them.
const OUT_OF_BOUNDS: [(&str, &str, &str); 35] = [
    ("", "ttl", "\"0s\" \"4000d\""),
    ("", "drain", "\"2d\""),
    ("[rules]", "lease", "\"0s\" \"1ms\" \"2d\""),
    ("[rules]", "execution_max", "\"0s\" \"2d\""),
    ("[rules]", "wait", "\"2d\""),
    ("[rules]", "waiters_max", "-1 1000001"),
    ("[rules]", "local_waiters_max", "-1 1000001"),
    ("[rules]", "request_bytes_max", "0 1073741825"),
    ("[rules]", "response_bytes_max", "0 1073741825"),
    ("[log]", "sample_info", "0 1000001"),
    ("[log]", "sample_debug", "0 1000001"),
    ("[audit]\npath = \"a\"", "keep", "\"0s\" \"4000d\""),
    ("[audit]\npath = \"a\"", "file_bytes_max", "0 1099511627777"),
    ("[limits]", "connections", "0 1000001"),
    ("[limits]", "header_bytes", "0 16777217"),
    ("[limits]", "streams", "0 10001"),
    ("[limits]", "running", "0 1000001"),
    ("[limits]", "buffered_bytes", "0 1099511627777"),
    ("[limits]", "bad_requests_a_minute", "0 1000001"),
    ("[limits]", "keys_a_caller", "0 1000000000001"),
    ("[limits]", "bytes_a_caller", "0 1125899906842625"),
    ("[breaker]", "failures", "0 6"),
    ("[breaker]", "reset", "\"0s\" \"2m\""),
    ("[breaker]", "probe", "\"0s\" \"2m\""),
    ("[timeouts]", "connect", "\"0s\" \"2d\""),
    ("[timeouts]", "headers", "\"0s\" \"2d\""),
    ("[timeouts]", "body", "\"0s\" \"2d\""),
    ("[timeouts]", "body_whole", "\"0s\" \"2d\""),
    ("[timeouts]", "linger", "\"2d\""),
    ("[timeouts]", "write", "\"0s\" \"2d\""),
    ("[timeouts]", "response", "\"0s\" \"2d\""),
    ("[timeouts]", "idle", "\"0s\" \"2d\""),
    ("[timeouts]", "websocket", "\"0s\" \"2d\""),
    ("[[route]]\nmatch = \"POST /a\"", "ttl", "\"0s\""),
    ("[[route]]\nmatch = \"POST /a\"", "rules.lease", "\"0s\""),
];

#[test]
fn nonsense_is_refused_for_every_length_of_time_size_and_count() {
    for (table, name, values) in OUT_OF_BOUNDS {
        for value in values.split(' ') {
            let text = format!("upstream = \"http://a\"\n{table}\n{name} = {value}\n");
            let line = text.lines().count();

            let told = told(&text);

            let short = name.rsplit('.').next().unwrap();
            assert!(
                told.starts_with(&format!("FILE:{line}: {short}: ")),
                "{told}"
            );
            assert!(told.contains(" from "), "{told}");
            assert!(told.contains(" to "), "{told}");
            assert!(told.contains(", like "), "{told}");
        }
    }
}

/// A setting that is added without bounds is a number or a length of time without them.
#[test]
fn every_number_and_length_of_time_of_the_reference_has_bounds() {
    for line in markdown().lines().filter(|line| line.starts_with("| `")) {
        let value = line.split(" | ").nth(1).unwrap();

        assert!(
            !matches!(
                value,
                "number" | "integer" | "duration" | "uint" | "uint32" | "uint64"
            ),
            "{line}"
        );
    }
}

#[test]
fn a_length_of_time_without_a_unit_is_told_what_it_would_be_with_one() {
    for text in ["ttl = 86400", "ttl = \"86400\""] {
        let told = told(&format!("upstream = \"http://a\"\n{text}"));

        assert!(
            told.starts_with("FILE:2: ttl: `86400` has no unit"),
            "{told}"
        );
        assert!(told.contains("86400 seconds are \"86400s\""), "{told}");
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once_and_by_line() {
    let told = told(
        "upstream = \"http://user:s3cret@a\"\n\
         ttl = 86400\n\
         store = \"rediss+x://u:s3cret@b\"\n\
         scope = [\"caller\", \"user\"]\n\
         [rules]\n\
         lease = \"0s\"\n\
         waiters = 5\n\
         [limits]\n\
         streams = \"many\"\n\
         [[route]]\n\
         match = \"POST /a\"\n\
         scope = [\"jwt:sub\"]\n\
         [[route]]\n\
         profile = \"stripe\"\n\
         [[route]]\n\
         match = \"POST /a\"\n\
         pass = 1\n",
    );

    let told: Vec<&str> = told.lines().collect();
    let wanted = [
        (1, "upstream `…@a`"),
        (2, "`86400` has no unit"),
        (3, "no store has URLs"),
        (4, "`user` is not a part of a scope"),
        (6, "`0s` is too short"),
        (7, "did you mean `waiters_max`?"),
        (9, "a whole number from 1 to 10000, like 100"),
        (12, "add [jwt]"),
        (13, "`match` must be given, as in match = \"POST /orders\""),
        (16, "never reached"),
        (17, "write true or false"),
    ];
    assert_eq!(told.len(), wanted.len(), "{told:#?}");
    for (line, why) in wanted {
        let starts = format!("FILE:{line}: ");
        let is_told = |it: &&str| it.starts_with(&starts) && it.contains(why);
        assert!(told.iter().any(is_told), "{line} {why}: {told:#?}");
    }
    assert!(!told.concat().contains("s3cret"), "{told:#?}");
}

#[test]
fn nothing_is_said_of_what_follows_from_a_mistake_that_is_told() {
    for text in [
        "upstream = 5",
        "upstream = \"http://a\"\nadmin = \"10.0.0.1:1\"\nadmin_token_file = 5",
        "upstream = \"http://a\"\nscope = [\"jwt:sub\"]\n[jwt]\nkey = 5",
        "upstream = \"http://a\"\nformer_secret_file = \"store\"\nsecret_file = 5",
        "[[route]]\nmatch = \"POST /a\"\nupstream = 5",
    ] {
        let told = told(text);

        // A table without the one setting it needs is a second mistake of its own.
        let most = if text.contains("[jwt]") { 2 } else { 1 };
        assert!(told.lines().count() <= most, "{text}: {told}");
    }
}

#[test]
fn files_that_cannot_be_used_are_found_without_starting_anything() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(folder.path().join("short"), "x").unwrap();
    std::fs::write(folder.path().join("text"), "no certificate").unwrap();
    let file = file(&format!(
        "upstream = \"http://a\"\n\
         admin_token_file = \"{}\"\n\
         secret_file = \"{}\"\n\
         former_secret_file = \"{}\"\n\
         [tls]\n\
         cert = \"{}\"\n\
         key = \"{}\"\n\
         [jwt]\n\
         algorithm = \"RS256\"\n\
         key_file = \"{}\"\n\
         [audit]\n\
         path = \"{}\"\n",
        path("short"),
        path("missing"),
        path("short"),
        path("text"),
        path("missing"),
        path("text"),
        path(""),
    ));

    load(Some(file.path()), [], &[]).unwrap();
    let told = Settings::load(Some(file.path()), [], &[]).unwrap_err();

    let name = file.path().display().to_string();
    let told: Vec<String> = told
        .problems()
        .iter()
        .map(|it| it.to_string().replace(&name, "FILE"))
        .collect();
    let wanted = [
        (2, "too short for a token"),
        (3, "cannot be read"),
        (4, "64 hex digits"),
        (6, "-----BEGIN CERTIFICATE-----"),
        (7, "cannot be read"),
        (10, "text"),
        (12, "is a folder"),
    ];
    assert_eq!(told.len(), wanted.len(), "{told:#?}");
    for ((line, why), told) in wanted.into_iter().zip(&told) {
        assert!(told.starts_with(&format!("FILE:{line}: ")), "{told}");
        assert!(told.contains(why), "{told}");
    }
    assert!(!folder.path().join("missing").exists());
}

#[test]
fn what_a_flag_gave_is_told_by_the_flag() {
    let flags = [
        ("upstream", "http://a".into()),
        ("store", "sqlight:a".into()),
        ("ttl", "0s".into()),
    ];

    let told = load(None, [], &flags).unwrap_err().to_string();

    assert!(told.contains("--store: "), "{told}");
    assert!(told.contains("did you mean sqlite:?"), "{told}");
    assert!(told.contains("--ttl: `0s` is too short"), "{told}");
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
    let key = file("a secret of the tokens");
    let file = file(&format!(
        "upstream = \"http://a\"\nscope = [\"jwt:sub\"]\n\
         [jwt]\nalgorithm = \"HS256\"\nkey_file = {:?}\n\
         [[route]]\nmatch = \"POST /a\"\nscope = [\"caller\"]\n\
         [[route]]\nmatch = \"POST /b\"\nscope = [\"header:x-user\"]\n\
         [[route]]\nmatch = \"POST /c\"\nscope = [\"trusted-header:x-user\"]\n\
         [[route]]\nmatch = \"POST /d\"\npass = true\nscope = [\"caller\"]\n",
        key.path()
    ));
    let settings = Settings::load(Some(file.path()), [], &[]).unwrap();

    let told = settings.warnings()[0].text.clone();

    assert!(told.ends_with("route POST /a, route POST /b"), "{told}");
    let plain = Settings::load(None, [], &[("upstream", "http://a".into())]).unwrap();
    assert!(plain.warnings()[0].text.contains("refreshed opaque token"));
}

#[test]
fn a_route_is_observed_by_its_own_mode_or_else_by_the_general_one() {
    let file = file(
        "upstream = \"http://a\"\n\
         [[route]]\nmatch = \"POST /a\"\nmode = \"observe\"\n\
         [[route]]\nmatch = \"POST /b\"\nmode = \"enforce\"\n\
         [[route]]\nmatch = \"POST /c\"\n\
         [[route]]\nmatch = \"POST /d\"\npass = true\n",
    );
    let variable = ("ONLYONCE_MODE".to_owned(), "observe".to_owned());

    let enforcing = Settings::load(Some(file.path()), [], &[]).unwrap();
    let observing = Settings::load(Some(file.path()), [variable], &[]).unwrap();
    let flag = Settings::load(
        None,
        [],
        &[("upstream", "http://a".into()), ("mode", "observe".into())],
    );

    assert_eq!(enforcing.observed(), ["POST /a"]);
    assert_eq!(observing.observed(), ["POST /a", "POST /c", "*"]);
    assert!(observing.enforces());
    assert!(!flag.unwrap().enforces());
    let told = observing.warnings();
    let told = told.iter().find(|it| it.setting == "mode").unwrap();
    assert!(
        told.text
            .contains("route POST /c, requests that no route matches"),
        "{told}"
    );
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
        let config = read("FILE", &text).unwrap();
        Settings::resolve(&config).unwrap().limits.response_bytes
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
        ("reset = \"0s\"", "from 1s to 1m"),
        ("reset = \"2m\"", "from 1s to 1m"),
        ("probe = \"0s\"", "from 100ms to 1m"),
        ("probe = \"1h\"", "from 100ms to 1m"),
    ] {
        let told = told(&format!("upstream = \"http://a\"\n[breaker]\n{wrong}\n"));
        assert!(told.contains(right), "{told}");
    }
    let file = file(
        "upstream = \"http://a\"\n[breaker]\nfailures = 3\nreset = \"10s\"\nprobe = \"500ms\"\n",
    );
    let config = load(Some(file.path()), [], &[]).unwrap();
    assert_eq!(config.breaker.failures.unwrap().get(), 3);
}
