//! What came back wrong elsewhere, and must come back right.

use axum::body::Body;
use http::header::{CONTENT_LENGTH, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use onlyonce_core::Profile;
use onlyonce_core::policy::{KeyNeed, Methods};

use crate::support::{App, Frames, PATH, ask, numbered, post, uuid};

const fn value(text: &'static str) -> HeaderValue {
    HeaderValue::from_static(text)
}

/// A response with everything that should come back, and everything that should not.
fn ornate() -> Response<Body> {
    let trailers = HeaderMap::from_iter([(HeaderName::from_static("x-checksum"), value("abc"))]);
    let body = Frames::default().data("all of it").trailers(trailers);
    let mut response = Response::new(body.body());
    *response.status_mut() = http::StatusCode::CREATED;
    for (name, text) in [
        ("location", "/orders/7"),
        ("etag", "\"v1\""),
        ("link", "</a>; rel=first"),
        ("link", "</b>; rel=next"),
        ("link", "</c>; rel=last"),
        ("x-order", "7"),
        ("cache-control", "no-store"),
        ("transfer-encoding", "chunked"),
        ("connection", "keep-alive, X-Hop"),
        ("x-hop", "only for this connection"),
        ("keep-alive", "timeout=5"),
        ("trailer", "x-checksum"),
        ("upgrade", "h2c"),
        ("date", "Sat, 01 Nov 2025 00:00:00 GMT"),
        ("server", "teapot"),
        ("retry-after", "120"),
        ("set-cookie", "session=1"),
    ] {
        response
            .headers_mut()
            .append(HeaderName::from_static(name), value(text));
    }
    response
}

/// 17.
#[tokio::test]
async fn a_replay_keeps_location_etag_repeated_headers_and_trailers() {
    for profile in Profile::ALL {
        let app = App::under(profile).answer(|_| ornate()).open().await;
        let request = post(PATH).key(uuid(1));
        let first = app.send(&request).await;

        let replay = app.send(&request).await;

        for answer in [&first, &replay] {
            assert_eq!(answer.header("location"), Some("/orders/7"), "{profile}");
            assert_eq!(answer.header("etag"), Some("\"v1\""), "{profile}");
            assert_eq!(answer.header("x-order"), Some("7"));
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            assert_eq!(
                answer.headers_named("link"),
                ["</a>; rel=first", "</b>; rel=next", "</c>; rel=last"],
                "{profile}"
            );
            assert_eq!(answer.text(), "all of it");
            let trailers = answer.trailers.as_ref().unwrap();
            assert_eq!(trailers["x-checksum"], "abc", "{profile}");
        }
        assert_eq!(app.runs(), 1);
    }
}

/// 17.
#[tokio::test]
async fn a_replay_drops_what_belonged_to_one_connection_or_one_moment() {
    for profile in Profile::ALL {
        let app = App::under(profile).answer(|_| ornate()).open().await;
        let request = post(PATH).key(uuid(1));
        let first = app.send(&request).await;

        let replay = app.send(&request).await;

        for name in [
            "transfer-encoding",
            "connection",
            "x-hop",
            "keep-alive",
            "trailer",
            "upgrade",
            "date",
            "server",
            "retry-after",
        ] {
            assert!(first.headers.contains_key(name), "{profile}: {name}");
            assert!(!replay.headers.contains_key(name), "{profile}: {name}");
        }
    }
}

/// 18.
#[tokio::test]
async fn a_binary_body_comes_back_byte_for_byte() {
    for profile in Profile::ALL {
        let app = App::under(profile)
            .answer(|_| {
                let mut response = Response::new(Body::from(Vec::from_iter(0..=255)));
                let binary = value("application/octet-stream");
                response.headers_mut().insert("content-type", binary);
                response
            })
            .open()
            .await;
        let request = post(PATH).key(uuid(1));

        let first = app.send(&request).await;
        let replay = app.send(&request).await;

        let all: Vec<u8> = (0..=255).collect();
        assert_eq!((&*first.body, &*replay.body), (&*all, &*all), "{profile}");
        let media_type = replay.header("content-type");
        assert_eq!(media_type, Some("application/octet-stream"));
    }
}

/// 18.
#[tokio::test]
async fn a_body_streamed_in_many_chunks_comes_back_whole() {
    for profile in Profile::ALL {
        let app = App::under(profile)
            .answer(|_| {
                let chunks = (0..1000).fold(Frames::default(), |frames, n| {
                    frames.data(format!("{n},")).data("")
                });
                Response::new(chunks.body())
            })
            .open()
            .await;
        let request = post(PATH).key(uuid(1));

        let first = app.send(&request).await;
        let replay = app.send(&request).await;

        let all: String = (0..1000).map(|n| format!("{n},")).collect();
        assert_eq!((first.text(), replay.text()), (&*all, &*all), "{profile}");
    }
}

/// 19.
#[tokio::test]
async fn a_cookie_is_set_for_the_first_caller_and_never_replayed() {
    for profile in Profile::ALL {
        let app = App::under(profile).answer(|_| ornate()).open().await;
        let request = post(PATH).key(uuid(1));

        let first = app.send(&request).await;
        let replay = app.send(&request).await;

        assert_eq!(first.header("set-cookie"), Some("session=1"), "{profile}");
        assert!(!replay.headers.contains_key(SET_COOKIE), "{profile}");
        let record = app.record().await;
        let stored = &record.response().unwrap().headers;
        assert!(!stored.contains_key(SET_COOKIE), "{profile}");
    }
}

/// 19.
#[tokio::test]
async fn another_tenant_s_response_is_not_replayed() {
    for profile in Profile::ALL {
        let app = App::under(profile).open().await;
        let request = post(PATH).key(uuid(1));

        let acme = app.send(&request.clone().bearer("acme")).await;
        let globex = app.send(&request.bearer("globex")).await;

        assert_eq!((acme.run(), globex.run()), (1, 2), "{profile}");
    }
}

/// 20.
#[tokio::test]
async fn a_401_or_429_from_before_the_work_is_not_pinned() {
    for profile in [Profile::Standard, Profile::Ietf, Profile::Stripe] {
        let app = App::under(profile)
            .answer(|run| numbered([401, 429, 200][(run - 1).min(2)], run))
            .open()
            .await;
        let request = post(PATH).key(uuid(1));

        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(app.send(&request).await.status);
        }

        assert_eq!(statuses, [401, 429, 200, 200], "{profile}");
        assert_eq!(app.runs(), 3);
    }
}

/// 21, 22, 25.
#[tokio::test]
async fn a_request_that_means_something_else_is_refused() {
    let original = post("/orders?a=1&b=2").json(r#"{"a":9007199254740993,"b":[1,2]}"#);
    let text = |uri: &str, body: &'static str| post(uri).body("text/plain", body);
    let pairs = [
        (original.clone(), original.clone().to("/orders?a=1&b=3")),
        (original.clone(), original.clone().to("/orders?a=1")),
        (original.clone(), original.clone().to("/orders")),
        (original.clone(), original.clone().to("/orders?a=1&b=2&c")),
        (
            original.clone(),
            ask("PUT", "/orders?a=1&b=2").json(r#"{"a":9007199254740993,"b":[1,2]}"#),
        ),
        (
            original.clone(),
            original
                .clone()
                .body("text/plain", &br#"{"a":9007199254740993,"b":[1,2]}"#[..]),
        ),
        // As floats these two are one number.
        (
            original.clone(),
            original.clone().json(r#"{"a":9007199254740992,"b":[1,2]}"#),
        ),
        (
            original.clone(),
            original.clone().json(r#"{"a":9007199254740993,"b":[2,1]}"#),
        ),
        (
            original.clone(),
            original
                .clone()
                .json(r#"{"a":"9007199254740993","b":[1,2]}"#),
        ),
        // Parts that would run into each other if nothing framed them.
        (text("/orders?ab", "c"), text("/orders?a", "bc")),
        (text("/orders?a", ""), text("/orders", "a")),
    ];

    for (index, (first, other)) in pairs.into_iter().enumerate() {
        let app = App::under(Profile::Standard).open().await;
        assert_eq!(app.send(&first.key("k")).await.status, 200);

        let refused = app.send(&other.key("k")).await;

        assert_eq!(refused.status, 422, "{index}: {}", refused.text());
        assert_eq!(app.runs(), 1, "{index}");
    }
}

/// 21.
#[tokio::test]
async fn another_spelling_of_the_same_request_is_no_conflict() {
    let original = post("/orders?a=1&b=2").json(r#"{"a":1,"b":{"c":"é","d":[1,2]}}"#);
    let spellings = [
        original.clone().json(r#"{"b":{"d":[1,2],"c":"é"},"a":1}"#),
        original
            .clone()
            .json("{ \"a\" : 1,\n\t\"b\": {\"c\":\"\\u00e9\", \"d\": [1, 2]} }\n"),
        original.clone().to("/orders?b=2&a=1"),
        original
            .clone()
            .header("user-agent", "another client")
            .header("x-request-id", "2"),
    ];
    let app = App::under(Profile::Standard).open().await;
    app.send(&original.key("k")).await;

    for (index, spelling) in spellings.into_iter().enumerate() {
        let replay = app.send(&spelling.key("k")).await;

        assert_eq!((replay.status, app.runs()), (200, 1), "{index}");
    }
}

/// 25.
#[tokio::test]
async fn another_url_under_the_same_key_never_gets_the_first_response() {
    for profile in Profile::ALL {
        let app = App::under(profile).open().await;
        app.send(&post("/orders").key(uuid(1))).await;

        for other in [
            "/refunds",
            "/orders/",
            "/orders/7",
            "/orders?x=1",
            "/Orders",
        ] {
            let answer = app.send(&post(other).key(uuid(1))).await;

            let is_first = answer.status == 200 && answer.run() == 1;
            assert!(!is_first, "{profile}: {other}");
        }
    }
}

/// 26.
#[tokio::test]
async fn an_empty_body_comes_back_empty() {
    for profile in Profile::ALL {
        for status in [200, 204, 205] {
            let app = App::under(profile)
                .answer(move |_| {
                    let mut response = Response::new(Body::empty());
                    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
                    response
                })
                .open()
                .await;
            let request = post(PATH).key(uuid(1));

            let first = app.send(&request).await;
            let replay = app.send(&request).await;

            assert_eq!((first.status, app.runs()), (status, 1));
            assert!(replay.status == status || (status != 204 && replay.status == 200));
            assert!(replay.body.is_empty() && first.body.is_empty());
            assert!(!replay.headers.contains_key("content-type"), "{profile}");
        }
    }
}

/// 26.
#[tokio::test]
async fn a_redirect_comes_back_as_the_same_redirect() {
    for profile in Profile::ALL {
        for status in [301, 302, 303, 307, 308] {
            let app = App::under(profile)
                .answer(move |run| {
                    let mut response = numbered(status, run);
                    let elsewhere = value("https://example.org/orders/7?x=1#top");
                    response.headers_mut().insert(LOCATION, elsewhere);
                    response
                })
                .open()
                .await;
            let request = post(PATH).key(uuid(1));
            app.send(&request).await;

            let replay = app.send(&request).await;

            assert_eq!(replay.status, status, "{profile}");
            let location = replay.header("location");
            assert_eq!(location, Some("https://example.org/orders/7?x=1#top"));
        }
    }
}

/// 26.
#[tokio::test]
async fn a_head_request_comes_back_with_its_length_and_no_body() {
    for profile in Profile::ALL {
        let app = App::under(profile)
            .but(|policy| {
                policy.http.methods = Methods::Only(vec![(Method::HEAD, KeyNeed::Optional)]);
            })
            .answer(|_| {
                let mut response = Response::new(Body::empty());
                let length = HeaderValue::from_static("1234");
                response.headers_mut().insert(CONTENT_LENGTH, length);
                response
            })
            .open()
            .await;
        let request = ask("HEAD", PATH).key(uuid(1));
        app.send(&request).await;

        let replay = app.send(&request).await;

        assert_eq!((replay.status, app.runs()), (200, 1), "{profile}");
        assert_eq!(replay.header("content-length"), Some("1234"), "{profile}");
        assert!(replay.body.is_empty());
    }
}
