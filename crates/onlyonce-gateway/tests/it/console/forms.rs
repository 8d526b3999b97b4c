//! Forms work without a script: what is in doubt is settled after a preview, with a reason that is kept.

use serde_json::Value;

use super::{attempts, in_doubt, open, order, send, slots};
use crate::support::{Service, eventually, gateway, order_with};

const KEY: &str = "a-key-that-is-long-enough";

/// What operators did, as the audit trail has it.
pub(super) async fn deeds(file: &std::path::Path, at_least: usize) -> Vec<Value> {
    let read = || -> Vec<Value> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let entries = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let is_deed = |it: &Value| it["eventType"].as_str().unwrap().contains(".operator.");
        entries.filter(is_deed).collect()
    };
    eventually(|| read().len() >= at_least).await;
    read()
}

#[tokio::test]
async fn many_are_settled_after_a_preview_with_who_and_why_in_the_trail() {
    let folder = tempfile::tempdir().unwrap();
    let trail = folder.path().join("audit.jsonl");
    let audit = format!("audit = {{ path = {trail:?} }}\n");
    let gateway = in_doubt(35, &audit).await;
    let signed = [
        ("which", "all"),
        ("operation", "/orders"),
        ("outcome", "happened"),
        ("status", "201"),
        ("content_type", "text/plain"),
        ("body", "made by hand"),
        ("by", "mia"),
        ("reason", "all are in the ledger"),
    ];

    let preview = send(&gateway, "/in-doubt/preview", &signed).await;
    assert_eq!(preview.status, 200);
    preview.has("35 outcomes would be settled");
    preview.has("action=\"/in-doubt/settle\"");
    assert_eq!(slots(&gateway).await.len(), 35, "nothing is settled yet");
    let settled = send(&gateway, "/in-doubt/settle", &hidden(&preview.text)).await;

    assert_eq!(settled.status, 303);
    assert_eq!(settled.header("location"), "/in-doubt?settled=35&skipped=0");
    open(&gateway, settled.header("location"))
        .await
        .has("35 outcomes settled.");
    assert_eq!(slots(&gateway).await, Vec::<String>::new());
    assert_eq!(
        order(&gateway, "/orders", "order-number-0007", "ada").await,
        201
    );
    let deeds = deeds(&trail, 35).await;
    assert_eq!(deeds.len(), 35);
    for deed in deeds {
        assert_eq!(deed["eventType"], "idempotency.operator.resolve");
        assert_eq!(deed["actor"]["id"], "mia");
        assert_eq!(deed["metadata"]["reason"], "all are in the ledger");
        assert_eq!(deed["metadata"]["via"], "console");
    }
}

/// What the form of a page carries, as a browser would send it.
fn hidden(page: &str) -> Vec<(&str, &str)> {
    let hidden = page.split("<input type=\"hidden\" name=\"").skip(1);
    let fields = hidden.filter_map(|rest| {
        let (name, rest) = rest.split_once("\" value=\"")?;
        Some((name, rest.split_once('"')?.0))
    });
    fields.collect()
}

#[tokio::test]
async fn a_preview_does_not_settle_a_later_attempt() {
    let gateway = in_doubt(1, "").await;
    let decision = [
        ("which", "all"),
        ("outcome", "did_not_happen"),
        ("reason", "not in the ledger"),
    ];
    let one = send(&gateway, "/in-doubt/preview", &decision).await;
    let other = send(&gateway, "/in-doubt/preview", &decision).await;

    let first = send(&gateway, "/in-doubt/settle", &hidden(&one.text)).await;
    // Its retry runs, and falls in doubt too: about this attempt nothing was found out.
    let retry = order(&gateway, "/orders", "order-number-0000", "ada").await;
    let late = send(&gateway, "/in-doubt/settle", &hidden(&other.text)).await;

    assert_eq!(retry, 502);
    assert_eq!(first.header("location"), "/in-doubt?settled=1&skipped=0");
    assert_eq!(late.header("location"), "/in-doubt?settled=0&skipped=1");
    assert_eq!(slots(&gateway).await.len(), 1);
}

#[tokio::test]
async fn only_those_that_were_selected_are_settled_and_only_once() {
    let gateway = in_doubt(3, "").await;
    let all = attempts(&gateway).await;
    let fields = [
        ("attempt", all[0].as_str()),
        ("attempt", all[2].as_str()),
        ("outcome", "did_not_happen"),
        ("reason", "not in the ledger"),
    ];

    let preview = send(&gateway, "/in-doubt/preview", &fields).await;
    let first = send(&gateway, "/in-doubt/settle", &fields).await;
    let again = send(&gateway, "/in-doubt/settle", &fields).await;

    preview.has("2 outcomes would be settled");
    assert_eq!(first.header("location"), "/in-doubt?settled=2&skipped=0");
    assert_eq!(again.header("location"), "/in-doubt?settled=0&skipped=2");
    assert_eq!(attempts(&gateway).await, [all[1].clone()]);
}

#[tokio::test]
async fn a_decision_without_a_reason_a_choice_or_a_selection_settles_nothing() {
    let gateway = in_doubt(1, "").await;
    let slot = slots(&gateway).await.remove(0);
    let only_slot = ("slot", slot.as_str());
    let attempt = attempts(&gateway).await.remove(0);
    let slot = ("attempt", attempt.as_str());
    let outcome = ("outcome", "forget");
    let reason = ("reason", "because");
    let wrong: [&[(&str, &str)]; 10] = [
        &[only_slot, outcome, reason],
        &[("attempt", only_slot.1), outcome, reason],
        &[slot, outcome],
        &[slot, outcome, ("reason", "  ")],
        &[slot, outcome, ("reason", "two\nlines")],
        &[slot, reason],
        &[slot, reason, ("outcome", "perhaps")],
        &[outcome, reason],
        &[outcome, reason, ("which", "all")],
        &[slot, reason, ("outcome", "happened"), ("status", "99")],
    ];

    for fields in wrong {
        let got = send(&gateway, "/in-doubt/settle", fields).await;
        assert_eq!(got.status, 400, "{fields:?}");
        got.has("role=\"alert\"");
    }
    assert_eq!(slots(&gateway).await.len(), 1);
}

#[tokio::test]
async fn a_form_that_is_refused_keeps_what_was_typed() {
    let gateway = in_doubt(1, "").await;
    let attempt = attempts(&gateway).await.remove(0);
    let slot = slots(&gateway).await.remove(0);
    let answer = [
        ("attempt", attempt.as_str()),
        ("outcome", "happened"),
        ("status", "99"),
        ("content_type", "text/plain"),
        ("body", "made <by> hand"),
        ("by", "mia"),
        ("reason", "it is in the ledger"),
    ];
    let forget = format!("/records/{slot}/forget");
    let unreasoned = [("attempt_id", attempt.as_str()), ("by", "mia")];

    let refused = send(&gateway, "/in-doubt/preview", &answer).await;
    let kept = send(&gateway, &forget, &unreasoned).await;
    let unselected = send(&gateway, "/in-doubt/preview", &answer[1..]).await;

    assert_eq!((refused.status, kept.status), (400, 400));
    for text in [
        "role=\"alert\"",
        "value=\"happened\" checked",
        "value=\"99\"",
        "value=\"text/plain\"",
        "made &lt;by&gt; hand</textarea>",
        "value=\"mia\"",
        "value=\"it is in the ledger\"",
    ] {
        refused.has(text);
    }
    assert!(hidden(&refused.text).contains(&("attempt", attempt.as_str())));
    unselected.has("value=\"it is in the ledger\"");
    unselected.has(&format!(
        "type=\"checkbox\" name=\"attempt\" value=\"{attempt}\""
    ));
    kept.has("role=\"alert\"");
    kept.has("value=\"mia\"");
    kept.has("<details class=\"card\" open>");
}

#[tokio::test]
async fn a_page_of_a_record_does_not_forget_what_became_of_it_since() {
    let gateway = in_doubt(1, "").await;
    let slot = slots(&gateway).await.remove(0);
    let record = format!("/records/{slot}");
    let page = open(&gateway, &record).await;
    let (_, form) = page.text.split_once("/forget\"").unwrap();
    let signed = [&hidden(form)[..], &[("reason", "a test")]].concat();
    let happened = [
        ("attempt", &*attempts(&gateway).await.remove(0)),
        ("outcome", "happened"),
        ("reason", "it is in the ledger"),
    ];
    let settled = send(&gateway, "/in-doubt/settle", &happened).await;
    assert_eq!(settled.header("location"), "/in-doubt?settled=1&skipped=0");

    let late = send(&gateway, &format!("{record}/forget"), &signed).await;

    assert_eq!(late.status, 409, "{}", late.text);
    late.has("has changed since it was looked at");
    let retry = order(&gateway, "/orders", "order-number-0000", "ada").await;
    assert_eq!(retry, 200, "the answer is still there");
}

#[tokio::test]
async fn a_record_is_kept_longer_and_forgotten_with_a_reason() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let trail = folder.path().join("audit.jsonl");
    let gateway = gateway(service.address, &format!("[audit]\npath = {trail:?}\n")).await;
    order_with(&gateway, KEY, "{}").await;
    let list = open(&gateway, "/api/v1/records").await;
    let list: Value = serde_json::from_str(&list.text).unwrap();
    let slot = list["records"][0]["slot"].as_str().unwrap();
    let (extend, forget) = (
        format!("/records/{slot}/extend"),
        format!("/records/{slot}/forget"),
    );

    let unreasoned = send(&gateway, &forget, &[]).await;
    let endless = send(&gateway, &extend, &[("hours", "0"), ("reason", "x")]).await;
    assert_eq!((unreasoned.status, endless.status), (400, 400));
    let kept = send(
        &gateway,
        &extend,
        &[("hours", "48"), ("reason", "an audit")],
    )
    .await;
    let shown = open(&gateway, kept.header("location")).await;
    let gone = send(&gateway, &forget, &[("by", "mia"), ("reason", "a test")]).await;
    let again = send(&gateway, &forget, &[("by", "mia"), ("reason", "a test")]).await;

    shown.has("It is kept longer now.");
    assert_eq!((gone.status, gone.header("location")), (303, "/records"));
    assert_eq!(again.status, 404);
    order_with(&gateway, KEY, "{}").await;
    assert_eq!(service.work.runs(), 2, "it is a new one");
    let deeds = deeds(&trail, 2).await;
    let words = deeds.iter().map(|it| it["eventType"].as_str().unwrap());
    let words: Vec<_> = words.collect();
    assert_eq!(
        words,
        ["idempotency.operator.extend", "idempotency.operator.forget"]
    );
}

#[tokio::test]
async fn an_address_that_only_takes_a_form_leads_to_its_page() {
    let gateway = in_doubt(1, "").await;
    let slot = slots(&gateway).await.remove(0);
    let record = format!("/records/{slot}");

    for (path, page) in [
        (format!("{record}/extend"), record.as_str()),
        (format!("{record}/forget"), &record),
        ("/records/%22%3E/forget".to_owned(), "/records"),
        ("/records/find".to_owned(), "/records"),
        ("/in-doubt/preview".to_owned(), "/in-doubt"),
        ("/in-doubt/settle".to_owned(), "/in-doubt"),
        ("/logout".to_owned(), "/"),
    ] {
        let got = open(&gateway, &path).await;
        assert_eq!((got.status, got.header("location")), (303, page), "{path}");
    }
    assert_eq!(slots(&gateway).await, [slot]);
}
