//! Whatever an answer holds, it comes back; whichever bit of it is changed, it does not.

use http::HeaderName;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tokio::runtime::Builder;

use super::*;

fn fields() -> impl Strategy<Value = HeaderMap> {
    let byte = prop_oneof![Just(b'\t'), 0x20..0x7f_u8, 0x80..=0xff_u8];
    // Few names, so that some are repeated.
    let name = prop_oneof!["[a-c]", "[a-z][a-z0-9-]{0,12}", "onlyonce-sealed"];
    vec((name, vec(byte, 0..12)), 0..8).prop_map(|fields| {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_bytes(&value).unwrap(),
            );
        }
        map
    })
}

prop_compose! {
    fn responses()(
        status in 100..1000_u16,
        headers in fields(),
        body in prop_oneof![vec(any::<u8>(), 0..300), vec(0..2_u8, 2000..4000)],
        trailers in option::of(fields()),
        origin in prop_oneof![
            Just(Origin::Handler), Just(Origin::Panicked), Just(Origin::TooLarge),
        ],
        took in any::<Duration>(),
        resource in option::of(".{0,10}"),
    ) -> Response {
        Response {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: body.into(),
            trailers,
            origin,
            took,
            resource,
        }
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.unwrap().block_on(test)
}

/// A claim with this answer, stored under seal.
async fn done_with(store: &Sealed, response: Response) -> Claim {
    let claim = claim();
    let lease = lease(store, &claim).await;
    store
        .complete(&lease, &Arc::new(response), LONG)
        .await
        .unwrap();
    claim
}

proptest! {
    #[test]
    fn any_answer_comes_back_exactly(response in responses(), compress_above in 0..2000_usize) {
        run(async {
            let (_, store) = bed().await;
            let store = store.compress_above(compress_above);

            let claim = done_with(&store, response.clone()).await;

            let record = taken(&store, &claim).await;
            assert_eq!(record.state, State::finished(Arc::new(response)));
            assert_eq!(record.fingerprint, claim.fingerprint);
        });
    }

    #[test]
    fn any_flipped_bit_is_refused(response in responses(), at: prop::sample::Index) {
        run(async {
            let (raw, store) = bed().await;
            let claim = done_with(&store, response).await;
            let record = stored(&*raw, &claim.slot).await;
            let mut changed = response_of(&record);

            let mut body = changed.body.to_vec();
            let bit = at.index(8 * body.len());
            body[bit / 8] ^= 1 << (bit % 8);
            changed.body = body.into();
            put(&raw, &claim.slot, &record, changed).await;

            let (kind, _) = failure(store.claim(&rival(&claim)).await);
            assert_eq!(kind, StoreErrorKind::Corrupt);
        });
    }
}

/// Every bit of one whole sealed answer, and of what it is bound to.
#[test]
fn every_flipped_bit_of_a_record_is_refused() {
    run(async {
        let (raw, store) = bed().await;
        let claim = done_with(&store, secrets()).await;
        let record = stored(&*raw, &claim.slot).await;
        let response = response_of(&record);
        let mark = response.headers["onlyonce-sealed"].as_bytes().to_vec();
        let refused = |claim: Claim| {
            let store = &store;
            async move { failure(store.claim(&rival(&claim)).await).0 == StoreErrorKind::Corrupt }
        };

        for bit in 0..8 * response.body.len() {
            let mut changed = response.clone();
            changed.body = flipped(&response.body, bit).into();
            put(&raw, &claim.slot, &record, changed).await;
            assert!(refused(claim.clone()).await, "bit {bit} of the body");
        }
        for bit in 0..8 * mark.len() {
            let mut changed = response.clone();
            let Ok(value) = HeaderValue::from_bytes(&flipped(&mark, bit)) else {
                continue;
            };
            changed.headers.insert("onlyonce-sealed", value);
            put(&raw, &claim.slot, &record, changed).await;
            assert!(refused(claim.clone()).await, "bit {bit} of the mark");
        }
        for bit in 0..8 * 33 {
            let bytes = flipped(&record.fingerprint.to_bytes(), bit);
            let changed = Record {
                fingerprint: Fingerprint::from_bytes(&bytes).unwrap(),
                ..record.clone()
            };
            put(&raw, &claim.slot, &changed, response.clone()).await;
            assert!(refused(claim.clone()).await, "bit {bit} of the fingerprint");
        }
        for bit in 0..8 * 16 {
            let bytes = flipped(record.token.as_bytes(), bit);
            let changed = Record {
                token: onlyonce_core::Token::from_bytes(bytes.try_into().unwrap()),
                ..record.clone()
            };
            put(&raw, &claim.slot, &changed, response.clone()).await;
            assert!(refused(claim.clone()).await, "bit {bit} of the token");
        }
    });
}

fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}
