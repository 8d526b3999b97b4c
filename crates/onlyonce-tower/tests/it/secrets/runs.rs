//! One request after the other, each full of secrets, into every kind of outcome.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderName, HeaderValue};
use onlyonce_core::policy::{Duplicate, KeyNeed, StoreDown};
use onlyonce_core::{Event, MemoryStore, OnLapse, Profile, Release, StoreErrorKind};
use onlyonce_tower::ScopePart;

use crate::support::{
    Answer, App, Ask, Broken, Builder, Faulty, Frames, Gate, ask, numbered, post,
};

/// The key in the header.
const KEY: &str = "Qx-zebra-lantern-4711-MARMALADE-xylophone";
/// The key in a body.
const FIELD_KEY: &str = "Wv-walrus-thimble-8150-PAPRIKA-zeppelin";
/// A bearer token.
const BEARER: &str = "Jq-otter-chimney-2342-SAFFRON-kettledrum";
/// The signature of another scheme.
const SIGNATURE: &str = "Vk-badger-velvet-9973-OREGANO-trombone";
/// A session cookie.
const COOKIE: &str = "Hz-heron-pebble-6174-CARDAMOM-bassoon";
/// An API key in a header that is part of the scope.
const API_KEY: &str = "Px-magpie-gravel-1729-TURMERIC-clarinet";
/// In the request's body.
const BODY: &str = "Ry-ferret-anvil-5040-CINNAMON-accordion";
/// In the request's query.
const QUERY: &str = "Uz-weasel-lichen-3141-FENUGREEK-harmonica";
/// In a cookie that the handler sets: it is never stored.
const SET_COOKIE: &str = "Mj-falcon-tundra-2718-ASAFOETIDA-ukulele";
/// What a handler says when it fails.
const FAILURE: &str = "Nw-lynx-granite-1618-JUNIPER-glockenspiel";
/// In the response's body: stored for the caller, shown nowhere else.
pub(super) const RESPONSE: &str = "Bf-ibex-sandstone-4669-CORIANDER-vibraphone";

/// Everything that no store, log or event may hold.
pub(super) const SECRETS: &[&str] = &[
    KEY, FIELD_KEY, BEARER, SIGNATURE, COOKIE, API_KEY, BODY, QUERY, SET_COOKIE, FAILURE,
];

/// Those of them that are keys: the start of a long one is told.
pub(super) const KEYS: &[&str] = &[KEY, FIELD_KEY];

/// What came of one outcome.
pub(super) struct Told {
    pub(super) what: &'static str,
    pub(super) app: App,
    /// Our own answers, in which nothing is the handler's.
    pub(super) refusals: Vec<Answer>,
}

/// A request full of secrets.
fn request() -> Ask {
    post(&format!("/orders?token={QUERY}"))
        .key(KEY)
        .bearer(BEARER)
        .header("cookie", format!("sid={COOKIE}"))
        .header("x-api-key", API_KEY)
        .json(&format!(r#"{{"card":"{BODY}","key":"{FIELD_KEY}"}}"#))
}

/// One without a credential, to add another.
fn without_credentials() -> Ask {
    post(&format!("/orders?token={QUERY}"))
        .key(KEY)
        .json(&format!(r#"{{"card":"{BODY}"}}"#))
}

fn app(profile: Profile) -> Builder {
    App::under(profile).answer(|run| answer(200, run))
}

fn answer(status: u16, run: usize) -> http::Response<Body> {
    let mut response = numbered(status, run);
    *response.body_mut() = Body::from(format!(r#"{{"run":{run},"card":"{RESPONSE}"}}"#));
    let cookie = HeaderValue::try_from(format!("sid={SET_COOKIE}")).expect("a cookie");
    response.headers_mut().insert("set-cookie", cookie);
    response
}

/// Every kind of outcome.
pub(super) async fn all() -> Vec<Told> {
    let mut told = Vec::new();
    for profile in Profile::ALL {
        told.push(replayed(profile).await);
    }
    told.extend([
        mismatched().await,
        bad_key().await,
        bad_ttl().await,
        unscoped("per-request scheme", &[&format!("Digest {SIGNATURE}")]).await,
        unscoped("two credentials", &[&format!("Bearer {BEARER}"), SIGNATURE]).await,
        other_credential().await,
        by_cookie_and_header().await,
        key_in_body().await,
        derived().await,
        too_large().await,
        not_kept().await,
        panicked().await,
        failed("not run", Release::NotRun).await,
        failed("unknown", Release::Unknown).await,
        broken_off().await,
        timed_out().await,
        in_progress(Duplicate::Refuse).await,
        in_progress(Duplicate::Wait(Duration::from_secs(30))).await,
        store_failed(StoreDown::Closed, StoreErrorKind::Unavailable).await,
        store_failed(StoreDown::Open, StoreErrorKind::Unavailable).await,
        store_failed(StoreDown::Closed, StoreErrorKind::Corrupt).await,
        not_stored().await,
        shut_down().await,
    ]);
    told
}

fn told(what: &'static str, app: App, refusals: impl IntoIterator<Item = Answer>) -> Told {
    let refusals: Vec<_> = refusals.into_iter().collect();
    assert!(refusals.iter().all(|it| it.status >= 400), "{what}");
    Told {
        what,
        app,
        refusals,
    }
}

async fn replayed(profile: Profile) -> Told {
    // Guardian takes only UUIDs; a weak one is reported. AIP-155 takes nothing longer than one.
    let weak = "11111111-1111-4111-8111-111111111111";
    let request = match profile {
        Profile::Guardian | Profile::Aip155 => request_with_key(weak),
        Profile::Standard
        | Profile::Formbridge
        | Profile::Formbridge008
        | Profile::Broker
        | Profile::Middleware
        | Profile::Ietf
        | Profile::Stripe
        | Profile::StripeV2
        | Profile::RepeatableRequests
        | Profile::Paypal
        | Profile::Square
        | Profile::Acp => request(),
    };
    let app = app(profile).open().await;
    for _ in 0..2 {
        let answer = app.send(&request).await;
        assert!(answer.text().contains(RESPONSE), "{profile}");
    }
    app.engine.flush_replays().await;
    assert_eq!(app.runs(), 1, "{profile}");
    told(profile.name(), app, [])
}

fn request_with_key(key: &str) -> Ask {
    post(&format!("/orders?token={QUERY}"))
        .key(key)
        .bearer(BEARER)
        .json(&format!(r#"{{"card":"{BODY}"}}"#))
}

async fn mismatched() -> Told {
    let app = app(Profile::Standard).open().await;
    app.send(&request()).await;
    let other = request().json(&format!(r#"{{"card":"{FIELD_KEY}"}}"#));
    let refused = app.send(&other).await;
    told("mismatch", app, [refused])
}

async fn bad_key() -> Told {
    let app = app(Profile::Standard)
        .but(|policy| policy.http.key_member = "key".parse().ok())
        .open()
        .await;
    let keys = [
        format!("{KEY}\t{KEY}"),
        format!("\"{KEY}"),
        format!("{KEY} {KEY}"),
        KEY.repeat(10),
        format!("{KEY}\u{e9}"),
    ];
    let mut refused = vec![app.send(&request().key(KEY)).await];
    for key in keys {
        refused.push(app.send(&request_with_key(&key)).await);
    }
    for value in [format!("\"{KEY} {KEY}\""), format!("[\"{KEY}\"]")] {
        let body = format!(r#"{{"key":{value}}}"#);
        refused.push(app.send(&ask("POST", "/orders").json(&body)).await);
    }
    told("bad key", app, refused)
}

async fn bad_ttl() -> Told {
    let app = app(Profile::Middleware).open().await;
    let refused = app.send(&request().header("idempotency-ttl", KEY)).await;
    told("bad time to live", app, [refused])
}

async fn unscoped(what: &'static str, credentials: &[&str]) -> Told {
    let app = app(Profile::Standard).open().await;
    let request = credentials.iter().fold(without_credentials(), |ask, it| {
        ask.header("authorization", it)
    });
    let refused = app.send(&request).await;
    told(what, app, [refused])
}

async fn other_credential() -> Told {
    let app = app(Profile::Standard).open().await;
    // {"alg":"none"} and {"sub":"me"}: the subject is no secret, the token is.
    let claimed = |signature: &str| format!("eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9.{signature}");
    let own = without_credentials().bearer(&claimed(BEARER));
    let other = without_credentials().bearer(&claimed(SIGNATURE));
    app.send(&own).await;
    let refused = app.send(&other).await;
    told("other credential", app, [refused])
}

async fn by_cookie_and_header() -> Told {
    let api_key = ScopePart::Header {
        name: HeaderName::from_static("x-api-key"),
        trusted: true,
    };
    let app = app(Profile::Standard)
        .scope([
            ScopePart::Cookie("sid".into()),
            ScopePart::Body("card".into()),
            api_key,
        ])
        .open()
        .await;
    app.send(&request()).await;
    app.send(&request()).await;
    let refused = app.send(&request().header("x-api-key", API_KEY)).await;
    told("cookie and header", app, [refused])
}

async fn key_in_body() -> Told {
    let app = app(Profile::Standard)
        .but(|policy| policy.http.key_member = "key".parse().ok())
        .open()
        .await;
    let request = post("/orders").json(&format!(r#"{{"key":"{FIELD_KEY}"}}"#));
    app.send(&request).await;
    app.send(&request).await;
    assert_eq!(app.runs(), 1);
    told("key in the body", app, [])
}

async fn derived() -> Told {
    let app = app(Profile::Broker).open().await;
    let form = format!(r#"{{"contextId":"{COOKIE}","formData":{{"card":"{BODY}"}}}}"#);
    let request = post("/forms/1/submit").bearer(BEARER).json(&form);
    app.send(&request).await;
    app.send(&request).await;
    assert_eq!(app.runs(), 1);
    told("derived key", app, [])
}

async fn too_large() -> Told {
    let app = app(Profile::Standard)
        .but(|policy| {
            policy.limits.response_bytes_max = 10;
            policy.limits.request_bytes_max = 200;
        })
        .open()
        .await;
    app.send(&request()).await;
    let marker = app.send(&request()).await;
    let request_too_large = app.send(&request().json(&BODY.repeat(10))).await;
    told("too large", app, [marker, request_too_large])
}

async fn not_kept() -> Told {
    let app = App::under(Profile::Standard)
        .answer(|run| answer(429, run))
        .open()
        .await;
    app.send(&request()).await;
    told("not kept", app, [])
}

async fn panicked() -> Told {
    let app = App::under(Profile::Standard)
        .answer(|_| std::panic::resume_unwind(Box::new(FAILURE)))
        .open()
        .await;
    let refused = [app.send(&request()).await, app.send(&request()).await];
    told("panic", app, refused)
}

async fn failed(what: &'static str, meaning: Release) -> Told {
    let app = App::under(Profile::Standard)
        .but(|policy| policy.on_lapse = OnLapse::Hold)
        .classify(match meaning {
            Release::NotRun => |_| Release::NotRun,
            Release::Unknown => |_| Release::Unknown,
        })
        .handler(|_, _| async { Err(Broken(FAILURE)) })
        .open()
        .await;
    let error = app.try_send(&request()).await.expect_err("an error");
    assert_eq!(error, Broken(FAILURE));
    let refused = app.try_send(&request()).await.ok();
    assert_eq!(refused.is_some(), meaning == Release::Unknown);
    told(what, app, refused)
}

async fn broken_off() -> Told {
    let app = App::under(Profile::Standard)
        .answer(|_| http::Response::new(Frames::default().data(RESPONSE).broken(FAILURE).body()))
        .open()
        .await;
    app.send(&request()).await;
    let mut broken = request().request();
    *broken.body_mut() = Frames::default().data(BODY).broken(FAILURE).body();
    let refused = app.call(broken).await.expect("an answer");
    told("broken off", app, [refused])
}

async fn timed_out() -> Told {
    let gate = Gate::new();
    let app = app(Profile::Standard).gate(&gate).open().await;
    let refused = app.send(&request()).await;
    told("timed out", app, [refused])
}

async fn in_progress(duplicate: Duplicate) -> Told {
    let gate = Gate::new();
    let app = app(Profile::Standard)
        .but(|policy| {
            policy.duplicate = duplicate;
            policy.local_waiters_max = 1;
        })
        .gate(&gate)
        .open()
        .await;
    let original = app.spawn(&request());
    gate.entered().await;
    let first = app.spawn(&request());
    if duplicate != Duplicate::Refuse {
        app.until(|event| matches!(event, Event::Attached { .. }))
            .await;
    }
    let second = app.send(&request()).await;
    gate.open();
    original.await.expect("the original");
    let first = first.await.expect("the duplicate");
    told(
        "in progress",
        app,
        [first, second].into_iter().filter(|it| it.status >= 400),
    )
}

async fn store_failed(store_down: StoreDown, kind: StoreErrorKind) -> Told {
    let app = app(Profile::Standard)
        .but(|policy| policy.store_down = store_down)
        .store(Faulty::always(kind))
        .open()
        .await;
    let answer = app.send(&request()).await;
    let refused = (answer.status >= 400).then_some(answer);
    told("store failed", app, refused)
}

async fn not_stored() -> Told {
    let way = Faulty::to(&Arc::new(MemoryStore::new()));
    let cut = Arc::clone(&way);
    let app = App::under(Profile::Standard)
        .store(way.clone())
        .answer(move |run| {
            cut.fail(Some(StoreErrorKind::Unavailable));
            answer(200, run)
        })
        .open()
        .await;
    let refused = app.send(&request()).await;
    way.fail(None);
    app.until(|event| matches!(event, Event::Stalled)).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    app.until(|event| matches!(event, Event::Stored { .. }))
        .await;
    told("not stored at first", app, [refused])
}

async fn shut_down() -> Told {
    let app = app(Profile::Standard)
        .but(|policy| {
            policy.http.methods = policy.http.methods.clone().all_need(KeyNeed::Required);
        })
        .open()
        .await;
    let missing = app.send(&ask("POST", "/orders").bearer(BEARER)).await;
    app.engine.shutdown(Duration::from_secs(1)).await;
    let refused = app.send(&request()).await;
    told("shut down", app, [missing, refused])
}
