//! What a record tells (R1): everything of its claim, and everything of its answer.

#![expect(missing_docs, reason = "the names are the sentences")]

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use onlyonce_core::key::Hint;
use onlyonce_core::operate::StateName;
use onlyonce_core::{Claim, Fingerprint, Meta, OnLapse, Origin, Response, State};

use super::TestBed;
use super::subject::{Subject, answer, body, fingerprint};
use super::timing::{LONG, PAST_SHORT, SHORT, SLACK, Stopwatch};

pub async fn a_pending_record_tells_everything_of_its_claim(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
        let claim = Claim {
            on_lapse,
            fingerprint: Fingerprint::new(200, std::array::from_fn(|i| 255 - i as u8)),
            keep_for: 2 * LONG,
            ..store.fresh()
        };
        let watch = Stopwatch::start();
        store.lease(&claim).await;

        let record = store.record(&claim).await;

        assert_eq!(record.token, claim.token);
        assert_eq!(record.fingerprint, claim.fingerprint);
        assert_eq!(record.on_lapse, on_lapse);
        assert_eq!(record.attempt, 1);
        assert_eq!(record.meta, claim.meta);
        assert_eq!(record.completed_at, None);
        assert_eq!(record.replays, 0);
        assert_eq!(StateName::of(&record), StateName::Pending);
        watch.assert_counted_from_now(record.keep_left, 3 * LONG);
        let shown = record.expires_at.as_millis() - record.created_at.as_millis();
        let off = Duration::from_millis(shown).abs_diff(3 * LONG);
        assert!(off <= SLACK, "to be kept for {shown} ms");
    }
}

pub async fn what_a_claim_does_not_tell_stays_untold(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        meta: Arc::new(Meta {
            hint: Hint::default(),
            operation: "".into(),
            actor: None,
            holder: "".into(),
            trace: None,
            credential: None,
        }),
        ..store.fresh()
    };
    let lease = store.lease(&claim).await;
    store.stored(&lease, &answer("stored"), LONG).await;

    let record = store.record(&claim).await;

    assert_eq!(record.meta, claim.meta);
    let response = record.response().expect("it is finished");
    assert_eq!(response.resource, None);
    assert_eq!(response.trailers, None);
}

pub async fn text_for_people_may_be_in_any_script(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        meta: Arc::new(Meta {
            hint: Hint::default(),
            operation: "POST /Größe/价格/🦀".into(),
            actor: Some("O'Brien \"Ω\" \\ % _ \u{1F9C0}".into()),
            holder: "host\tone\nline two".into(),
            trace: Some("".into()),
            credential: Some([0xff; 32]),
        }),
        ..store.fresh()
    };
    store.lease(&claim).await;

    assert_eq!(store.record(&claim).await.meta, claim.meta);
}

pub async fn a_finished_record_tells_everything_of_its_claim_and_answer(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        fingerprint: fingerprint(9),
        ..store.fresh()
    };
    let lease = store.lease(&claim).await;
    let response = Arc::new(full_response());

    let receipt = store.stored(&lease, &response, LONG).await;

    let record = store.taken(&store.rival(&claim)).await;
    assert_eq!(record.token, claim.token);
    assert_eq!(record.fingerprint, claim.fingerprint);
    assert_eq!(record.on_lapse, claim.on_lapse);
    assert_eq!(record.attempt, 1);
    assert_eq!(record.meta, claim.meta);
    assert_eq!(record.created_at, receipt.created_at);
    assert_eq!(record.completed_at, Some(receipt.completed_at));
    assert_eq!(record.expires_at, receipt.expires_at);
    assert!(receipt.created_at.as_millis() <= receipt.completed_at.as_millis());
    assert_eq!(record.state, State::Done(response));
}

pub async fn a_later_attempt_is_told_with_its_answer(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lapsed = store.lapsed(OnLapse::Rerun).await;
    let successor = store.rival(&lapsed);
    let lease = store.lease(&successor).await;
    store.stored(&lease, &answer("stored"), LONG).await;

    let record = store.record(&lapsed).await;

    assert_eq!(record.attempt, 2);
    assert_eq!(record.token, successor.token);
    assert_eq!(record.meta, successor.meta);
}

pub async fn an_unknown_outcome_tells_everything_of_its_claim(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.unknown().await;

    let record = store.record(&claim).await;

    assert_eq!(record.state, State::Unknown);
    assert_eq!(record.token, claim.token);
    assert_eq!(record.fingerprint, claim.fingerprint);
    assert_eq!(record.on_lapse, OnLapse::Hold);
    assert_eq!(record.meta, claim.meta);
    assert_eq!(record.completed_at, None);
}

pub async fn a_record_reads_the_same_each_time(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.done("stored").await;
    let first = store.record(&claim).await;

    bed.advance(PAST_SHORT).await;
    let later = store.record(&claim).await;
    let taken = store.taken(&store.rival(&claim)).await;

    for record in [&later, &taken] {
        assert_eq!(record.created_at, first.created_at);
        assert_eq!(record.completed_at, first.completed_at);
        assert_eq!(record.expires_at, first.expires_at);
        assert_eq!(record.state, first.state);
        assert!(record.keep_left < first.keep_left);
    }
}

pub async fn an_answer_in_a_reused_slot_is_the_new_one(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    store
        .stored(&lease, &Arc::new(full_response()), SHORT)
        .await;
    bed.advance(PAST_SHORT).await;
    let next = store.rival(&claim);
    let lease = store.lease(&next).await;

    assert_eq!(store.record(&next).await.completed_at, None);
    store.stored(&lease, &answer("new"), LONG).await;

    let record = store.record(&next).await;
    assert_eq!(body(&record), b"new");
    assert_eq!(record.state, State::Done(answer("new")));
}

/// A response with something in every field.
fn full_response() -> Response {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("location", "/payments/7"),
        ("etag", "\"7\""),
        ("link", "</a>; rel=next"),
        ("x-empty", ""),
        ("link", "</b>; rel=prev"),
    ] {
        headers.append(name, HeaderValue::from_static(value));
    }
    let mut trailers = HeaderMap::new();
    for (name, value) in [("grpc-status", "0"), ("x-sum", "1"), ("x-sum", "2")] {
        trailers.append(name, HeaderValue::from_static(value));
    }
    Response {
        status: StatusCode::CREATED,
        headers,
        body: (0..=255).collect(),
        trailers: Some(trailers),
        origin: Origin::Handler,
        took: Duration::new(1, 234_567_891),
        resource: Some("payment/7 🧾".into()),
    }
}
