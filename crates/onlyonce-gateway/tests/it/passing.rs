//! What is not keyed passes through untouched; both sides get what a proxy owes them.

use axum::body::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use onlyonce_gateway::Gateway;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Service, client, gateway, stream};

fn url(gateway: &Gateway, path: &str) -> String {
    format!("http://{}{path}", gateway.address())
}

#[tokio::test]
async fn an_upload_reaches_the_service_while_it_is_still_being_sent() {
    let (send, body) = stream();
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let request = client().post(url(&gateway, "/echo"));
    let body = reqwest::Body::wrap_stream(body.into_data_stream());
    send.send(Bytes::from_static(b"first ")).unwrap();
    let sent = tokio::spawn(request.body(body).send());

    send.send(Bytes::from_static(b"second")).unwrap();
    drop(send);

    assert_eq!(
        sent.await.unwrap().unwrap().text().await.unwrap(),
        "first second"
    );
}

#[tokio::test]
async fn the_service_hears_who_asked_and_how() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;

    let told = client()
        .get(url(&gateway, "/told?a=1&b=%20"))
        .header("x-forwarded-for", "10.0.0.1")
        .header("connection", "x-private")
        .header("x-private", "for this hop")
        .header("proxy-authorization", "secret")
        .send()
        .await
        .unwrap();
    assert!(told.headers()["via"].to_str().unwrap().contains("onlyonce"));
    let told = told.text().await.unwrap();

    let address = gateway.address();
    assert!(told.starts_with("GET /told?a=1&b=%20\n"), "{told}");
    assert!(
        told.contains("x-forwarded-for: 10.0.0.1, 127.0.0.1"),
        "{told}"
    );
    assert!(told.contains("x-forwarded-proto: http"), "{told}");
    assert!(told.contains(&format!("host: {address}")), "{told}");
    assert!(
        told.contains(&format!(
            "forwarded: for=127.0.0.1;proto=http;host=\"{address}\""
        )),
        "{told}"
    );
    assert!(told.contains("via: 1.1 onlyonce"), "{told}");
    assert!(
        !told.contains("x-private") && !told.contains("secret"),
        "{told}"
    );
}

#[tokio::test]
async fn http_2_is_served_too() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let client = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();

    let first = client
        .post(url(&gateway, "/orders"))
        .header("idempotency-key", "key");
    let first = first.send().await.unwrap();
    assert_eq!(first.version(), http::Version::HTTP_2);
    let retry = client
        .post(url(&gateway, "/orders"))
        .header("idempotency-key", "key");
    let retry = retry.send().await.unwrap();

    assert_eq!(first.text().await.unwrap(), "order 1");
    assert_eq!(retry.text().await.unwrap(), "order 1");
}

#[tokio::test]
async fn a_service_that_speaks_http_2_is_reached() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let h2c = format!(
        "[[route]]\nmatch = \"* /{{*all}}\"\nupstream = \"h2c://{}\"",
        service.address
    );
    gateway
        .reload(&crate::support::settings(service.address, &h2c))
        .unwrap();

    let answer = client()
        .post(url(&gateway, "/echo"))
        .body("hello")
        .send()
        .await
        .unwrap();

    assert_eq!(answer.text().await.unwrap(), "hello");
}

#[tokio::test]
async fn a_web_socket_passes() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let address = format!("ws://{}/socket", gateway.address());

    let (mut socket, _) = tokio_tungstenite::connect_async(address).await.unwrap();
    for word in ["one", "two"] {
        socket.send(Message::text(word)).await.unwrap();
        let echo = socket.next().await.unwrap().unwrap();
        assert_eq!(echo.to_text().unwrap(), format!("echo {word}"));
    }
}

#[tokio::test]
async fn http_2_on_both_sides_keeps_many_requests_apart() {
    let service = Service::start().await;
    let h2c = format!(
        "[[route]]\nmatch = \"* /{{*all}}\"\nupstream = \"h2c://{}\"",
        service.address
    );
    let gateway = gateway(service.address, &h2c).await;
    let client = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();

    let sent: Vec<_> = (0..100)
        .map(|n| {
            let request = client
                .post(url(&gateway, "/echo"))
                .header("idempotency-key", format!("key-{}", n / 2))
                .body(format!("body {}", n / 2));
            tokio::spawn(async move { request.send().await.unwrap().text().await.unwrap() })
        })
        .collect();

    for (n, answer) in sent.into_iter().enumerate() {
        assert_eq!(answer.await.unwrap(), format!("body {}", n / 2));
    }
}

/// Events reach the client while the service still has more to say.
#[tokio::test]
async fn a_stream_of_events_is_not_held_back() {
    let (send, body) = stream();
    let body = std::sync::Mutex::new(Some(body));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let events = async move || {
        let body = body.lock().unwrap().take().unwrap();
        ([("content-type", "text/event-stream")], body)
    };
    let events = std::sync::Arc::new(events);
    let app = axum::Router::new().route(
        "/events",
        axum::routing::get(move || {
            let events = std::sync::Arc::clone(&events);
            async move { events().await }
        }),
    );
    tokio::spawn(axum::serve(listener, app).into_future());
    let gateway = gateway(address, "").await;
    send.send(Bytes::from_static(b"data: one\n\n")).unwrap();

    let answer = client().get(url(&gateway, "/events")).send().await.unwrap();
    let mut events = answer.bytes_stream();

    assert_eq!(events.next().await.unwrap().unwrap(), "data: one\n\n");
    send.send(Bytes::from_static(b"data: two\n\n")).unwrap();
    assert_eq!(events.next().await.unwrap().unwrap(), "data: two\n\n");
}
