//! MCP over streamable HTTP with the Python SDK on both sides: its client and its server, with the gateway,
//! `onlyonce mcp --upstream` or `onlyonce mcp --listen` between them. Each effect of the server is a line in a file.

use std::process::Stdio;

use serde_json::{Value, json};

use self::shop::{Front, Shop, heard};
use crate::mcp::agent::Notes;
use crate::support::program::onlyonce;

mod faults;
mod shop;

/// Which way a client reaches the shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Gateway,
    Proxy,
    /// The server is on pipes.
    Listen,
}

const WAYS: [Way; 3] = [Way::Gateway, Way::Proxy, Way::Listen];
/// Those that clients reach over HTTP.
const OVER_HTTP: [Way; 2] = [Way::Gateway, Way::Listen];

fn replayed(answer: &Value) -> bool {
    answer["replayed"] == true
}

#[tokio::test]
async fn every_method_of_the_sdk_works_and_a_key_runs_a_tool_once() {
    for modes in [&[][..], &["json"], &["stateless"], &["json", "stateless"]] {
        for way in WAYS {
            if way == Way::Listen && !modes.is_empty() {
                continue; // They are of a server on the network.
            }
            let shop = Shop::open(modes).await;
            let front = shop.front(way, "").await;

            let what = format!("{way:?} {modes:?}");
            everything_works(&shop, &front, "2025-11-25", &what).await;
        }
    }
}

/// The revisions before differ in more than a header: sessions agree on them, and they have no tasks.
#[tokio::test]
async fn every_method_of_the_sdk_works_under_the_revisions_before() {
    for revision in ["2025-06-18", "2025-03-26"] {
        for way in WAYS {
            let shop = Shop::open(&[]).await;
            let front = shop.front(way, "").await;

            everything_works(&shop, &front, revision, &format!("{way:?} {revision}")).await;
        }
    }
}

async fn everything_works(shop: &Shop, front: &Front, revision: &str, what: &str) {
    let heard = front.client("everything", &[("REVISION", revision)]).await;

    let what = format!("{what} {heard}");
    let offered = json!([
        "fail",
        "order",
        "order_and_die",
        "order_in_a_colour",
        "order_slowly",
        "order_what_the_model_likes"
    ]);
    assert_eq!(heard["revision"], revision, "{what}");
    assert_eq!(heard["offered"], offered, "{what}");
    assert_eq!(heard["resource"], "tea, cake", "{what}");
    assert_eq!(heard["prompt"], "Greet Ada.", "{what}");
    assert_eq!(heard["first"]["text"], "order 1 of tea", "{what}");
    assert_eq!(heard["again"]["text"], "order 1 of tea", "{what}");
    assert!(replayed(&heard["again"]), "{what}");
    assert_eq!(heard["other"]["refused"], "mismatch", "{what}");
    let in_meta = &heard["in_meta"];
    assert_eq!(in_meta[1]["text"], in_meta[0]["text"], "{what}");
    assert!(replayed(&in_meta[1]), "{what}");
    assert_eq!(heard["by_id"][0]["error"], false, "{what}");
    assert_eq!(heard["by_id"][1]["refused"], "mismatch", "{what}");
    assert!(replayed(&heard["failed"][1]), "{what}");
    let lines = shop.effects();
    assert_eq!(lines, ["tea", "bare", "meta", "one", "tea"], "{what}");
}

#[tokio::test]
async fn a_question_of_a_running_tool_to_the_model_of_its_client_is_answered() {
    for way in WAYS {
        for revision in ["2025-11-25", "2025-06-18"] {
            let shop = Shop::open(&[]).await;
            let front = shop.front(way, "").await;

            let heard = front.client("sampling", &[("REVISION", revision)]).await;

            let what = format!("{way:?} {heard}");
            assert_eq!(heard["revision"], revision, "{what}");
            for answer in [&heard["tries"][0], &heard["tries"][1]] {
                assert_eq!(answer["text"], "order 1 of green tea", "{what}");
            }
            assert!(replayed(&heard["tries"][1]), "{what}");
            assert_eq!(shop.effects(), ["tea"], "{what}");
        }
    }
}

/// The SDK's server ends a cancelled call with an error, which then is its outcome.
#[tokio::test]
async fn a_call_that_is_cancelled_has_the_outcome_that_its_server_tells() {
    for way in WAYS {
        let shop = Shop::open(&[]).await;
        let front = shop.front(way, "").await;

        let heard = front.client("cancelled", &[]).await;

        let text = heard["text"].as_str().unwrap();
        assert!(text.contains("Request cancelled"), "{way:?} {heard}");
        assert_eq!(shop.effects(), ["tea"], "{way:?} {heard}");
    }
}

#[tokio::test]
async fn a_call_as_a_task_is_made_once_and_its_task_answers_every_try() {
    for way in WAYS {
        let shop = Shop::open(&[]).await;
        let front = shop.front(way, "").await;

        let heard = front.client("tasks", &[]).await;

        let what = format!("{way:?} {heard}");
        assert_eq!(heard["made"][0], heard["made"][1], "{what}");
        assert_eq!(heard["meta"]["onlyonce/replayed"], true, "{what}");
        assert_eq!(heard["status"], "completed", "{what}");
        assert_eq!(heard["result"]["text"], "order 1 of tea", "{what}");
        assert_eq!(heard["listed"], json!([heard["made"][0]]), "{what}");
        assert_eq!(heard["other"]["refused"], "mismatch", "{what}");
        assert_eq!(shop.effects(), ["tea"], "{what}");
    }
}

#[tokio::test]
async fn questions_and_progress_of_a_running_tool_reach_its_client() {
    for way in WAYS {
        let shop = Shop::open(&[]).await;
        shop.let_go();
        let front = shop.front(way, "").await;

        let heard = front.client("asked", &[]).await;

        assert_eq!(
            heard["first"]["text"], "order 1 of tea in red",
            "{way:?} {heard}"
        );
        assert!(replayed(&heard["again"]), "{way:?} {heard}");
        assert_eq!(heard["steps"], json!([1.0, 2.0, 3.0]), "{way:?} {heard}");
        assert_eq!(shop.effects().len(), 2, "{way:?}");
    }
}

#[tokio::test]
async fn clients_in_sessions_of_their_own_share_one_run_of_a_key() {
    for way in WAYS {
        let shop = Shop::open(&[]).await;
        let front = shop.front(way, "").await;

        let running = tokio::spawn({
            let client = front.start("many", &[]);
            async move { heard(client).await }
        });
        shop.until_effects(1).await;
        shop.let_go();
        let heard = running.await.unwrap();

        for answer in heard.as_array().unwrap() {
            assert_eq!(answer["text"], "order 1 of tea", "{way:?} {heard}");
        }
        assert_eq!(shop.effects().len(), 1, "{way:?}");
    }
}

#[tokio::test]
async fn a_client_that_is_killed_does_not_stop_the_tool_and_its_retry_gets_the_result() {
    for way in OVER_HTTP {
        let shop = Shop::open(&[]).await;
        let front = shop.front(way, "").await;

        let mut client = front.start("once", &[("TOOL", "order_slowly")]);
        shop.until_effects(1).await;
        client.kill().await.unwrap();
        shop.let_go();
        let heard = front.client("once", &[("TOOL", "order_slowly")]).await;

        assert_eq!(heard["text"], "order 1 of tea", "{heard}");
        assert_eq!(shop.effects().len(), 1);
    }
}

#[tokio::test]
async fn a_gateway_that_is_killed_between_effect_and_answer_runs_no_tool_twice() {
    for way in OVER_HTTP {
        let shop = Shop::open(&[]).await;
        let front = shop.front(way, "").await;
        let mut client = front.start("once", &[("TOOL", "order_slowly")]);
        shop.until_effects(1).await;

        front.kill().await;
        client.kill().await.unwrap();
        shop.let_go();
        let front = shop.front(way, "").await;
        let heard = front.settled("once", &[("TOOL", "order_slowly")]).await;

        assert_eq!(heard["refused"], "outcome-unknown", "{heard}");
        assert_eq!(shop.effects().len(), 1);
    }
}

#[tokio::test]
async fn two_callers_with_one_key_are_kept_apart() {
    for way in OVER_HTTP {
        let shop = Shop::open(&[]).await;
        let front = shop.front(way, "").await;

        let first = front.client_as("ada", "once", &[("TOOL", "order")]).await;
        let second = front.client_as("bob", "once", &[("TOOL", "order")]).await;
        let again = front.client_as("ada", "once", &[("TOOL", "order")]).await;

        assert_eq!(first["text"], "order 1 of tea", "{first}");
        assert_eq!(second["text"], "order 2 of tea", "{second}");
        assert_eq!(again["text"], "order 1 of tea", "{again}");
        assert!(replayed(&again) && !replayed(&second), "{again} {second}");
    }
}

#[tokio::test]
async fn a_call_whose_server_died_is_settled_by_the_verifying_tool() {
    const VERIFY: &str = r#"order_and_die=find_order:{"reference":"{key}"}"#;
    for way in WAYS {
        for (dies, is_found) in [("after", true), ("before", false)] {
            let mut shop = Shop::open(&[]).await;
            shop.dies(Some(dies));
            let front = shop.front(way, VERIFY).await;

            // Its server dies: there is nothing to hear but that.
            drop(front.try_client("verified", &[]).await);
            let before = shop.effects().len();
            shop.dies(None);
            if way != Way::Listen {
                shop.open_again().await;
            }
            let heard = front.settled("verified", &[]).await;

            assert_eq!(before, usize::from(is_found), "{way:?} {dies}");
            assert_eq!(shop.effects().len(), 1, "{way:?} {dies} {heard}");
            assert_eq!(heard["reconciled"], is_found, "{way:?} {dies} {heard}");
            assert_eq!(heard["error"], false, "{way:?} {dies} {heard}");
        }
    }
}

#[tokio::test]
async fn a_server_that_forgets_its_sessions_is_met_again() {
    let mut shop = Shop::open(&[]).await;
    let front = shop.front(Way::Proxy, "").await;
    let mut program = onlyonce(&front.arguments());
    let program = program.stdin(Stdio::piped()).spawn().unwrap();
    let mut agent = shop::Lines::of(program);
    agent.begin().await;
    let first = agent.order(2, "tea").await;

    shop.close().await;
    shop.open_again().await;
    let second = agent.order(3, "cake").await;

    assert_eq!(
        first["result"]["content"][0]["text"], "order 1 of tea",
        "{first}"
    );
    assert_eq!(
        second["result"]["content"][0]["text"], "order 2 of cake",
        "{second}"
    );
}

#[tokio::test]
async fn a_third_party_server_on_pipes_acts_once_for_clients_over_http_through_the_gateway() {
    let notes = Notes::new();
    let (front, _listening) = shop::before(&notes.server(), notes.path()).await;
    let note = notes.note();
    let note = [("NOTE", note.to_str().unwrap())];

    let first = front.client("notes", &note).await;
    let second = front.client("notes", &note).await;

    assert_eq!(notes.strokes(), 1, "{first} {second}");
    assert!(!replayed(&first["acted"][0]), "{first}");
    for repeated in [&first["acted"][1], &second["acted"][0], &second["acted"][1]] {
        assert!(replayed(repeated), "{first} {second}");
    }
    assert_eq!(first["read"]["text"], "|end", "{first}");
    let tools = first["tools"].as_array().unwrap();
    assert!(tools.contains(&json!("edit_file")), "{first}");
}

#[tokio::test]
async fn a_key_runs_a_tool_once_under_revision_2026_07_28() {
    for way in WAYS {
        let shop = Shop::open_modern().await;
        let front = shop.front(way, "").await;

        let heard = front.modern_client().await;

        assert_eq!(heard["version"], "2026-07-28", "{way:?} {heard}");
        let [first, again, other] = [0, 1, 2].map(|at| &heard["heard"][at]);
        assert_eq!(first["text"], "order of tea", "{way:?} {heard}");
        assert_eq!(again["meta"]["onlyonce/replayed"], true, "{way:?} {heard}");
        assert_eq!(
            other["meta"]["onlyonce/refused"]["reason"], "mismatch",
            "{way:?} {heard}"
        );
        assert_eq!(shop.effects(), ["tea süd"], "{way:?}");
    }
}
