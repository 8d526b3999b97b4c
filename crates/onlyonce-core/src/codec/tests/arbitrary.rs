//! Records of every state, with whatever a record may hold.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

fn fields() -> impl Strategy<Value = HeaderMap> {
    let byte = prop_oneof![Just(b'\t'), 0x20..0x7f_u8, 0x80..=0xff_u8];
    // Few names, so that some are repeated.
    let name = prop_oneof!["[a-c]", "[a-z][a-z0-9-]{0,12}"];
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
        body in vec(any::<u8>(), 0..300),
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

fn phases() -> impl Strategy<Value = Phase> {
    prop_oneof![
        any::<Duration>().prop_map(|lease_until| Phase::Pending { lease_until }),
        Just(Phase::Unknown),
        responses().prop_map(|it| Phase::Finished(Arc::new(it))),
    ]
}

prop_compose! {
    fn metas()(
        key in "[!-~]{1,40}",
        operation in ".{0,10}",
        actor in option::of(".{0,10}"),
        holder in ".{0,10}",
        trace in option::of(".{0,10}"),
        credential in option::of(any::<[u8; 32]>()),
    ) -> Meta {
        Meta {
            hint: Key::new(&key, &KeyRule::default()).unwrap().hint(),
            operation: operation.into(),
            actor: actor.map(Into::into),
            holder: holder.into(),
            trace: trace.map(Into::into),
            credential,
        }
    }
}

prop_compose! {
    pub(super) fn records()(
        token in any::<[u8; 16]>(),
        recipe in any::<u8>(),
        digest in any::<[u8; 32]>(),
        on_lapse in prop_oneof![Just(OnLapse::Rerun), Just(OnLapse::Hold)],
        attempt in any::<u32>(),
        meta in metas(),
        created_at in any::<u64>(),
        completed_at in option::of(any::<u64>()),
        expires in any::<Duration>(),
        tail in any::<Duration>(),
        replays in any::<u64>(),
        phase in phases(),
    ) -> Kept {
        Kept {
            token: Token::from_bytes(token),
            fingerprint: Fingerprint::new(recipe, digest),
            on_lapse,
            attempt,
            meta: Arc::new(meta),
            created_at: Timestamp::from_millis(created_at),
            completed_at: completed_at.map(Timestamp::from_millis),
            expires,
            tail,
            replays,
            phase,
        }
    }
}
