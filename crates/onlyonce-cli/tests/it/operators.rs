//! What an operator types: `keys`, `store`, `config`, `profiles`, completions and manual pages,
//! over a gateway's admin API and straight on a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onlyonce_core::Engine;
use onlyonce_core::engine::FormerSecret;
use onlyonce_core::operate::{InDoubt, Resolved, in_doubt};
use onlyonce_gateway::{Gateway, Settings, config};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::program::{on_a_terminal, run, run_with};
use crate::support::{ours, serve};

pub(crate) const KEY: &str = "550e8400-e29b-41d4-a716-446655440000";

/// A gateway, and where operators reach it.
async fn gateway() -> (Gateway, String) {
    gateway_rotating([None, None]).await
}

/// One that rotates its slot secret.
async fn rotating_gateway(folder: &Path) -> (Gateway, String) {
    let file = |name: &str, secret: &str| {
        let path = folder.join(name);
        std::fs::write(&path, secret.repeat(32)).unwrap();
        Some(path)
    };
    gateway_rotating([file("old", "1b"), file("new", "2a")]).await
}

async fn gateway_rotating([former, secret]: [Option<PathBuf>; 2]) -> (Gateway, String) {
    let upstream = serve(ours::bare()).await;
    let upstream = upstream.trim_end_matches("/orders");
    let flags = [
        ("listen", "127.0.0.1:0".to_owned()),
        ("admin", "127.0.0.1:0".to_owned()),
        ("store", "memory:".to_owned()),
        ("upstream", upstream.to_owned()),
    ];
    let mut config = config::load(None, [], &flags).unwrap();
    (config.former_secret_file, config.secret_file) = (former, secret);
    let settings = Settings::resolve(&config).unwrap();
    let gateway = Gateway::start(&settings).await.unwrap();
    let admin = format!("http://{}", gateway.admin_address());
    (gateway, admin)
}

async fn order(gateway: &Gateway, key: &str, caller: Option<&str>) -> u16 {
    let url = format!("http://{}/orders", gateway.address());
    let mut request = reqwest::Client::new()
        .post(url)
        .header("idempotency-key", key);
    if let Some(caller) = caller {
        request = request.bearer_auth(caller);
    }
    request.send().await.unwrap().status().as_u16()
}

/// A file store with one finished job; its URL.
pub(crate) async fn folder(at: &Path) -> String {
    let url = format!("file:{}", at.join("records").display());
    let store = onlyonce_stores::open(&url).await.unwrap();
    let engine = Engine::open(Arc::clone(&store)).await.unwrap();
    pay(&engine).await;
    engine.shutdown(std::time::Duration::from_secs(10)).await;
    url
}

async fn pay(engine: &Engine) {
    let work = async || Ok::<_, String>("paid".to_owned());
    let paid = engine.job("pay").run(KEY, "7 EUR", work).await;
    assert_eq!(paid.unwrap().value, "paid");
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[tokio::test]
async fn a_record_is_found_by_its_key_and_by_the_start_of_its_slot() {
    let (gateway, admin) = gateway().await;
    assert_eq!(order(&gateway, KEY, None).await, 201);
    assert_eq!(
        order(&gateway, "another-key-of-another-order", None).await,
        201
    );

    let (code, out, err) = run(&["keys", "show", KEY, "--admin", &admin, "--json"]).await;
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let by_key = json(&out);
    let slot = by_key["slot"].as_str().unwrap();
    let (_, by_slot, _) = run(&["keys", "show", slot, "--admin", &admin, "--json"]).await;
    let (_, by_start, _) = run(&["keys", "show", &slot[..8], "--admin", &admin, "--json"]).await;
    let typed = format!("{KEY}\n");
    let line = ["keys", "show", "-", "--admin", &admin, "--json"];
    let (_, by_stdin, _) = run_with(&line, &typed).await;

    assert_eq!(by_key["state"], "done");
    for found in [by_slot, by_start, by_stdin] {
        assert_eq!(json(&found)["slot"], by_key["slot"]);
    }
    assert!(!out.contains(KEY), "a key is a secret: {out}");
}

#[tokio::test]
async fn a_name_that_a_terminal_would_obey_is_written_out() {
    let place = TempDir::new().unwrap();
    let url = format!("file:{}", place.path().join("records").display());
    let store = onlyonce_stores::open(&url).await.unwrap();
    let engine = Engine::open(Arc::clone(&store)).await.unwrap();
    let name = "pay\u{1b}[2J\u{9b}31m\u{202e}";
    let work = async || Ok::<_, String>(7);
    engine.job(name).run(KEY, "7 EUR", work).await.unwrap();
    engine.shutdown(std::time::Duration::from_secs(10)).await;
    drop((engine, store));

    for action in [&["list"][..], &["show", KEY]] {
        let line = [&["keys"], action, &["--store", &url]].concat();
        let (code, out, err) = run(&line).await;

        assert_eq!((code, err.as_str()), (0, ""), "{action:?}");
        assert!(
            out.contains(r"pay\u{1b}[2J\u{9b}31m\u{202e}"),
            "{action:?}: {out:?}"
        );
        let obeyed = ['\u{1b}', '\u{9b}', '\u{202e}'];
        assert!(!out.contains(obeyed), "{action:?}: {out:?}");
    }
}

#[tokio::test]
async fn a_key_that_two_callers_used_is_asked_back() {
    let (gateway, admin) = gateway().await;
    for caller in ["alice", "bob"] {
        assert_eq!(order(&gateway, KEY, Some(caller)).await, 201);
    }

    let (code, _, err) = run(&["keys", "forget", KEY, "--admin", &admin]).await;

    assert_eq!(code, 2);
    assert!(err.contains("2 records have this key"), "{err}");
    assert_eq!(err.matches("  /orders by").count(), 2, "{err}");
    let (_, listed, _) = run(&["keys", "list", "--admin", &admin, "--json"]).await;
    assert_eq!(
        json(&listed).as_array().unwrap().len(),
        2,
        "nothing is forgotten"
    );
}

#[tokio::test]
async fn a_forgotten_key_runs_anew_and_is_then_absent() {
    let (gateway, admin) = gateway().await;
    order(&gateway, KEY, None).await;

    let (forgotten, _, _) = run(&["keys", "forget", KEY, "--admin", &admin]).await;
    let (again, _, err) = run(&["keys", "forget", KEY, "--admin", &admin]).await;

    assert_eq!((forgotten, again), (0, 1), "{err}");
    assert!(err.contains("no live record has this key or slot"), "{err}");
}

async fn records(admin: &str) -> usize {
    let (_, listed, _) = run(&["keys", "list", "--admin", admin, "--json"]).await;
    json(&listed).as_array().unwrap().len()
}

#[tokio::test]
async fn during_a_rotation_a_key_is_forgotten_under_both_secrets_at_once() {
    let folder = TempDir::new().unwrap();
    let (gateway, admin) = rotating_gateway(folder.path()).await;
    order(&gateway, KEY, None).await;
    assert_eq!(records(&admin).await, 2);

    let (forgotten, _, err) = run(&["keys", "forget", KEY, "--admin", &admin]).await;

    assert_eq!(forgotten, 0, "{err}");
    assert_eq!(records(&admin).await, 0);
}

#[tokio::test]
async fn during_a_rotation_a_key_that_two_callers_used_is_asked_back() {
    let folder = TempDir::new().unwrap();
    let (gateway, admin) = rotating_gateway(folder.path()).await;
    for caller in ["alice", "bob"] {
        order(&gateway, KEY, Some(caller)).await;
    }

    let (code, _, err) = run(&["keys", "forget", KEY, "--admin", &admin]).await;

    assert_eq!(code, 2);
    assert!(err.contains("4 records have this key"), "{err}");
    assert_eq!(records(&admin).await, 4, "nothing is forgotten");
}

#[tokio::test]
async fn the_body_of_an_answer_is_shown_on_request_only() {
    let (gateway, admin) = gateway().await;
    order(&gateway, KEY, None).await;

    let (_, brief, _) = run(&["keys", "show", KEY, "--admin", &admin]).await;
    let (_, whole, _) = run(&["keys", "show", KEY, "--admin", &admin, "--body"]).await;

    assert!(!brief.contains("\"order\":1"), "{brief}");
    assert!(whole.contains("\"order\":1"), "{whole}");
    assert!(brief.contains("state       done"), "{brief}");
    assert!(brief.contains("operation   /orders"), "{brief}");
    assert!(brief.contains("location: /orders/1"), "{brief}");
}

#[tokio::test]
async fn a_list_is_a_table_for_people_and_goes_on_where_it_ended() {
    let (gateway, admin) = gateway().await;
    for n in 0..3 {
        order(&gateway, &format!("key-number-{n}-of-three-keys"), None).await;
    }

    let line = ["keys", "list", "--admin", &admin, "--limit", "2"];
    let (code, first, more) = run(&line).await;
    let after = more.trim().rsplit(' ').next().unwrap();
    let line = [&line[..], &["--after", after]].concat();
    let (_, rest, nothing_more) = run(&line).await;

    assert_eq!(code, 0, "{more}");
    assert!(first.starts_with("SLOT"), "{first}");
    assert_eq!((first.lines().count(), rest.lines().count()), (3, 2));
    assert!(more.starts_with("there may be more: --after "), "{more}");
    assert_eq!(nothing_more, "");
}

#[tokio::test]
async fn a_list_is_narrowed_by_state_operation_and_age() {
    let (gateway, admin) = gateway().await;
    order(&gateway, KEY, None).await;

    for (filter, count) in [
        (["--state", "done"], 1),
        (["--state", "unknown"], 0),
        (["--operation", "/orders"], 1),
        (["--operation", "/other"], 0),
        (["--younger-than", "1h"], 1),
        (["--older-than", "1h"], 0),
    ] {
        let line = [&["keys", "list", "--admin", &admin, "--json"], &filter[..]].concat();
        let (code, out, err) = run(&line).await;
        assert_eq!(code, 0, "{err}");
        assert_eq!(json(&out).as_array().unwrap().len(), count, "{filter:?}");
    }
}

#[tokio::test]
async fn a_list_is_in_the_order_of_time_or_of_slots_and_begins_where_it_is_said() {
    let (gateway, admin) = gateway().await;
    for n in 0..4 {
        order(&gateway, &format!("key-number-{n}-of-four-keys"), None).await;
        // The order of time is told in milliseconds.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let list = async |more: &[&str]| -> Vec<(String, String)> {
        let line = [&["keys", "list", "--admin", &admin, "--json"], more].concat();
        let (code, out, err) = run(&line).await;
        assert_eq!(code, 0, "{err}");
        let text = |it: &Value, name: &str| it[name].as_str().unwrap().to_owned();
        let records = json(&out);
        let records = records.as_array().unwrap().iter();
        records
            .map(|it| (text(it, "created_at"), text(it, "slot")))
            .collect()
    };

    let usual = list(&[]).await;
    let newest = list(&["--sort", "newest"]).await;
    let by_slot = list(&["--sort", "slot"]).await;

    assert_eq!((usual.len(), &usual), (4, &newest));
    assert!(
        newest.is_sorted_by(|one, next| one.0 > next.0),
        "{newest:?}"
    );
    assert!(
        by_slot.is_sorted_by(|one, next| one.1 < next.1),
        "{by_slot:?}"
    );
    assert_eq!(list(&["--since", "1h"]).await, usual);
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_eq!(list(&["--since", "1s"]).await, []);
}

#[tokio::test]
async fn states_have_colours_on_a_terminal_only_and_not_if_somebody_wants_none() {
    let (gateway, admin) = gateway().await;
    assert_eq!(order(&gateway, KEY, None).await, 201);
    let line = ["keys", "list", "--admin", &admin];
    let shown = async |mut command: tokio::process::Command| {
        let output = command
            .output()
            .await
            .expect("`script` is in Debian's bsdutils");
        String::from_utf8(output.stdout).unwrap()
    };

    let coloured = shown(on_a_terminal(&line)).await;
    let mut plain = on_a_terminal(&line);
    plain.env("NO_COLOR", "1");
    let plain = shown(plain).await;
    let (_, piped, _) = run(&line).await;

    assert!(coloured.contains("\u{1b}[32mdone"), "{coloured:?}");
    for text in [plain, piped] {
        assert!(
            text.contains("done") && !text.contains('\u{1b}'),
            "{text:?}"
        );
    }
}

#[tokio::test]
async fn a_body_does_to_a_terminal_nothing_but_lines_and_goes_elsewhere_as_it_is() {
    let place = TempDir::new().unwrap();
    let url = format!("file:{}", place.path().join("records").display());
    let store = onlyonce_stores::open(&url).await.unwrap();
    let engine = Engine::open(Arc::clone(&store)).await.unwrap();
    const BODY: &str = "{\n\"note\": \"\u{1b}]0;owned\u{7}\u{1b}[2J\"\n}";
    let lost = async || Err::<u8, _>("lost".to_owned());
    let rules = onlyonce_core::Policy {
        on_lapse: onlyonce_core::OnLapse::Hold,
        ..engine.job("pay").rules().clone()
    };
    engine
        .job("pay")
        .policy(rules)
        .run(KEY, "7 EUR", lost)
        .await
        .unwrap_err();
    let operate = store.operate().unwrap();
    let found = in_doubt(operate, &InDoubt::default(), 10).await.unwrap();
    let (slot, _) = found[0];
    let answer = Arc::new(onlyonce_core::Response::new(http::StatusCode::OK, BODY));
    let keep = std::time::Duration::from_secs(600);
    let resolved = operate.resolve(&slot, &answer, keep).await.unwrap();
    assert!(matches!(resolved, Resolved::Stored), "{resolved:?}");
    engine.shutdown(std::time::Duration::from_secs(10)).await;
    drop((engine, store));
    let line = ["keys", "show", KEY, "--body", "--store", &url];

    let output = on_a_terminal(&line).output().await.unwrap();
    let terminal = String::from_utf8(output.stdout).unwrap();
    let (_, piped, _) = run(&line).await;

    assert!(
        terminal.contains(r"\u{1b}]0;owned\u{7}\u{1b}[2J"),
        "{terminal:?}"
    );
    assert!(!terminal.contains('\u{1b}'), "{terminal:?}");
    assert!(piped.contains(BODY), "{piped:?}");
}

#[tokio::test]
async fn a_store_is_looked_at_while_nobody_owns_it() {
    let place = TempDir::new().unwrap();
    let url = folder(place.path()).await;

    let (code, shown, err) = run(&["keys", "show", KEY, "--store", &url, "--body"]).await;
    let (_, stats, _) = run(&["store", "stats", "--store", &url, "--json"]).await;
    let (checked, states, said) = run(&["store", "check", "--store", &url]).await;
    let (swept, dropped, _) = run(&["store", "sweep", "--store", &url, "--json"]).await;

    assert_eq!(code, 0, "{err}");
    assert!(shown.contains("paid"), "{shown}");
    assert_eq!(json(&stats)["records"], 1);
    assert_eq!((checked, states.as_str()), (0, "done     1\n"), "{said}");
    assert!(said.contains("its 1 records can be read"), "{said}");
    assert_eq!((swept, json(&dropped)["swept"].as_u64()), (0, Some(0)));
}

#[tokio::test]
async fn a_check_names_what_is_missing_in_a_folder_and_what_can_be_done() {
    let place = TempDir::new().unwrap();
    let url = folder(place.path()).await;
    let records = place.path().join("records");
    for missing in ["agreed", "0000000001.log"] {
        std::fs::rename(records.join(missing), place.path().join(missing)).unwrap();
    }

    let (code, _, err) = run(&["store", "check", "--store", &url]).await;

    assert_eq!(code, 2, "{err}");
    for said in [
        "0000000001.log",
        "agreed",
        "are missing",
        "put back",
        "restore",
    ] {
        assert!(err.contains(said), "{err}");
    }
    for missing in ["agreed", "0000000001.log"] {
        std::fs::rename(place.path().join(missing), records.join(missing)).unwrap();
    }
    let (code, said, err) = run(&["store", "check", "--store", &url]).await;
    assert_eq!(code, 0, "{err}");
    assert!((said + &err).contains("its 1 records can be read"));
}

#[tokio::test]
async fn a_check_does_not_make_a_store_that_does_not_exist() {
    let place = TempDir::new().unwrap();
    let (folder, file) = (
        place.path().join("records"),
        place.path().join("records.db"),
    );
    let urls = [
        format!("file:{}", folder.display()),
        format!("file:{}?sealed=false", folder.display()),
        format!("sqlite:{}", file.display()),
    ];
    for url in urls {
        let (code, _, err) = run(&["store", "check", "--store", &url]).await;

        assert_eq!(code, 2, "{url}: {err}");
        assert!(!folder.exists() && !file.exists(), "{url}");
    }
}

#[tokio::test]
async fn looking_for_a_key_leaves_an_empty_store_without_a_secret() {
    let place = TempDir::new().unwrap();
    let url = format!("file:{}", place.path().join("records").display());
    drop(onlyonce_stores::open(&url).await.unwrap());

    let (code, _, err) = run(&["keys", "show", KEY, "--store", &url]).await;

    assert_eq!(code, 1, "{err}");
    let secret = onlyonce_core::SlotSecret::from_bytes([1; 32]);
    let store = onlyonce_stores::open(&url).await.unwrap();
    let engine = Engine::builder(store).secret(secret).open().await;
    assert!(
        engine.is_ok(),
        "a configured secret is still free to choose"
    );
}

#[tokio::test]
async fn a_configured_secret_is_needed_to_find_a_key_in_its_store() {
    let place = TempDir::new().unwrap();
    let url = format!("file:{}", place.path().join("records").display());
    let store = onlyonce_stores::open(&url).await.unwrap();
    let secret = onlyonce_core::SlotSecret::from_bytes([0xab; 32]);
    let engine = Engine::builder(Arc::clone(&store)).secret(secret).open();
    let engine = engine.await.unwrap();
    pay(&engine).await;
    engine.shutdown(std::time::Duration::from_secs(10)).await;
    drop((engine, store));
    let file = place.path().join("secret");
    std::fs::write(&file, "ab".repeat(32)).unwrap();

    let (without, _, err) = run(&["keys", "show", KEY, "--store", &url]).await;
    let file = file.to_str().unwrap();
    let line = ["keys", "show", KEY, "--store", &url, "--secret-file", file];
    let (with, out, _) = run(&line).await;

    assert_eq!((without, with), (2, 0), "{err}");
    assert!(err.contains("secret"), "{err}");
    assert!(out.contains("state       done"), "{out}");
}

/// A file store with one finished job while its secret is rotated, and the secrets in files beside
/// it; its URL.
async fn rotating_folder(at: &Path) -> String {
    let url = format!("file:{}", at.join("records").display());
    let secret = |name: &str, byte: u8| {
        std::fs::write(at.join(name), format!("{byte:02x}").repeat(32)).unwrap();
        onlyonce_core::SlotSecret::from_bytes([byte; 32])
    };
    let store = onlyonce_stores::open(&url).await.unwrap();
    let engine = Engine::builder(Arc::clone(&store))
        .secret(secret("new", 0xcd))
        .rotate_from(FormerSecret::Given(secret("old", 0xab)))
        .open()
        .await
        .unwrap();
    pay(&engine).await;
    engine.shutdown(std::time::Duration::from_secs(10)).await;
    url
}

#[tokio::test]
async fn looking_for_a_key_does_not_end_a_rotation() {
    let place = TempDir::new().unwrap();
    let url = rotating_folder(place.path()).await;
    let file = place.path().join("new");

    let file = file.to_str().unwrap();
    let line = ["keys", "show", KEY, "--store", &url, "--secret-file", file];
    let (code, out, err) = run(&line).await;

    assert_eq!(code, 0, "{err}");
    assert!(out.contains("state       done"), "{out}");
    let store = onlyonce_stores::open(&url).await.unwrap();
    let former = Engine::builder(store)
        .secret(onlyonce_core::SlotSecret::from_bytes([0xab; 32]))
        .open()
        .await;
    assert!(
        former.is_ok(),
        "processes with the former one may still start"
    );
}

#[tokio::test]
async fn in_a_store_whose_secret_is_rotated_a_key_is_forgotten_under_both() {
    let place = TempDir::new().unwrap();
    let url = rotating_folder(place.path()).await;
    let [old, new] = ["old", "new"].map(|name| place.path().join(name).display().to_string());

    let line = [
        &["keys", "forget", KEY, "--store", &url][..],
        &["--secret-file", &new, "--former-secret-file", &old],
    ];
    let (code, _, err) = run(&line.concat()).await;

    assert_eq!(code, 0, "{err}");
    let (_, left, _) = run(&["keys", "list", "--store", &url, "--json"]).await;
    assert_eq!(left.trim(), "[]");
}

#[tokio::test]
async fn what_cannot_be_meant_is_exit_2_and_says_why() {
    let nobody = "http://127.0.0.1:1";
    for (line, why) in [
        (
            &["keys", "list", "--admin", nobody][..],
            "no gateway answers at",
        ),
        (&["store", "check", "--store", "reddis://h"], "redis"),
        (&["keys", "list", "--state", "open"], "pending, lapsed"),
        (&["keys", "list", "--limit", "0"], "1..=1000"),
        (
            &["keys", "list", "--admin", nobody, "--after", "x"],
            "64 hex digits",
        ),
        (&["keys", "extend", "3fa9c01b", "soon"], "soon"),
        (&["keys", "show", "k", "--secret-file", "f"], "--store"),
    ] {
        let (code, out, err) = run(line).await;

        assert_eq!((code, out.as_str()), (2, ""), "{line:?}: {err}");
        assert!(err.contains(why), "{line:?}: {err}");
    }
}

#[tokio::test]
async fn settings_are_checked_by_line_with_the_nearest_right_word() {
    let place = TempDir::new().unwrap();
    let file = place.path().join("onlyonce.toml");
    std::fs::write(
        &file,
        "upstream = \"http://127.0.0.1:3000\"\nlisen = \"127.0.0.1:80\"\n",
    )
    .unwrap();
    let path = file.to_str().unwrap();

    let (wrong, _, err) = run(&["config", "check", path]).await;
    std::fs::write(&file, "upstream = \"http://127.0.0.1:3000\"\n").unwrap();
    let (right, _, said) = run(&["config", "check", path]).await;

    assert_eq!((wrong, right), (1, 0), "{err}{said}");
    assert!(err.contains("onlyonce.toml:2"), "{err}");
    assert!(err.contains("`listen`"), "{err}");
}

#[tokio::test]
async fn every_profile_is_told_to_people_and_to_programs() {
    let (_, table, _) = run(&["profiles"]).await;
    let (_, list, _) = run(&["profiles", "--json"]).await;

    let list = json(&list);
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), onlyonce_core::profile::all().len());
    for profile in list {
        let name = profile["name"].as_str().unwrap();
        assert!(table.contains(name), "{name} is not in\n{table}");
    }
}

#[tokio::test]
async fn a_profile_is_said_to_do_what_it_does() {
    let (_, list, _) = run(&["profiles", "--json"]).await;

    let list = json(&list);
    let told = |name: &str, what: &str| {
        let mut all = list.as_array().unwrap().iter();
        let profile = all.find(|it| it["name"] == name).unwrap();
        profile[what].as_str().unwrap().to_owned()
    };
    assert_eq!(told("broker", "other_payload"), "replayed");
    assert_eq!(told("broker", "missing_key"), "derived");
    assert_eq!(told("broker", "stored"), "200 to 299");
    assert_eq!(told("guardian", "other_payload"), "replayed");
    assert_eq!(told("guardian", "duplicate"), "409 at once");
    assert_eq!(told("square", "key"), "body /idempotency_key");
    assert_eq!(told("paypal", "key"), "paypal-request-id");
    assert_eq!(told("stripe-v2", "keep_for"), "30days");
    assert_eq!(told("paypal", "keep_for"), "45days");
    assert_eq!(told("formbridge", "other_payload"), "409");
    assert_eq!(told("formbridge", "scope"), "path-after:intakes caller");
}

#[tokio::test]
async fn a_profile_is_printed_whole_and_what_is_printed_is_the_profile() {
    let place = TempDir::new().unwrap();
    let file = place.path().join("mine.toml");
    for profile in onlyonce_core::profile::all() {
        let (code, shown, err) = run(&["profiles", "show", profile.name()]).await;

        assert_eq!(code, 0, "{err}");
        let read = onlyonce_core::Profile::from_toml(&shown).unwrap();
        assert_eq!(read, profile.policy(), "{shown}");
    }
    std::fs::write(&file, "base = \"stripe\"\nttl = \"7d\"\n").unwrap();
    let (_, own, _) = run(&["profiles", "show", file.to_str().unwrap()]).await;
    assert!(own.contains("ttl = \"7d\""), "{own}");
    std::fs::write(&file, "\nttl = \"0s\"\n").unwrap();
    let (code, _, err) = run(&["profiles", "show", file.to_str().unwrap()]).await;
    assert_eq!(code, 2);
    assert!(err.contains("mine.toml: line 2: "), "{err}");
    let (code, _, err) = run(&["profiles", "show", "strype"]).await;
    assert_eq!(code, 2);
    assert!(err.contains("there are: standard"), "{err}");
}

#[tokio::test]
async fn shells_and_man_know_every_subcommand() {
    let place = TempDir::new().unwrap();
    let folder = place.path().join("man1");

    let (code, bash, _) = run(&["completions", "bash"]).await;
    let (written, _, err) = run(&["man", folder.to_str().unwrap()]).await;

    assert_eq!((code, written), (0, 0), "{err}");
    for name in ["gateway", "keys", "store", "config", "profiles", "verify"] {
        assert!(bash.contains(name), "{name}");
        let page = std::fs::read_to_string(folder.join(format!("onlyonce-{name}.1"))).unwrap();
        assert!(page.contains(".SH"), "{page}");
    }
}
