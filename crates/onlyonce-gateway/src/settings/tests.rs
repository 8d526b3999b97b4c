//! Nothing gets to a gateway but what holds; and one table decides which route a request has.

use http::Method;

use super::*;

fn config(text: &str) -> Config {
    toml::from_str(&format!("upstream = \"http://127.0.0.1:3000\"\n{text}")).unwrap()
}

fn refused(text: &str) -> Vec<String> {
    let error = Settings::resolve(&config(text)).unwrap_err();
    error.problems().iter().map(ToString::to_string).collect()
}

#[test]
fn an_embedder_cannot_open_the_admin_address_without_a_token() {
    let mut embedded = Config {
        upstream: Some("http://127.0.0.1:3000".to_owned()),
        ..Config::default()
    };
    Settings::resolve(&embedded).unwrap();

    embedded.admin = Some("0.0.0.0:9090".parse().unwrap());
    let error = Settings::resolve(&embedded).unwrap_err().to_string();

    assert!(error.starts_with("admin: "), "{error}");
    assert!(error.contains("give `admin_token_file`"), "{error}");
}

#[test]
fn an_embedder_cannot_ask_for_a_claim_that_nobody_verifies() {
    for (text, place) in [
        ("scope = [\"jwt:sub\"]", "scope: "),
        (
            "[[route]]\nmatch = \"POST /a\"\nscope = [\"jwt:sub\"]",
            "route.0.scope: ",
        ),
    ] {
        let told = refused(text);

        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with(place), "{told:?}");
        assert!(told[0].contains("add [jwt]"), "{told:?}");
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once_files_too() {
    let told = refused(
        "admin = \"0.0.0.0:9090\"\nstore = \"nothing:\"\nsecret_file = \"/nowhere/secret\"\n\
         [limits]\naddress_header = \"no header\"\nbuffered_bytes = 1024\n\
         [jwt]\nkey_file = \"/nowhere/keys.json\"\n\
         [[route]]\nmatch = \"* /mcp\"\nprotocol = \"mcp\"\nmcp.tools = [\"[\"]\n\
         [[route]]\nmatch = \"POST /a\"\nupstream = \"nowhere\"\nscope = [\"path:id\"]\n",
    );

    for place in [
        "admin: ",
        "store: ",
        "secret_file: ",
        "limits.address_header: ",
        "limits.buffered_bytes: ",
        "jwt.key_file: ",
        "route.0.mcp.tools: ",
        "route.1.upstream: ",
        "route.1.scope: ",
    ] {
        let found = told.iter().filter(|it| it.starts_with(place));
        assert_eq!(found.count(), 1, "{place} in {told:#?}");
    }
    assert_eq!(told.len(), 9, "{told:#?}");
}

#[test]
fn what_only_a_start_can_change_is_named() {
    let settings = |more: &str| Settings::resolve(&config(more)).unwrap();
    let running = settings("store = \"memory:\"");

    for (changed, named) in [
        ("store = \"memory:\"", None),
        ("store = \"memory:\"\ntimeouts.connect = \"1s\"", None),
        ("store = \"memory:\"\nnamespace = \"a\"", Some("namespace")),
        (
            "store = \"memory:\"\nlimits.streams = 5",
            Some("limits.streams"),
        ),
        (
            "store = \"memory:\"\nrules.request_bytes_max = 1000000000",
            Some("limits.buffered_bytes"),
        ),
    ] {
        assert_eq!(
            running.only_at_start(&settings(changed)),
            named,
            "{changed}"
        );
    }
}

#[test]
fn a_route_that_passes_everything_through_needs_no_contract() {
    let route = "[[route]]\nmatch = \"GET /free\"\npass = true\nprofile = \"strype\"";

    let settings = Settings::resolve(&config(route)).unwrap();

    assert!(settings.routes.all[0].passes());
}

/// Where neither a profile nor a rule says more.
#[test]
fn a_tool_call_is_held_unless_its_contract_says_otherwise() {
    let route = "[[route]]\nmatch = \"* /mcp\"\nprotocol = \"mcp\"\n";
    for (text, lapse, hours) in [
        (route.to_owned(), onlyonce_core::OnLapse::Hold, 1),
        (
            format!("{route}rules.on_lapse = \"rerun\"\nrules.execution_max = \"2h\""),
            onlyonce_core::OnLapse::Rerun,
            2,
        ),
    ] {
        let settings = Settings::resolve(&config(&text)).unwrap();

        let policy = &settings.routes.all[0].policy;
        assert_eq!(policy.on_lapse, lapse);
        assert_eq!(policy.execution_max.as_secs(), hours * 3600);
    }
}

#[test]
fn the_first_route_that_matches_decides_and_gives_its_parameters() {
    let routes = [
        "POST /intakes/{intake}/submit",
        "* /intakes/{*rest}",
        "POST /{a}/{b}",
    ];
    let routes = routes.map(|route| route.parse().unwrap());
    let table = RouteTable::of(&routes).unwrap();
    let found = |method: Method, path: &str| {
        let found = table.find(&method, path);
        let number = found.as_ref().map(|found| found.number);
        assert_eq!(table.number_of(&method, path), number);
        found.map(|it| (it.number, it.params))
    };

    let (number, params) = found(Method::POST, "/intakes/a%20b/submit").unwrap();
    assert_eq!((number, params.get("intake")), (0, Some("a%20b")));
    let (number, params) = found(Method::GET, "/intakes/a/submit").unwrap();
    assert_eq!((number, params.get("rest")), (1, Some("a/submit")));
    assert_eq!(params.get("intake"), None);
    assert_eq!(found(Method::POST, "/x/y").unwrap().0, 2);
    assert!(found(Method::GET, "/x/y").is_none());
    assert!(table.is_taken_before(2, "/intakes/a"));
    assert!(!table.is_taken_before(1, "/intakes/a/submit"));
}
