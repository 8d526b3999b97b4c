//! D2, the form broker: its tests 1 to 3 as written, and what its derived keys promise.

use std::collections::BTreeSet;

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::support::{Answer, Bed};

const SUBMIT: &str = "/api/forms/test-form/submit";
const CONTEXT: &str = "test-form:550e8400-e29b-41d4-a716-446655440000";

fn form(name: &str, email: &str) -> Value {
    json!({"contextId": CONTEXT, "formData": {"name": name, "email": email}})
}

async fn records(bed: &Bed) -> i64 {
    bed.get("/api/forms/test-form/records").await.json()["count"]
        .as_i64()
        .unwrap()
}

fn is_duplicate_of(answer: &Answer, first: &Answer) -> bool {
    let (mut expected, found) = (first.json(), answer.json());
    expected["message"] =
        json!("This submission was already processed. Returning original response.");
    expected["idempotent"] = json!(true);
    expected["originalSubmittedAt"] = found["originalSubmittedAt"].clone();
    answer.status == 200 && found == expected && found["originalSubmittedAt"].is_string()
}

#[tokio::test]
async fn d2_test_1_a_duplicate_submission_with_the_same_data() {
    let bed = Bed::new().await;

    let first = bed
        .post(SUBMIT)
        .json(form("John Doe", "john@example.com"))
        .send()
        .await;
    let second = bed
        .post(SUBMIT)
        .json(form("John Doe", "john@example.com"))
        .send()
        .await;

    assert_eq!(first.status, 200);
    let said = first.json();
    assert_eq!(
        (&said["success"], &said["contextId"], &said["message"]),
        (
            &json!(true),
            &json!(CONTEXT),
            &json!("Form submitted successfully")
        )
    );
    assert!(said["recordId"].as_str().unwrap().starts_with("a0B"));
    assert!(
        said["businessRecordIds"][0]["id"]
            .as_str()
            .unwrap()
            .starts_with("00Q")
    );
    assert_eq!(said["businessRecordIds"][0]["objectType"], "Lead");
    assert!(
        said["relationshipIds"][0]
            .as_str()
            .unwrap()
            .starts_with("a0C")
    );
    assert!(said.get("idempotent").is_none());
    assert!(is_duplicate_of(&second, &first), "{second:?}");
    assert_eq!(records(&bed).await, 1);
}

#[tokio::test]
async fn d2_test_2_a_different_submission_with_different_data() {
    let bed = Bed::new().await;

    let first = bed
        .post(SUBMIT)
        .json(form("John Doe", "john@example.com"))
        .send()
        .await;
    let third = bed
        .post(SUBMIT)
        .json(form("John Doe", "john2@example.com"))
        .send()
        .await;

    assert!(third.json().get("idempotent").is_none());
    assert_ne!(first.text_at("recordId"), third.text_at("recordId"));
    assert_eq!(records(&bed).await, 2);
}

#[tokio::test]
async fn d2_test_3_a_custom_key_replays_whatever_the_data() {
    let bed = Bed::new().await;
    let send = async |body: Value| {
        bed.post(SUBMIT)
            .key("my-custom-key-12345")
            .json(body)
            .send()
            .await
    };

    let first = send(form("Jane Doe", "jane@example.com")).await;
    let second = send(form("DIFFERENT NAME", "different@example.com")).await;

    assert!(is_duplicate_of(&second, &first), "{second:?}");
    let kept = bed.get("/api/forms/test-form/records").await.json();
    assert_eq!(
        (&kept["count"], &kept["records"][0]["formData"]["name"]),
        (&json!(1), &json!("Jane Doe"))
    );
}

/// The form's body with its members in any order and white space anywhere.
fn permuted(rng: &mut ChaCha8Rng, email: &str) -> String {
    let space = |rng: &mut ChaCha8Rng| {
        let n = rng.random_range(0..4);
        (0..n)
            .map(|_| [' ', '\n', '\t', '\r'][rng.random_range(0..4)])
            .collect::<String>()
    };
    let object = |rng: &mut ChaCha8Rng, mut members: Vec<(&str, String)>| {
        members.shuffle(rng);
        let members: Vec<_> = members
            .into_iter()
            .map(|(name, value)| {
                format!(
                    "{}\"{name}\"{}:{}{value}{}",
                    space(rng),
                    space(rng),
                    space(rng),
                    space(rng)
                )
            })
            .collect();
        format!("{}{{{}}}{}", space(rng), members.join(","), space(rng))
    };
    let data = object(
        rng,
        vec![
            ("name", "\"John Doe\"".to_owned()),
            ("email", format!("\"{email}\"")),
        ],
    );
    object(
        rng,
        vec![("contextId", format!("\"{CONTEXT}\"")), ("formData", data)],
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_permutations_of_one_form_are_one_submission_and_a_changed_value_another() {
    let bed = Bed::new().await;
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut spellings = BTreeSet::new();
    let mut ids = BTreeSet::new();

    for _ in 0..1000 {
        let body = permuted(&mut rng, "john@example.com");
        let answer = bed.post(SUBMIT).body(body.clone()).send().await;
        spellings.insert(body);
        ids.insert(answer.text_at("recordId"));
    }
    let changed = bed
        .post(SUBMIT)
        .body(permuted(&mut rng, "john2@example.com"))
        .send()
        .await;

    assert!(spellings.len() > 900, "{} spellings", spellings.len());
    assert_eq!(ids.len(), 1);
    assert!(!ids.contains(&changed.text_at("recordId")));
    assert_eq!(records(&bed).await, 2);
}

#[tokio::test]
async fn d2_troubleshooting_another_session_submits_anew() {
    let bed = Bed::new().await;
    let mut other = form("John Doe", "john@example.com");
    other["contextId"] = json!("test-form:another-session");

    bed.post(SUBMIT)
        .json(form("John Doe", "john@example.com"))
        .send()
        .await;
    let anew = bed.post(SUBMIT).json(other).send().await;

    assert!(anew.json().get("idempotent").is_none());
    assert_eq!(records(&bed).await, 2);
}

#[tokio::test]
async fn what_is_no_submission_is_refused_in_the_brokers_words() {
    let bed = Bed::new().await;
    let refused = async |path: &str, body: Value| {
        let answer = bed.post(path).json(body).send().await;
        let code = answer.json()["error"]["code"].as_str().unwrap().to_owned();
        assert_eq!(answer.json()["success"], json!(false));
        (answer.status.as_u16(), code)
    };

    assert_eq!(
        refused(SUBMIT, json!({})).await,
        (400, "invalid_request".to_owned())
    );
    assert_eq!(
        refused(SUBMIT, json!({"contextId": " ", "formData": {}}))
            .await
            .0,
        400
    );
    assert_eq!(
        refused(SUBMIT, json!({"contextId": "c", "formData": {"age": 4}})).await,
        (422, "validation_error".to_owned())
    );
    assert_eq!(
        refused(SUBMIT, json!({"contextId": "c", "formData": {"name": 4}}))
            .await
            .0,
        422
    );
    assert_eq!(
        refused("/api/forms/none/submit", form("a", "b")).await,
        (404, "not_found".to_owned())
    );
    assert_eq!(records(&bed).await, 0);
}

#[tokio::test]
async fn the_page_posts_one_submission_however_often_it_is_sent() {
    let bed = Bed::new().await;
    let page = bed.get("/forms/test-form").await;
    let cookie = page
        .header("Set-Cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let session = cookie.split_once('=').unwrap().1;
    assert!(
        page.text
            .contains(&format!("value=\"test-form:{session}\"")),
        "{}",
        page.text
    );
    let send = async |email: &str| {
        let body = format!("contextId=test-form%3A{session}&name=John+Doe&email={email}");
        let form = bed.post("/forms/test-form").header("Cookie", &cookie);
        form.header("Content-Type", "application/x-www-form-urlencoded")
            .text(body)
            .send()
            .await
    };

    let (first, again) = (
        send("john%40example.com").await,
        send("john%40example.com").await,
    );
    let other = send("%3Cb%3E%40example.com").await;

    assert!(
        first.text.contains("Form submitted successfully"),
        "{}",
        first.text
    );
    assert!(
        again
            .text
            .contains("This submission was already processed."),
        "{}",
        again.text
    );
    assert!(
        other.text.contains("Form submitted successfully"),
        "{}",
        other.text
    );
    let same = bed
        .getting("/forms/test-form")
        .header("Cookie", &cookie)
        .send()
        .await;
    assert!(same.text.contains(session) && same.header("Set-Cookie").is_none());
    assert_eq!(records(&bed).await, 2);
}
