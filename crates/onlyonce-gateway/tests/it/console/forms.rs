//! Forms work without a script: what is in doubt is settled after a preview, with a reason that is kept.

use serde_json::Value;

use super::{in_doubt, open, order, send, slots};
use crate::support::{Service, eventually, gateway, order_with};

const KEY: &str = "a-key-that-is-long-enough";

/// What operators did, as the audit trail has it.
async fn deeds(file: &std::path::Path, at_least: usize) -> Vec<Value> {
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
    let found: Vec<String> = hidden_slots(&preview.text);
    assert_eq!(found.len(), 35);
    let mut fields = signed[2..].to_vec();
    fields.extend(found.iter().map(|slot| ("slot", slot.as_str())));
    let settled = send(&gateway, "/in-doubt/settle", &fields).await;

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

fn hidden_slots(page: &str) -> Vec<String> {
    let hidden = page.split("<input type=\"hidden\" name=\"slot\" value=\"");
    let slot = |rest: &str| rest.split('"').next().unwrap().to_owned();
    hidden.skip(1).map(slot).collect()
}

#[tokio::test]
async fn only_those_that_were_selected_are_settled_and_only_once() {
    let gateway = in_doubt(3, "").await;
    let all = slots(&gateway).await;
    let fields = [
        ("slot", all[0].as_str()),
        ("slot", all[2].as_str()),
        ("outcome", "did_not_happen"),
        ("reason", "not in the ledger"),
    ];

    let preview = send(&gateway, "/in-doubt/preview", &fields).await;
    let first = send(&gateway, "/in-doubt/settle", &fields).await;
    let again = send(&gateway, "/in-doubt/settle", &fields).await;

    preview.has("2 outcomes would be settled");
    assert_eq!(first.header("location"), "/in-doubt?settled=2&skipped=0");
    assert_eq!(again.header("location"), "/in-doubt?settled=0&skipped=0");
    assert_eq!(slots(&gateway).await, [all[1].clone()]);
}

#[tokio::test]
async fn a_decision_without_a_reason_a_choice_or_a_selection_settles_nothing() {
    let gateway = in_doubt(1, "").await;
    let slot = slots(&gateway).await.remove(0);
    let slot = ("slot", slot.as_str());
    let outcome = ("outcome", "forget");
    let reason = ("reason", "because");
    let wrong: [&[(&str, &str)]; 8] = [
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
