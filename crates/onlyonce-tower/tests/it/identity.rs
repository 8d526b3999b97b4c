//! Who is who: callers that must never meet in one record, and one caller that must always find
//! its own (requirements K6, K7, X1; docs/protocol.md#rule-17).

use http::HeaderName;
use http::header::AUTHORIZATION;
use onlyonce_core::{Engine, MemoryStore, Profile};
use onlyonce_tower::{IdempotencyLayer, ScopePart};

use crate::support::{App, Ask, PATH, ask, post, uuid};

#[cfg(feature = "axum")]
mod axum_routes;
#[cfg(feature = "jwt")]
mod jwt;
mod matched;
#[cfg(feature = "jwt")]
mod scopes;
mod unreadable;
mod unverified;

/// Sends each request and says which run answered it.
async fn runs_of<const N: usize>(app: &App, requests: [&Ask; N]) -> [u64; N] {
    let mut runs = [0; N];
    for (run, request) in runs.iter_mut().zip(requests) {
        *run = app.send(request).await.run();
    }
    runs
}

fn header(name: &'static str, trusted: bool) -> ScopePart {
    ScopePart::Header {
        name: HeaderName::from_static(name),
        trusted,
    }
}

#[tokio::test]
async fn another_authorization_is_another_caller() {
    let app = App::under(Profile::Standard).open().await;
    let request = post(PATH).key("k");
    let alice = request.clone().bearer("alice");
    let bob = request.clone().bearer("bob");
    let basic = request.header(AUTHORIZATION, "Basic YWxpY2U6eA==");

    let runs = runs_of(&app, [&alice, &bob, &basic, &alice, &bob, &basic]).await;

    assert_eq!(runs, [1, 2, 3, 1, 2, 3]);
}

#[tokio::test]
async fn anonymous_and_signed_in_callers_never_meet() {
    for profile in Profile::ALL {
        let app = App::under(profile).open().await;
        let anonymous = post(PATH).key(uuid(1));
        let signed_in = anonymous.clone().bearer("alice");
        let known = anonymous.clone().principal("");

        let runs = runs_of(&app, [&anonymous, &signed_in, &known]).await;

        assert_eq!(runs, [1, 2, 3], "{profile}");
    }
}

/// The two tries are two callers to us, so the second one runs: a client that signs in half-way
/// keeps its old credential for the retry, or asks first what became of it.
#[tokio::test]
async fn signing_in_between_two_tries_runs_anew() {
    for profile in Profile::ALL {
        let app = App::under(profile).open().await;
        let before = post(PATH).key(uuid(1));
        let after = before.clone().bearer("alice");

        let runs = runs_of(&app, [&before, &after, &before, &after]).await;

        assert_eq!(runs, [1, 2, 1, 2], "{profile}");
    }
}

#[tokio::test]
async fn a_refreshed_token_of_a_verified_principal_reaches_the_same_record() {
    for profile in Profile::ALL {
        let app = App::under(profile).open().await;
        let alice = post(PATH).key(uuid(1)).principal("alice");
        let first = alice.clone().bearer("token-1");
        let refreshed = alice.clone().bearer("token-2");
        let per_request = alice.header(AUTHORIZATION, "DPoP eyJ.a.b");
        let bob = post(PATH).key(uuid(1)).principal("bob").bearer("token-1");

        let runs = runs_of(&app, [&first, &refreshed, &per_request, &bob]).await;

        assert_eq!(runs, [1, 1, 1, 2], "{profile}");
        let actors: Vec<_> = app.records().await;
        let mut actors: Vec<_> = actors.iter().map(|it| it.meta.actor.as_deref()).collect();
        actors.sort();
        assert_eq!(actors, [Some("alice"), Some("bob")], "{profile}");
    }
}

#[tokio::test]
async fn two_authorization_lines_are_refused() {
    for profile in Profile::ALL {
        let app = App::under(profile).open().await;
        let request = post(PATH).key(uuid(1)).bearer("alice").bearer("alice");

        let answer = app.send(&request).await;

        assert_eq!((answer.status, app.runs()), (400, 0), "{profile}");
        assert!(answer.text().contains("Authorization"), "{profile}");
    }
}

const PER_REQUEST: [&str; 5] = [
    "AWS4-HMAC-SHA256 Credential=AKIA/20251101/eu/s3/aws4_request, SignedHeaders=host, Signature=1",
    "DPoP eyJhbGciOi.eyJzdWIiOi.abc",
    "Digest username=\"alice\", nonce=\"1\", response=\"2\"",
    "digest username=\"alice\"",
    "Signature keyId=\"a\",signature=\"b\"",
];

#[tokio::test]
async fn a_credential_that_differs_with_every_request_needs_a_configured_scope() {
    for credential in PER_REQUEST {
        let app = App::under(Profile::Standard).open().await;
        let request = post(PATH).key("k").header(AUTHORIZATION, credential);

        let answer = app.send(&request).await;

        assert_eq!((answer.status, app.runs()), (400, 0), "{credential}");
        assert_eq!(answer.json()["type"], "urn:onlyonce:problem:unscoped");
        let scheme = credential.split(' ').next().unwrap().to_lowercase();
        let detail = answer.json()["detail"].to_string().to_lowercase();
        assert!(detail.contains("configured scope"), "{detail}");
        assert!(detail.contains(&scheme), "{detail}");
    }
}

#[tokio::test]
async fn a_configured_scope_takes_credentials_of_any_scheme() {
    for credential in PER_REQUEST {
        let app = App::under(Profile::Standard)
            .scope([header("x-account", true)])
            .open()
            .await;
        let request = post(PATH).key("k").header("x-account", "7");
        let retry = request.clone().header(AUTHORIZATION, "Digest another=1");
        let request = request.header(AUTHORIZATION, credential);

        assert_eq!(runs_of(&app, [&request, &retry]).await, [1, 1]);
    }
}

#[tokio::test]
async fn an_untrusted_header_only_adds_to_the_caller() {
    let app = App::under(Profile::Standard)
        .scope([header("x-tenant", false)])
        .open()
        .await;
    let acme = post(PATH).key("k").header("x-tenant", "acme");
    let alice = acme.clone().bearer("alice");
    let mallory = acme.clone().bearer("mallory");
    let elsewhere = post(PATH)
        .key("k")
        .header("x-tenant", "globex")
        .bearer("alice");

    let runs = runs_of(&app, [&alice, &mallory, &elsewhere, &acme, &alice]).await;

    assert_eq!(runs, [1, 2, 3, 4, 1]);
}

#[tokio::test]
async fn a_trusted_header_is_the_caller() {
    let app = App::under(Profile::Standard)
        .scope([header("x-user", true)])
        .open()
        .await;
    let alice = post(PATH).key("k").header("x-user", "alice");
    let refreshed = alice.clone().bearer("token-2");
    let bob = post(PATH)
        .key("k")
        .header("x-user", "bob")
        .bearer("token-2");

    assert_eq!(runs_of(&app, [&alice, &refreshed, &bob]).await, [1, 1, 2]);
}

#[tokio::test]
async fn a_scope_header_sent_twice_is_refused() {
    for trusted in [true, false] {
        let app = App::under(Profile::Standard)
            .scope([header("x-user", trusted)])
            .open()
            .await;
        let request = post(PATH)
            .key("k")
            .header("x-user", "alice")
            .header("x-user", "bob");

        let answer = app.send(&request).await;

        assert_eq!((answer.status, app.runs()), (400, 0));
        assert!(answer.text().contains("x-user"), "{}", answer.text());
    }
}

#[tokio::test]
async fn a_session_cookie_is_the_caller() {
    let app = App::under(Profile::Standard)
        .scope([ScopePart::Cookie("sid".into())])
        .open()
        .await;
    let with = |cookies: &str| post(PATH).key("k").header("cookie", cookies);
    let alice = with("theme=dark; sid=a1");
    let moved = with("sid=a1; theme=light");
    let second_line = with("theme=dark").header("cookie", "sid=a1");
    let bob = with("sid=b1");
    let similar = with("xsid=a1");

    let runs = runs_of(&app, [&alice, &moved, &second_line, &bob, &similar]).await;

    assert_eq!(runs, [1, 1, 1, 2, 3]);
}

/// What the configured part cannot tell, the credential still can.
#[tokio::test]
async fn signed_in_callers_without_the_cookie_or_the_header_are_still_told_apart() {
    for part in [ScopePart::Cookie("sid".into()), header("x-user", true)] {
        let shown = format!("{part:?}");
        let app = App::under(Profile::Standard).scope([part]).open().await;
        let alice = post(PATH).key("k").bearer("alice");
        let bob = post(PATH).key("k").bearer("bob");

        assert_eq!(runs_of(&app, [&alice, &bob]).await, [1, 2], "{shown}");
    }
}

#[tokio::test]
async fn a_path_parameter_is_part_of_the_scope() {
    let app = App::under(Profile::Standard)
        .route("/tenants/{tenant}/orders/{order}")
        .scope([
            ScopePart::Path("tenant".into()),
            ScopePart::Path("order".into()),
            ScopePart::Caller,
        ])
        .open()
        .await;
    let request = post("/tenants/acme/orders/1").key("k");
    let other_tenant = request.clone().to("/tenants/globex/orders/1");
    let other_order = request.clone().to("/tenants/acme/orders/2");
    let other_caller = request.clone().bearer("alice");

    let requests = [&request, &other_tenant, &other_order, &other_caller];
    assert_eq!(runs_of(&app, requests).await, [1, 2, 3, 4]);
    assert_eq!(runs_of(&app, requests).await, [1, 2, 3, 4]);
}

/// The path is part of what a request means: a key is for one operation, wherever it is sent.
#[tokio::test]
async fn another_path_or_method_under_the_same_key_is_refused() {
    let app = App::under(Profile::Standard).open().await;
    let request = post("/orders/1/pay").key("k");
    assert_eq!(app.send(&request).await.run(), 1);

    for other in [
        request.clone().to("/orders/2/pay"),
        request.clone().to("/orders/1/refund"),
        ask("PUT", "/orders/1/pay").key("k"),
    ] {
        assert_eq!(app.send(&other).await.status, 422);
    }

    assert_eq!(app.send(&request).await.run(), 1);
    assert_eq!(app.runs(), 1);
}

#[tokio::test]
async fn a_path_outside_the_configured_route_passes_through() {
    let app = App::under(Profile::Standard)
        .route("/orders/{order}")
        .open()
        .await;
    let covered = post("/orders/1").key("k");
    let outside = post("/orders").key("k");

    let runs = runs_of(&app, [&covered, &covered, &outside, &outside]).await;

    assert_eq!(runs, [1, 1, 2, 3]);
}

#[tokio::test]
async fn a_member_of_the_body_is_part_of_the_scope_and_adds_to_the_caller() {
    let app = App::under(Profile::Standard)
        .scope([ScopePart::Body("tenant".into())])
        .open()
        .await;
    let from = |tenant: &str| {
        post(PATH)
            .key("k")
            .json(&format!(r#"{{"tenant":{tenant}}}"#))
    };
    let (text, number) = (from("\"1\""), from("1"));
    let mallory = from("1").bearer("mallory");
    let without = post(PATH).key("k");

    let runs = runs_of(&app, [&text, &number, &mallory, &without, &text]).await;

    assert_eq!(runs, [1, 2, 3, 4, 1]);
}

#[tokio::test]
async fn two_hosts_are_two_services() {
    for profile in Profile::ALL {
        let app = App::under(profile).open().await;
        let request = post(PATH).key(uuid(1));
        let one = request.clone().header("host", "one.example");
        let shouted = request.clone().header("host", "ONE.example");
        let two = request.clone().header("host", "two.example");
        let absolute = request.clone().to("http://one.example/orders");
        let tenant = request.to("http://three.example/orders");

        let runs = runs_of(&app, [&one, &shouted, &two, &absolute, &tenant]).await;

        assert_eq!(runs, [1, 1, 2, 1, 3], "{profile}");
    }
}

/// A client that falls back to another version of HTTP, or to another library, may spell it differently.
#[tokio::test]
async fn however_a_host_is_spelled_it_is_one_service() {
    let app = App::under(Profile::Standard).open().await;
    let of = |host: &str| post(PATH).key("k").header("host", host);
    let named = [
        "one.example",
        "One.Example.",
        "one.example:80",
        "one.example:443",
        "one.example:",
    ];
    let address = ["[::1]", "[::1]:80", "[::1]:"];
    let other = ["one.example:8080", "one.example.:8080", "one.example:8443"];

    let runs_named = runs_of(&app, named.map(of).each_ref()).await;
    let runs_address = runs_of(&app, address.map(of).each_ref()).await;
    let runs_other = runs_of(&app, other.map(of).each_ref()).await;

    assert_eq!(runs_named, [1; 5]);
    assert_eq!(runs_address, [2; 3]);
    assert_eq!(runs_other, [3, 3, 4]);
}

#[tokio::test]
async fn an_operator_is_warned_where_callers_are_told_apart_by_an_unverified_header() {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let layer = IdempotencyLayer::new(engine);

    for profile in Profile::ALL {
        assert_eq!(layer.clone().profile(profile).warnings().len(), 1);
    }
    let added = layer.clone().scope([ScopePart::Route]);
    assert_eq!(added.warnings().len(), 1);
    assert!(added.warnings()[0].contains("Authorization"));
    let by_header = layer.scope([header("x-user", true)]);
    assert!(by_header.warnings().is_empty());
}

#[tokio::test]
async fn the_actor_s_type_is_what_the_contract_says() {
    for (rule, said, name) in [
        ("service", "agent", "service:system:root"),
        ("header:x-actor-type", "agent", "agent:system:root"),
        ("header:x-actor-type", "robot", "user:system:root"),
    ] {
        let app = App::under(Profile::Standard)
            .but(|policy| policy.http.actor_type = rule.parse().ok())
            .open()
            .await;
        let request = post(PATH).key(uuid(1)).principal("system:root");

        app.send(&request.header("x-actor-type", said)).await;

        assert_eq!(
            app.record().await.meta.actor.as_deref(),
            Some(name),
            "{rule}"
        );
    }
}
