//! The same services on PostgreSQL, two of them on one database.

use onlyonce_demo::Options;
use onlyonce_testkit::servers::{Shared, shared};
use serde_json::json;
use sqlx::Connection as _;
use tokio::task::JoinSet;

use crate::support::{Bed, uuid};

/// A schema of its own on the shared server, as a URL.
pub(crate) async fn database(name: &str) -> String {
    let url = shared(Shared::Postgres);
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    let sql = format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(&mut connection)
        .await
        .unwrap();
    let and = if url.contains('?') { '&' } else { '?' };
    format!("{url}{and}options=-csearch_path%3D{name}")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_worth_of_services_on_one_postgres_submit_once() {
    let options = Options {
        hosts: vec!["shop.example".to_owned()],
        ..Options::new(database("demo_intakes").await)
    };
    let (one, two) = (
        Bed::start(&options, None).await,
        Bed::start(&options, None).await,
    );
    let submit = |bed: &Bed| {
        bed.post("/api/intakes/vendor-onboarding/submit")
            .host("shop.example")
            .key("abc123")
            .json(json!({"fields": {"companyName": "Acme"}}))
    };

    let mut calls = JoinSet::new();
    for n in 0..16 {
        calls.spawn(submit(if n % 2 == 0 { &one } else { &two }).send());
    }
    let answers = calls.join_all().await;

    assert_eq!(
        answers.iter().filter(|answer| answer.status == 201).count(),
        1,
        "{answers:?}"
    );
    assert!(answers.iter().all(|answer| answer.text == answers[0].text));
    let id = answers[0].text_at("submissionId");
    // Both have written down the replays they gave.
    two.events(&id).await;
    let events = one.events(&id).await;
    let mut numbers: Vec<_> = events
        .iter()
        .filter_map(|event| event["payload"]["replayNumber"].as_i64())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=15).collect::<Vec<_>>());
    let inbox = one.until("/demo/inbox", |it| it["count"] != json!(0)).await;
    assert_eq!(inbox["count"], json!(1));
}

#[tokio::test]
async fn forms_and_syncs_work_on_postgres_as_they_do_on_sqlite() {
    let bed = Bed::start(&Options::new(database("demo_rest").await), None).await;
    let token = bed.token("user", "ada").await;
    let form = json!({"contextId": "test-form:1", "formData": {"name": "John"}});
    let user = || {
        bed.post("/api/v1/users")
            .token(&token)
            .key(&uuid(1))
            .json(json!({"meta": {}, "payload": {"email": "a@example.com"}}))
    };

    let (first, again) = (
        bed.post("/api/forms/test-form/submit")
            .json(form.clone())
            .send()
            .await,
        bed.post("/api/forms/test-form/submit")
            .json(form)
            .send()
            .await,
    );
    assert_eq!(
        (first.text_at("recordId"), &again.json()["idempotent"]),
        (again.text_at("recordId"), &json!(true))
    );
    let (first, again) = (user().send().await, user().send().await);
    assert_eq!(
        (first.status.as_u16(), first.text == again.text),
        (201, true)
    );
    let audit = bed.get("/demo/audit").await.json();
    assert!(audit["events"].as_array().unwrap().len() >= 4, "{audit}");
}
