//! D3, the policy of the offline client's server: its edge cases 1 to 4, its user scope and its
//! load test. Case 5, a crash in the middle, needs a process to kill: see the `onlyonce` command.

use onlyonce_demo::Options;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::postgres::database;
use crate::support::{Ask, Bed, uuid};

fn user(bed: &Bed, token: &str, key: &str, email: &str) -> Ask {
    let body = json!({"meta": {"client": "test"}, "payload": {"email": email}});
    bed.post("/api/v1/users").token(token).key(key).json(body)
}

async fn users(bed: &Bed, token: &str) -> i64 {
    let listed = bed.getting("/api/v1/users").token(token).send().await;
    listed.json()["meta"]["count"].as_i64().unwrap()
}

#[tokio::test]
async fn d3_users_rooms_and_devices_are_made_once() {
    let bed = Bed::new().await;
    let token = bed.token("user", "ada").await;

    for (n, (path, payload, id)) in [
        (
            "/api/v1/users",
            json!({"email": "a@example.com"}),
            "user_id",
        ),
        ("/api/v1/rooms", json!({"name": "Kitchen"}), "room_id"),
        ("/api/v1/devices", json!({"serial": "X1"}), "device_id"),
    ]
    .into_iter()
    .enumerate()
    {
        let send = async || {
            bed.post(path)
                .token(&token)
                .key(&uuid(n as u64))
                .json(json!({"meta": {}, "payload": payload}))
                .send()
                .await
        };
        let (first, retry) = (send().await, send().await);
        assert_eq!(
            (first.status.as_u16(), retry.status.as_u16()),
            (201, 201),
            "{first:?}"
        );
        assert_eq!(first.text, retry.text);
        assert!(first.json()["payload"][id].is_string(), "{}", first.text);
        let listed = bed.getting(path).token(&token).send().await.json();
        assert_eq!(listed["meta"]["count"], json!(1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_case_1_a_concurrent_request_conflicts_and_its_retry_hears_the_answer() {
    let bed = Bed::new().await;
    let token = bed.token("user", "ada").await;

    let mut calls = JoinSet::new();
    for _ in 0..16 {
        calls.spawn(user(&bed, &token, &uuid(1), "john@example.com").send());
    }
    let answers = calls.join_all().await;

    let told = |status: u16| {
        answers
            .iter()
            .filter(|answer| answer.status == status)
            .count()
    };
    assert!(told(201) >= 1 && told(201) + told(409) == 16, "{answers:?}");
    for refused in answers.iter().filter(|answer| answer.status == 409) {
        assert_eq!(refused.json()["error"]["code"], "CONCURRENT_REQUEST");
    }
    let retry = user(&bed, &token, &uuid(1), "john@example.com")
        .send()
        .await;
    let first = answers.iter().find(|answer| answer.status == 201).unwrap();
    assert_eq!((retry.status.as_u16(), &retry.text), (201, &first.text));
    assert_eq!(users(&bed, &token).await, 1);
}

#[tokio::test]
async fn d3_case_2_partial_success_is_success_and_the_mail_is_a_job_of_its_own() {
    // Nobody listens there: the mail cannot be sent.
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    let bed = Bed::with(|options| options.mail = Some(format!("http://{address}/mail"))).await;
    let token = bed.token("user", "ada").await;

    let first = user(&bed, &token, &uuid(1), "john@example.com")
        .send()
        .await;
    let retry = user(&bed, &token, &uuid(1), "john@example.com")
        .send()
        .await;

    assert_eq!(
        (first.status.as_u16(), first.text == retry.text),
        (201, true)
    );
    assert_eq!(users(&bed, &token).await, 1);
}

#[tokio::test]
async fn d3_case_2_the_mail_is_asked_for_once() {
    let bed = Bed::with(|options| options.mail = Some("/demo/inbox".to_owned())).await;
    let token = bed.token("user", "ada").await;

    for _ in 0..3 {
        user(&bed, &token, &uuid(1), "john@example.com")
            .send()
            .await;
    }
    user(&bed, &token, &uuid(2), "jane@example.com")
        .send()
        .await;

    // Deliveries go out in their order: with the last one all are there.
    let inbox = bed
        .until("/demo/inbox", |it| {
            it["deliveries"]
                .as_array()
                .unwrap()
                .iter()
                .any(|it| it["told"]["email"] == "jane@example.com")
        })
        .await;
    assert_eq!(inbox["count"], json!(2), "{inbox}");
}

#[tokio::test]
async fn d3_case_3_a_forgotten_key_runs_again() {
    let bed = Bed::new().await;
    let token = bed.token("user", "ada").await;
    let first = user(&bed, &token, &uuid(1), "john@example.com")
        .send()
        .await;

    // What the end of its time does; the clock itself is moved where there is a process to do it to.
    let operate = bed.demo.engine().store().operate().unwrap();
    let page = onlyonce::core::operate::Page {
        after: None,
        records_max: 10,
    };
    for (slot, _) in operate.list(&Default::default(), &page).await.unwrap() {
        operate.forget(&slot).await.unwrap();
    }
    let second = user(&bed, &token, &uuid(1), "john@example.com")
        .send()
        .await;

    assert_ne!(
        first.json()["payload"]["user_id"],
        second.json()["payload"]["user_id"]
    );
    assert_eq!(users(&bed, &token).await, 2);
}

#[tokio::test]
async fn d3_case_4_a_modified_operation_needs_a_new_key() {
    let bed = Bed::new().await;
    let token = bed.token("user", "ada").await;

    let first = user(&bed, &token, &uuid(1), "john@example.com")
        .send()
        .await;
    let stale = user(&bed, &token, &uuid(1), "john.doe@example.com")
        .send()
        .await;
    let anew = user(&bed, &token, &uuid(2), "john.doe@example.com")
        .send()
        .await;

    // The document compares no payload: under the old key the change is not made.
    assert_eq!((stale.status, &stale.text), (first.status, &first.text));
    assert_eq!(anew.status, 201);
    assert_ne!(anew.text, first.text);
}

#[tokio::test]
async fn d3_a_failure_is_cached_and_returned_as_a_failure() {
    let bed = Bed::new().await;
    let token = bed.token("user", "ada").await;

    let first = user(&bed, &token, &uuid(1), "").send().await;
    let retry = user(&bed, &token, &uuid(1), "").send().await;

    assert_eq!(
        (first.status.as_u16(), &first.json()["error"]["code"]),
        (422, &json!("VALIDATION_ERROR"))
    );
    assert_eq!((retry.status, &retry.text), (first.status, &first.text));
    assert_eq!(bed.get("/demo/stats").await.json()["replays"], json!(1));
}

#[tokio::test]
async fn d3_keys_are_scoped_by_user_and_a_refreshed_token_is_the_same_user() {
    let bed = Bed::new().await;
    let (ada, bob) = (
        bed.token("user", "ada").await,
        bed.token("user", "bob").await,
    );

    let by_ada = user(&bed, &ada, &uuid(1), "john@example.com").send().await;
    let by_bob = user(&bed, &bob, &uuid(1), "john@example.com").send().await;
    let refreshed = bed.token("user", "ada").await;
    let again = user(&bed, &refreshed, &uuid(1), "john@example.com")
        .send()
        .await;
    let nobody = bed
        .post("/api/v1/users")
        .key(&uuid(1))
        .json(json!({"meta": {}, "payload": {}}))
        .send()
        .await;

    assert_ne!(by_ada.text, by_bob.text);
    assert!(ada != refreshed && again.text == by_ada.text);
    assert_eq!((users(&bed, &ada).await, users(&bed, &bob).await), (1, 1));
    assert_eq!(
        (nobody.status.as_u16(), &nobody.json()["error"]["code"]),
        (401, &json!("UNAUTHORIZED"))
    );
}

#[tokio::test]
async fn d3_keys_are_uuids_of_version_4() {
    let bed = Bed::new().await;
    let token = bed.token("user", "ada").await;

    for bad in ["operation-1", "550e8400-e29b-11d4-a716-446655440000"] {
        let refused = user(&bed, &token, bad, "a@example.com").send().await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json()["error"]["code"]),
            (400, &json!("INVALID_IDEMPOTENCY_KEY"))
        );
    }
    let missing = bed
        .post("/api/v1/users")
        .token(&token)
        .json(json!({"meta": {}, "payload": {}}))
        .send()
        .await;
    assert_eq!(
        (missing.status.as_u16(), &missing.json()["error"]["code"]),
        (400, &json!("MISSING_IDEMPOTENCY_KEY"))
    );
    assert_eq!(
        user(
            &bed,
            &token,
            "550e8400-e29b-41d4-a716-446655440000",
            "a@example.com"
        )
        .send()
        .await
        .status,
        201
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_load_test_ten_thousand_requests_of_which_a_tenth_are_retries() {
    const REQUESTS: usize = 10_000;
    let bed = Bed::start(&Options::new(database("demo_load").await), None).await;
    let token = bed.token("user", "ada").await;
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut done: Vec<u64> = Vec::new();
    let mut next = 0;

    // In waves, so that a retry is one of something that was answered.
    for _ in 0..REQUESTS / 100 {
        let mut wave: Vec<u64> = Vec::new();
        for _ in 0..100 {
            let retry = rng.random_bool(0.1) && !done.is_empty();
            let n = if retry {
                *done.choose(&mut rng).unwrap()
            } else {
                next += 1;
                next
            };
            wave.push(n);
        }
        let mut calls = JoinSet::new();
        for n in &wave {
            let email = format!("user{n}@example.com");
            calls.spawn(user(&bed, &token, &uuid(*n), &email).send());
        }
        for answer in calls.join_all().await {
            assert_eq!(answer.status, 201, "{answer:?}");
        }
        done.extend(wave);
    }

    let stats: Value = bed.get("/demo/stats").await.json();
    let hit_rate = stats["hitRate"].as_f64().unwrap();
    assert!(hit_rate > 0.09 && hit_rate < 0.11, "{stats}");
    assert_eq!(users(&bed, &token).await, i64::try_from(next).unwrap());
}
