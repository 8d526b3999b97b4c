//! What someone who can write to the store may try: nothing of it is ever shown as an answer.

use onlyonce_core::{Entropy, Token};

use super::*;

/// That a caller who asks for the record gets an error, and nothing runs.
async fn assert_refused(store: &Sealed, claim: &Claim, why: &str) {
    let claimed = store.claim(&rival(claim)).await;
    let completed = store.complete(&claim.lease(), &answer("late"), LONG).await;
    let released = store.release(&claim.lease(), Release::NotRun).await;
    let got = store.get(&claim.slot).await;
    let listed = store.list(&Default::default(), &page()).await;

    let failures = [
        failure(claimed),
        failure(completed),
        failure(released),
        failure(got),
        failure(listed),
    ];
    for (kind, said) in failures {
        assert_eq!(kind, StoreErrorKind::Corrupt, "{said}");
        assert!(
            said.starts_with("sealed store: a stored record cannot be read: "),
            "{said}"
        );
        assert!(said.contains(why), "{said}");
    }
}

fn page() -> onlyonce_core::operate::Page {
    onlyonce_core::operate::Page {
        after: None,
        records_max: 10,
    }
}

/// The stored record of a finished claim, and what of it `change` makes.
async fn tampered(
    store: &Sealed,
    raw: &MemoryStore,
    change: impl FnOnce(&mut Record, &mut Response),
) -> Claim {
    let claim = done(store, "stored", LONG).await;
    let mut record = stored(raw, &claim.slot).await;
    let mut response = response_of(&record);
    change(&mut record, &mut response);
    put(raw, &claim.slot, &record, response).await;
    Claim {
        token: record.token,
        ..claim
    }
}

#[tokio::test]
async fn a_record_put_back_as_it_was_is_itself() {
    let (raw, store) = bed().await;

    let claim = tampered(&store, &raw, |_, _| {}).await;

    assert_eq!(replayed(&store, &claim).await, b"stored");
}

#[tokio::test]
async fn a_body_that_was_changed_is_refused() {
    let changes: [fn(Vec<u8>) -> Vec<u8>; 7] = [
        |_| Vec::new(),
        |body| body[..23].to_vec(),
        |body| body[..24].to_vec(),
        |body| body[..39].to_vec(),
        |body| body[..body.len() - 1].to_vec(),
        |body| [&body[..], b"\0"].concat(),
        |mut body| {
            body[..24].rotate_left(1);
            body
        },
    ];

    for change in changes {
        let (raw, store) = bed().await;
        let claim = tampered(&store, &raw, |_, response| {
            response.body = change(response.body.to_vec()).into();
        })
        .await;

        assert_refused(&store, &claim, "is broken").await;
    }
}

#[tokio::test]
async fn an_error_about_a_broken_seal_names_the_slot_to_forget() {
    let (raw, store) = bed().await;
    let claim = tampered(&store, &raw, |_, response| response.body.clear()).await;

    assert_refused(&store, &claim, &claim.slot.to_string()).await;

    assert!(store.forget(&claim.slot).await.unwrap());
    assert!(is_granted(&store, &claim).await);
}

#[tokio::test]
async fn a_status_origin_or_time_that_was_changed_is_refused() {
    let changes: [fn(&mut Response); 5] = [
        |it| it.status = StatusCode::BAD_REQUEST,
        |it| it.status = StatusCode::OK,
        |it| it.origin = Origin::Panicked,
        |it| it.took += Duration::from_nanos(1),
        |it| it.resource = Some("payment/8".to_owned()),
    ];

    for change in changes {
        let (raw, store) = bed().await;
        let claim = tampered(&store, &raw, |_, response| change(response)).await;

        assert_refused(&store, &claim, "is broken").await;
    }
}

#[tokio::test]
async fn headers_and_trailers_that_were_added_are_refused() {
    let changes: [fn(&mut Response); 3] = [
        |it| {
            it.headers
                .insert("location", HeaderValue::from_static("/7"));
        },
        |it| {
            it.headers
                .append("onlyonce-sealed", HeaderValue::from_static("1;key=a"));
        },
        |it| it.trailers = Some(HeaderMap::new()),
    ];

    for change in changes {
        let (raw, store) = bed().await;
        let claim = tampered(&store, &raw, |_, response| change(response)).await;

        assert_refused(&store, &claim, "is broken").await;
    }
}

#[tokio::test]
async fn another_mark_is_refused() {
    for (mark, why) in [
        ("1;key=a;zstd", "is broken"),
        (
            "1;key=A",
            "sealed with key `A`, which is not in the ring: add it back",
        ),
        ("2;key=a", "sealed in format 2, this build reads 1: upgrade"),
        ("", "is broken"),
    ] {
        let (raw, store) = bed().await;
        let claim = tampered(&store, &raw, |_, response| {
            let mark = HeaderValue::from_static(mark);
            response.headers.insert("onlyonce-sealed", mark);
        })
        .await;

        assert_refused(&store, &claim, why).await;
    }
}

#[tokio::test]
async fn the_compressed_form_is_not_taken_for_the_bare_one() {
    let (raw, store) = bed().await;
    let store = store.compress_above(0);
    let text = "again and again ".repeat(50);
    let claim = claim();
    let lease = lease(&store, &claim).await;
    let response = Arc::new(Response::new(StatusCode::OK, text));
    store.complete(&lease, &response, LONG).await.unwrap();

    let record = stored(&*raw, &claim.slot).await;
    let mut bare = response_of(&record);
    assert_eq!(bare.headers["onlyonce-sealed"], "1;key=a;zstd");
    let mark = HeaderValue::from_static("1;key=a");
    bare.headers.insert("onlyonce-sealed", mark);
    put(&raw, &claim.slot, &record, bare).await;

    assert_refused(&store, &claim, "is broken").await;
}

#[tokio::test]
async fn two_records_cannot_swap_their_answers() {
    let (raw, store) = bed().await;
    let one = done(&store, "one", LONG).await;
    let two = done(&store, "two", LONG).await;
    let (one_kept, two_kept) = (
        stored(&*raw, &one.slot).await,
        stored(&*raw, &two.slot).await,
    );

    put(&raw, &one.slot, &one_kept, response_of(&two_kept)).await;
    assert_refused(&store, &one, "is broken").await;
    put(&raw, &one.slot, &two_kept, response_of(&two_kept)).await;

    // With token and fingerprint moved along, it is neither a replay nor a new run.
    let (kind, _) = failure(store.claim(&rival(&one)).await);
    assert_eq!(kind, StoreErrorKind::Corrupt);
    assert_eq!(replayed(&store, &two).await, b"two");
}

#[tokio::test]
async fn an_older_answer_of_the_same_slot_is_refused() {
    let (raw, store) = bed().await;
    let first = done(&store, "first", LONG).await;
    let old = response_of(&stored(&*raw, &first.slot).await);
    store.forget(&first.slot).await.unwrap();
    let second = rival(&first);
    let lease = lease(&store, &second).await;
    store
        .complete(&lease, &answer("second"), LONG)
        .await
        .unwrap();

    let record = stored(&*raw, &first.slot).await;
    put(&raw, &first.slot, &record, old).await;

    assert_refused(&store, &second, "is broken").await;
}

#[tokio::test]
async fn another_token_or_fingerprint_is_refused() {
    let changes: [fn(&mut Record); 3] = [
        |it| it.token = Token::generate(&OsEntropy::new()),
        |it| {
            let mut digest = *it.fingerprint.digest();
            OsEntropy::new().fill(&mut digest);
            it.fingerprint = Fingerprint::new(it.fingerprint.recipe(), digest);
        },
        |it| it.fingerprint = Fingerprint::new(9, *it.fingerprint.digest()),
    ];

    for change in changes {
        let (raw, store) = bed().await;
        let claim = tampered(&store, &raw, |record, _| change(record)).await;

        assert_refused(&store, &claim, "is broken").await;
    }
}

#[tokio::test]
async fn one_broken_record_does_not_hide_another_from_its_caller() {
    let (raw, store) = bed().await;
    let good = done(&store, "good", LONG).await;
    tampered(&store, &raw, |_, response| response.body.clear()).await;

    assert_eq!(replayed(&store, &good).await, b"good");
}
