//! What an intake takes and what it refuses, step by step and from a file.

use serde_json::json;

use crate::support::{Bed, intakes};

#[tokio::test]
async fn a_submission_is_drafted_filled_checked_and_submitted() {
    let bed = Bed::new().await;

    let draft = bed
        .post("/api/intakes/vendor-onboarding/submissions")
        .key("draft-1")
        .json(json!({}))
        .send()
        .await;
    assert_eq!(draft.status, 201, "{draft:?}");
    let id = draft.text_at("submissionId");
    let early = bed
        .post(&format!("/api/submissions/{id}/validate"))
        .send()
        .await
        .json();
    assert_eq!(
        early,
        json!({"ok": true, "valid": false, "errors": [{"field": "companyName", "message": "is required"}]})
    );
    let set = bed
        .patch(&format!("/api/submissions/{id}/fields"))
        .key("set-1")
        .json(json!({"fields": {"companyName": "Acme Corp", "employees": 3}}))
        .send()
        .await;
    assert_eq!(
        (
            set.status.as_u16(),
            set.json()["fields"]["employees"].as_i64()
        ),
        (200, Some(3))
    );
    let taken = bed
        .patch(&format!("/api/submissions/{id}/fields"))
        .json(json!({"fields": {"employees": null}}))
        .send()
        .await;
    assert_eq!(taken.json()["fields"], json!({"companyName": "Acme Corp"}));
    let submitted = bed
        .post(&format!("/api/submissions/{id}/submit"))
        .key("submit-1")
        .send()
        .await;
    assert_eq!(
        (
            submitted.status.as_u16(),
            submitted.text_at("state").as_str()
        ),
        (200, "submitted")
    );

    let shown = bed.get(&format!("/api/submissions/{id}")).await.json();
    assert_eq!(
        (&shown["state"], &shown["intakeId"]),
        (&json!("submitted"), &json!("vendor-onboarding"))
    );
    assert!(shown["submittedAt"].is_string());
    let types: Vec<_> = bed
        .events(&id)
        .await
        .iter()
        .map(|event| event["type"].clone())
        .collect();
    assert_eq!(
        json!(types),
        json!([
            "submission.created",
            "submission.fields_set",
            "submission.fields_set",
            "submission.submitted"
        ])
    );
    let late = bed
        .patch(&format!("/api/submissions/{id}/fields"))
        .json(json!({"fields": {}}))
        .send()
        .await;
    assert_eq!(
        (late.status.as_u16(), &late.json()["error"]["type"]),
        (409, &json!("invalid_state"))
    );
}

#[tokio::test]
async fn each_step_replays_by_its_own_key() {
    let bed = Bed::new().await;
    let create = || {
        bed.post("/api/intakes/access-request/submissions")
            .key("create-1")
            .json(json!({"fields": {"system": "vpn"}}))
    };

    let id = create().send().await.text_at("submissionId");
    assert_eq!(create().send().await.text_at("submissionId"), id);
    let set = || {
        bed.patch(&format!("/api/submissions/{id}/fields"))
            .key("set-1")
            .json(json!({"fields": {"reason": "travel"}}))
    };
    let (first, again) = (set().send().await, set().send().await);
    assert_eq!(
        (
            first.text == again.text,
            again.header("Idempotent-Replayed")
        ),
        (true, Some("true"))
    );
    let submit = || {
        bed.post(&format!("/api/submissions/{id}/submit"))
            .key("submit-1")
    };
    let (first, again) = (submit().send().await, submit().send().await);
    assert_eq!(
        (first.status.as_u16(), first.text == again.text),
        (200, true)
    );

    let events = bed.events(&id).await;
    let changes = events
        .iter()
        .filter(|event| event["type"] != "submission.replayed")
        .count();
    assert_eq!((changes, events.len()), (3, 6), "{events:?}");
}

#[tokio::test]
async fn what_is_not_whole_can_be_submitted_with_the_same_key_once_it_is() {
    let bed = Bed::new().await;
    let id = bed
        .post("/api/intakes/access-request/submissions")
        .json(json!({"fields": {"system": "vpn"}}))
        .send()
        .await
        .text_at("submissionId");
    let submit = || {
        bed.post(&format!("/api/submissions/{id}/submit"))
            .key("submit-it")
    };

    let early = submit().send().await;
    assert_eq!(early.status, 422);
    assert_eq!(
        early.json()["error"]["details"],
        json!([{"field": "reason", "message": "is required"}])
    );
    bed.patch(&format!("/api/submissions/{id}/fields"))
        .json(json!({"fields": {"reason": "travel"}}))
        .send()
        .await;

    assert_eq!(submit().send().await.text_at("state"), "submitted");
}

#[tokio::test]
async fn fields_that_break_a_rule_are_refused_by_name() {
    let bed = Bed::new().await;
    let refused = async |fields: serde_json::Value| {
        let answer = bed
            .post("/api/intakes/vendor-onboarding/submit")
            .json(json!({"fields": fields}))
            .send()
            .await;
        assert_eq!(answer.status, 422, "{answer:?}");
        answer.json()["error"]["details"][0]["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };

    assert_eq!(refused(json!({"companyName": ""})).await, "is empty");
    assert_eq!(
        refused(json!({"companyName": "x".repeat(201)})).await,
        "is longer than 200 characters"
    );
    assert_eq!(refused(json!({"companyName": 7})).await, "is no text");
    assert_eq!(
        refused(json!({"companyName": "A", "contactEmail": "a@b"})).await,
        "is no e-mail address"
    );
    assert_eq!(
        refused(json!({"companyName": "A", "country": "XX"})).await,
        "is none of DE, FR, GB, US"
    );
    assert_eq!(
        refused(json!({"companyName": "A", "employees": -1})).await,
        "is less than 0"
    );
    assert_eq!(
        refused(json!({"companyName": "A", "acceptsTerms": "yes"})).await,
        "is neither true nor false"
    );
    assert_eq!(
        refused(json!({"companyName": "A", "shoeSize": 4})).await,
        "there is no such field in Vendor onboarding"
    );
    let unread = bed
        .post("/api/intakes/vendor-onboarding/submit")
        .body("{")
        .send()
        .await;
    assert_eq!(
        (unread.status.as_u16(), &unread.json()["error"]["type"]),
        (400, &json!("invalid_request"))
    );
    let unknown = bed
        .post("/api/intakes/no-such/submit")
        .json(json!({}))
        .send()
        .await;
    assert_eq!(
        (unknown.status.as_u16(), &unknown.json()["error"]["message"]),
        (404, &json!("there is no intake `no-such`"))
    );
}

#[tokio::test]
async fn intakes_come_from_a_file_and_may_switch_idempotency_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = intakes(
        &folder,
        &json!([{
            "id": "poll", "title": "Poll",
            "fields": {"answer": {"type": "string", "required": true}},
            "idempotency": {"enabled": false},
        }]),
    );
    let bed = Bed::with(|options| options.intakes = Some(path)).await;
    let vote = || {
        bed.post("/api/intakes/poll/submit")
            .key("vote-1")
            .json(json!({"fields": {"answer": "yes"}}))
    };

    let (first, second) = (vote().send().await, vote().send().await);

    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    assert_ne!(
        first.text_at("submissionId"),
        second.text_at("submissionId")
    );
    let built_in = bed
        .post("/api/intakes/vendor-onboarding/submit")
        .json(json!({}))
        .send()
        .await;
    assert_eq!(built_in.status, 404);
}

#[tokio::test]
async fn a_file_of_intakes_that_does_not_hold_says_why() {
    use onlyonce_demo::{Demo, Options};
    let folder = tempfile::tempdir().unwrap();
    let refused = async |content: serde_json::Value| {
        let mut options = Options::new(crate::support::database(&folder));
        options.intakes = Some(intakes(&folder, &content));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let Err(error) = Demo::start(&options, listener).await else {
            panic!("it started")
        };
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", cause.unwrap_or_default())
    };
    let poll =
        |id: &str| json!({"id": id, "title": "P", "fields": {}, "idempotency": {"enabled": true}});

    assert!(
        refused(json!({}))
            .await
            .contains("is no list of intakes: invalid type: map")
    );
    assert!(
        refused(json!([poll("a b")]))
            .await
            .contains("intake `a b`: an id is lower-case letters")
    );
    assert!(
        refused(json!([poll("a"), poll("a")]))
            .await
            .contains("intake `a`: its id is there twice")
    );
    let mut typo = poll("a");
    typo["webhok"] = json!("/x");
    assert!(
        refused(json!([typo]))
            .await
            .contains("unknown field `webhok`")
    );
}

#[tokio::test]
async fn a_submission_belongs_to_whoever_made_it() {
    let bed = Bed::new().await;
    let (ada, bob) = (
        bed.token("agent", "ada").await,
        bed.token("agent", "bob").await,
    );
    let id = bed
        .post("/api/intakes/vendor-onboarding/submissions")
        .token(&ada)
        .json(json!({}))
        .send()
        .await
        .text_at("submissionId");
    let path = format!("/api/submissions/{id}");

    assert_eq!(bed.getting(&path).token(&ada).send().await.status, 200);
    assert_eq!(bed.getting(&path).token(&bob).send().await.status, 404);
    assert_eq!(bed.get(&path).await.status, 404);
    let stolen = bed
        .patch(&format!("{path}/fields"))
        .token(&bob)
        .key("k")
        .json(json!({"fields": {"companyName": "Evil"}}))
        .send()
        .await;
    assert_eq!(stolen.status, 404);
    let forged = bed.getting(&path).token("a.b.c").send().await;
    assert_eq!(
        (forged.status.as_u16(), &forged.json()["error"]["code"]),
        (401, &json!("UNAUTHORIZED"))
    );
}

#[tokio::test]
async fn one_key_is_the_intakes_whichever_path_it_is_sent_to() {
    let bed = Bed::new().await;
    let create = || {
        bed.post("/api/intakes/access-request/submissions")
            .key("one-key")
            .json(json!({"fields": {"system": "vpn", "reason": "travel"}}))
    };
    let id = create().send().await.text_at("submissionId");

    let submit = bed
        .post(&format!("/api/submissions/{id}/submit"))
        .key("one-key")
        .send()
        .await;
    let fields = bed
        .patch(&format!("/api/submissions/{id}/fields"))
        .key("one-key")
        .json(json!({"fields": {"reason": "other"}}))
        .send()
        .await;

    assert_eq!((submit.status.as_u16(), fields.status.as_u16()), (409, 409));
    assert_eq!(create().send().await.text_at("submissionId"), id);
    let submit = bed
        .post(&format!("/api/submissions/{id}/submit"))
        .key("another-key")
        .send()
        .await;
    assert_eq!(submit.text_at("state"), "submitted");
}

#[tokio::test]
async fn a_keyed_validate_is_an_operation_and_one_without_a_key_is_not() {
    let bed = Bed::new().await;
    let validate = |key: Option<&str>| {
        let request = bed
            .post("/api/intakes/access-request/validate")
            .json(json!({"fields": {"system": "vpn"}}));
        match key {
            Some(key) => request.key(key),
            None => request,
        }
    };

    assert_eq!(validate(None).send().await.json()["valid"], false);
    let first = validate(Some("look")).send().await;
    let again = validate(Some("look")).send().await;

    assert_eq!(first.json()["valid"], false);
    assert_eq!(again.headers["idempotent-replayed"], "true");
}
