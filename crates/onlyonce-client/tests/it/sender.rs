//! Retries: when, how often, and with which key.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderValue;
use onlyonce_client::{Cause, Keys, Operation, OperationError, Retry, Sender};
use onlyonce_core::{Entropy, Policy};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use crate::chaos::proxy::{Fate, Proxy};
use crate::support::{Say, Script, Service, http, operation};

struct Seeded(Mutex<ChaCha8Rng>);

impl Entropy for Seeded {
    fn fill(&self, out: &mut [u8]) {
        self.0.lock().unwrap().fill_bytes(out);
    }
}

fn seeded(seed: u64) -> Arc<Seeded> {
    Arc::new(Seeded(Mutex::new(ChaCha8Rng::seed_from_u64(seed))))
}

/// The pauses between the attempts of a script.
fn pauses(script: &Script) -> Vec<Duration> {
    let seen = script.seen();
    seen.windows(2).map(|two| two[1].at - two[0].at).collect()
}

#[tokio::test]
async fn a_lost_answer_is_fetched_again_with_the_same_key() {
    let service = Service::start(Policy::default()).await;
    let proxy = Proxy::start(&service.address, [Fate::LoseReply, Fate::LoseRequest]).await;
    let quick = Retry {
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(1),
        ..Retry::default()
    };
    let sender = Sender::new(http()).retry(quick);
    let operation = Operation::post(&format!("{}/apply/a", proxy.address)).unwrap();

    let sent = sender
        .send(&operation, &Keys::default().v4())
        .await
        .unwrap();

    assert_eq!(service.applied()["a"], 1);
    assert_eq!((sent.attempts, sent.is_replayed), (3, true));
    assert_eq!(sent.reply.status, 201);
    assert_eq!(sent.reply.body, r#"{"applied":"a"}"#);
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_tried_three_times_with_growing_random_pauses() {
    let mut all = Vec::new();
    for seed in 0..50 {
        let script = Script::new([Say::Cut, Say::Status(503), Say::NotSent]);
        let sender = script.sender().entropy(seeded(seed));

        let failure = sender
            .send(&operation("a"), &Keys::default().v4())
            .await
            .unwrap_err();

        assert_eq!((failure.attempts, failure.cause), (3, Cause::Unreachable));
        let keys = script.keys();
        assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]));
        all.push(pauses(&script));
    }
    let longest = |nth: usize| all.iter().map(|pauses| pauses[nth]).max().unwrap();
    assert!(all.iter().all(|it| it[0] <= Duration::from_secs(1) + MILLI));
    assert!(all.iter().all(|it| it[1] <= Duration::from_secs(2) + MILLI));
    assert!(longest(0) > Duration::from_millis(700) && longest(1) > Duration::from_millis(1400));
}

/// Timers are that coarse.
const MILLI: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn the_same_seed_makes_the_same_pauses() {
    let run = async |seed| {
        let script = Script::new([Say::Cut, Say::Cut]);
        let sender = script.sender().entropy(seeded(seed));
        sender
            .send(&operation("a"), &Keys::default().v4())
            .await
            .unwrap();
        pauses(&script)
    };

    assert_eq!(run(7).await, run(7).await);
    assert_ne!(run(7).await, run(8).await);
}

#[tokio::test(start_paused = true)]
async fn an_operation_in_progress_is_awaited_every_2_s_however_often() {
    let busy = || {
        Say::Json(
            409,
            json!({"error": {"code": "CONCURRENT_REQUEST", "message": "busy"}}),
        )
    };
    let script = Script::new((0..10).map(|_| busy()));

    let sent = script
        .sender()
        .send(&operation("a"), &Keys::default().v4())
        .await
        .unwrap();

    assert_eq!(sent.attempts, 11);
    assert_eq!(pauses(&script), [Duration::from_secs(2); 10]);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_operation_in_progress_has_an_end() {
    let busy = || Say::Json(409, json!({"error": {"code": "CONCURRENT_REQUEST"}}));
    let script = Script::new((0..1000).map(|_| busy()));

    let failure = script
        .sender()
        .send(&operation("a"), &Keys::default().v4())
        .await
        .unwrap_err();

    assert_eq!(failure.cause, Cause::InProgress);
    assert_eq!(failure.attempts, 61);
}

#[tokio::test(start_paused = true)]
async fn the_service_s_own_pause_is_kept() {
    let script = Script::new([Say::RetryAfter(429, 17), Say::RetryAfter(503, 40)]);

    script
        .sender()
        .send(&operation("a"), &Keys::default().v4())
        .await
        .unwrap();

    assert_eq!(pauses(&script), [17, 40].map(Duration::from_secs));
}

#[tokio::test(start_paused = true)]
async fn a_pause_beyond_the_whole_budget_is_left_to_the_caller() {
    let script = Script::new([Say::RetryAfter(503, 3600)]);

    let failure = script
        .sender()
        .send(&operation("a"), &Keys::default().v4())
        .await
        .unwrap_err();

    assert_eq!(failure.retry_after, Some(Duration::from_secs(3600)));
    assert_eq!(failure.attempts, 1);
    assert!(failure.cause.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_takes_30_s_at_most_and_its_outcome_is_open() {
    let script = Script::new([Say::Hang, Say::Hang, Say::Hang]);

    let failure = script
        .sender()
        .send(&operation("a"), &Keys::default().v4())
        .await
        .unwrap_err();

    assert_eq!((failure.cause, failure.attempts), (Cause::Interrupted, 3));
    assert!(failure.may_have_run());
    assert!(
        pauses(&script)
            .iter()
            .all(|pause| *pause >= Duration::from_secs(30))
    );
}

/// The last attempt alone would say that nothing ran.
#[tokio::test(start_paused = true)]
async fn what_an_earlier_attempt_may_have_done_is_not_forgotten() {
    let not_run = || json!({"type": "urn:onlyonce:problem:not-run", "retryable": true});
    let mismatch = json!({"type": "urn:onlyonce:problem:mismatch", "retryable": false});
    for (says, cause) in [
        (
            vec![Say::Cut, Say::NotSent, Say::NotSent],
            Cause::Unreachable,
        ),
        (
            vec![Say::NotSent, Say::Cut, Say::Json(503, not_run())],
            Cause::NotRun,
        ),
        (
            vec![Say::Cut, Say::Json(503, not_run()), Say::NotSent],
            Cause::Unreachable,
        ),
        (vec![Say::Cut, Say::Status(401)], Cause::Unauthorised),
        (vec![Say::Status(504), Say::Status(400)], Cause::Rejected),
        (vec![Say::Cut, Say::Json(422, mismatch)], Cause::Conflict),
    ] {
        let sender = Script::new(says).sender();

        let failure = sender.send(&operation("a"), &Keys::default().v4()).await;

        let failure = failure.unwrap_err();
        assert_eq!(failure.cause, cause);
        assert!(!failure.cause.may_have_run(), "{failure}");
        assert!(failure.may_have_run(), "{failure}");
        let said = failure.to_string();
        assert!(
            said.contains("an earlier attempt may have taken effect"),
            "{said}"
        );
        assert!(!said.contains("the operation did not run"), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_never_ran_is_said_never_to_have_run() {
    let not_run = json!({"type": "urn:onlyonce:problem:not-run", "retryable": true});
    let kept = Say::With(400, "idempotent-replayed", "true", "{}");
    for says in [
        vec![Say::NotSent, Say::NotSent, Say::NotSent],
        vec![Say::NotSent, Say::Json(503, not_run), Say::NotSent],
        // What the service has kept is the answer to the first attempt.
        vec![Say::Cut, kept],
    ] {
        let sender = Script::new(says).sender();

        let failure = sender.send(&operation("a"), &Keys::default().v4()).await;

        let failure = failure.unwrap_err();
        assert!(!failure.may_have_run(), "{failure}");
        assert!(!failure.to_string().contains("earlier"), "{failure}");
    }
}

/// The service has had earlier attempts that this sender knows nothing of.
#[tokio::test(start_paused = true)]
async fn a_service_that_speaks_of_an_earlier_attempt_is_believed() {
    let detail = "the operation could not be started: an earlier attempt under this key may have \
                  taken effect, and a retry with the same key may run it again";
    let not_run = json!({"type": "urn:onlyonce:problem:not-run", "detail": detail});
    let script = Script::new([Say::Json(503, not_run)]);
    let (sender, operation, key) = (script.sender(), operation("a"), Keys::default().v4());

    let failure = sender.attempt(&operation, &key).await.unwrap_err();

    assert_eq!(failure.cause, Cause::NotRun);
    assert!(failure.may_have_run(), "{failure}");
    let said = failure.to_string();
    assert!(!said.contains("the operation did not run"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn what_the_service_says_no_to_is_not_sent_again() {
    let mismatch = json!({"type": "urn:onlyonce:problem:mismatch", "retryable": false});
    let unknown = json!({"type": "urn:onlyonce:problem:outcome-unknown", "retryable": false});
    for (say, cause) in [
        (Say::Json(422, mismatch), Cause::Conflict),
        (Say::Json(409, unknown), Cause::OutcomeUnknown),
        (Say::Status(400), Cause::Rejected),
        (Say::Status(401), Cause::Unauthorised),
        (Say::Status(413), Cause::RequestTooLarge),
    ] {
        let script = Script::new([say]);

        let failure = script
            .sender()
            .send(&operation("a"), &Keys::default().v4())
            .await
            .unwrap_err();

        assert_eq!((failure.cause, script.seen().len()), (cause, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn all_operations_together_have_a_budget_of_retries() {
    let script = Script::new((0..100).map(|_| Say::Status(503)));
    let sender = script.sender().retry_budget(1, 0.0);

    for _ in 0..20 {
        sender
            .send(&operation("a"), &Keys::default().v4())
            .await
            .unwrap_err();
    }

    let counts = sender.counts();
    assert!(counts.retries < 40, "{counts:?}");
    assert!(counts.throttled > 0, "{counts:?}");
    assert_eq!(counts.attempts, 20 + counts.retries);
}

#[tokio::test(start_paused = true)]
async fn the_counts_tell_what_happened() {
    let script = Script::new([
        Say::Cut,
        Say::Json(200, json!({"idempotent": true})),
        Say::Status(400),
    ]);
    let sender = script.sender();

    sender
        .send(&operation("a"), &Keys::default().v4())
        .await
        .unwrap();
    sender
        .send(&operation("b"), &Keys::default().v4())
        .await
        .unwrap_err();

    let counts = sender.counts();
    assert_eq!((counts.attempts, counts.retries), (3, 1));
    assert_eq!((counts.succeeded, counts.replayed), (1, 1));
    assert_eq!(counts.failed(Cause::Interrupted), 1);
    assert_eq!(counts.failed(Cause::Rejected), 1);
    assert_eq!(counts.failed(Cause::Conflict), 0);
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_signed_anew() {
    let script = Script::new([Say::Cut]);
    let token = AtomicU32::new(0);
    let sender = script.sender().sign_with(move |headers| {
        let token = token.fetch_add(1, Ordering::SeqCst);
        headers.insert("authorization", HeaderValue::from(token));
        headers.insert("idempotency-key", HeaderValue::from_static("not-this"));
    });
    let key = Keys::default().v4();

    sender.send(&operation("a"), &key).await.unwrap();

    let seen = script.seen();
    let tokens: Vec<_> = seen
        .iter()
        .map(|seen| seen.authorization.as_deref())
        .collect();
    assert_eq!(tokens, [Some("0"), Some("1")]);
    assert!(script.keys().iter().all(|sent| sent == key.expose()));
}

#[test]
fn a_credential_is_no_part_of_an_operation() {
    let bare = Operation::post("https://a.test/x").unwrap();
    let refused = |result: Result<Operation, OperationError>| {
        matches!(result, Err(OperationError::Credential { .. }))
    };

    assert!(refused(
        bare.clone().header(http::header::AUTHORIZATION, "Bearer x")
    ));
    assert!(refused(bare.header(http::header::COOKIE, "a=b")));
    assert!(refused(Operation::post("https://user:word@a.test/x")));
}

#[test]
fn what_cannot_be_sent_is_no_operation() {
    for url in ["", "/users", "ftp://a.test/", "http://"] {
        let error = Operation::post(url).unwrap_err();
        assert!(
            error.to_string().contains("https://api.example.org/users"),
            "{url}"
        );
    }
    let bare = Operation::post("https://a.test/x").unwrap();
    assert!(bare.clone().header(http::header::ACCEPT, "a\nb").is_err());
    let large = vec![0; onlyonce_client::BODY_BYTES_MAX + 1];
    assert!(bare.body("text/plain", large).is_err());
}

#[tokio::test(start_paused = true)]
async fn neither_keys_nor_bodies_are_shown() {
    let script = Script::new([Say::Status(400)]);
    let secret = Operation::post("http://a.test/x")
        .unwrap()
        .json(&"body-secret")
        .unwrap();
    let key = Keys::default().v4();

    let failure = script.sender().send(&secret, &key).await.unwrap_err();

    let shown = format!("{secret:?} {key:?} {failure:?} {failure}");
    assert!(
        !shown.contains("body-secret") && !shown.contains(key.expose()),
        "{shown}"
    );
}
