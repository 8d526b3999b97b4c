//! No way around the layer: a request is covered by its method, its route and its key, whatever
//! protocol it asks to change to.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::support::{Service, ask, gateway, heard, http2, mirror};

/// A service that gives every request the same bytes, and keeps the heads it was sent.
async fn scripted(answer: &'static str) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (send, receive) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            send.send(String::from_utf8(head).unwrap()).unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            // An empty answer is one that does not come: the connection stays.
            let mut rest = Vec::new();
            tokio::spawn(async move { stream.read_to_end(&mut rest).await });
        }
    });
    (address, receive)
}

const HANDSHAKE: &str = "connection: Upgrade\r\nupgrade: websocket\r\n\
     sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[tokio::test]
async fn an_upgrade_header_does_not_walk_around_the_layer() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "[rules]\nkey = \"required\"").await;
    let upgrades = [
        "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAoAAA\r\n",
        "connection: upgrade\r\nupgrade: TLS/1.0\r\n",
        "upgrade: h2c\r\n",
        HANDSHAKE,
    ];

    for upgrade in upgrades {
        let head = format!("POST /orders HTTP/1.1\r\ncontent-length: 0\r\n{upgrade}");
        let keyed = ask(&gateway, &format!("{head}idempotency-key: key\r\n")).await;
        let keyless = ask(&gateway, &head).await;

        assert!(keyed.starts_with("HTTP/1.1 201 "), "{keyed}");
        assert!(keyed.ends_with("order 1"), "{keyed}");
        assert!(keyless.starts_with("HTTP/1.1 400 "), "{keyless}");
    }
    assert_eq!(service.work.runs(), 1);
}

/// Methods are case-sensitive, and many frameworks read `post` as `POST` all the same.
#[tokio::test]
async fn a_method_in_other_letters_does_not_walk_around_the_layer() {
    let (address, runs) = mirror().await;
    let gateway = gateway(address, "[rules]\nkey = \"required\"").await;

    for method in ["post", "Post", "pOST", "delete", "get", "Propfind"] {
        let head = format!("{method} /orders HTTP/1.1\r\nidempotency-key: key\r\n");
        let heard = ask(&gateway, &head).await;
        let mut client = http2(&gateway).await;
        let request = http::Request::builder()
            .method(method)
            .uri("http://a/orders")
            .body(<_>::default());
        let over_http2 = client.send_request(request.unwrap()).await.unwrap();

        assert!(heard.starts_with("HTTP/1.1 501 "), "{method}: {heard}");
        assert!(heard.contains("urn:onlyonce:problem:unknown-method"));
        assert_eq!(over_http2.status(), 501, "{method}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    let heard = ask(&gateway, "PROPFIND /orders HTTP/1.1\r\n").await;
    assert!(heard.ends_with("got /orders"), "{heard}");
}

#[tokio::test]
async fn only_a_web_socket_is_asked_of_the_upstream() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
    let (address, mut heads) = scripted(answer).await;
    let gateway = gateway(address, "").await;
    let plain = [
        "GET /a HTTP/1.1\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AA\r\n",
        "GET /b HTTP/1.1\r\nupgrade: h2c\r\nhttp2-settings: AA\r\n",
        "GET /c HTTP/1.1\r\nupgrade: websocket\r\n",
        "PUT /d HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\ncontent-length: 0\r\n",
        "GET /e HTTP/1.0\r\nconnection: upgrade\r\nupgrade: websocket\r\n",
    ];

    for head in plain {
        assert!(ask(&gateway, head).await.ends_with("ok"));
        let sent = heads.recv().await.unwrap();
        assert!(!sent.contains("upgrade"), "{sent}");
        assert!(!sent.contains("http2-settings"), "{sent}");
    }
    let body = "GET /f HTTP/1.1\r\nhost: a\r\nconnection: close, upgrade\r\nupgrade: websocket\r\n\
                content-length: 3\r\n\r\nabc";
    assert!(heard(&gateway, body).await.ends_with("ok"));
    let sent = heads.recv().await.unwrap();
    assert!(!sent.contains("upgrade"), "{sent}");

    let both = "GET /g HTTP/1.1\r\nconnection: keep-alive\r\nconnection: upgrade\r\n\
                upgrade: h2c, WebSocket\r\n";
    assert!(ask(&gateway, both).await.ends_with("ok"));
    let sent = heads.recv().await.unwrap();
    assert!(sent.contains("upgrade: websocket\r\n"), "{sent}");
    assert!(!sent.contains("h2c"), "{sent}");
}

#[tokio::test]
async fn a_protocol_that_nobody_asked_for_is_no_tunnel() {
    let websocket = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                     upgrade: websocket\r\n\r\nraw bytes";
    let h2c =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\nraw bytes";
    let post = "POST /a HTTP/1.1\r\ncontent-length: 0\r\n".to_owned();
    let keyed = format!("{post}idempotency-key: key\r\n");
    let asked = format!("GET /a HTTP/1.1\r\n{HANDSHAKE}");
    let cases = [(websocket, post), (websocket, keyed), (h2c, asked)];

    for (answer, head) in cases {
        let (address, _heads) = scripted(answer).await;
        let gateway = gateway(address, "").await;

        let heard = ask(&gateway, &head).await;

        assert!(heard.starts_with("HTTP/1.1 502 "), "{head}{heard}");
        assert!(!heard.contains("raw bytes"), "{heard}");
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_a_web_socket_is_a_timeout() {
    let (address, _heads) = scripted("").await;
    let gateway = gateway(address, "[timeouts]\nresponse = \"300ms\"").await;

    let heard = ask(&gateway, &format!("GET /a HTTP/1.1\r\n{HANDSHAKE}")).await;

    assert!(heard.starts_with("HTTP/1.1 504 "), "{heard}");
}

#[tokio::test]
async fn a_web_socket_that_is_refused_is_answered_like_any_request() {
    let answer = "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nidempotency-store: no\r\n\
                  connection: close, x-hop\r\nx-hop: theirs\r\nkeep-alive: 5\r\n\r\nno";
    let (address, _heads) = scripted(answer).await;
    let gateway = gateway(address, "").await;

    let heard = ask(&gateway, &format!("GET /a HTTP/1.1\r\n{HANDSHAKE}")).await;

    assert!(heard.starts_with("HTTP/1.1 403 "), "{heard}");
    assert!(heard.contains("via: 1.1 onlyonce"), "{heard}");
    for name in ["idempotency-store", "x-hop", "keep-alive"] {
        assert!(!heard.contains(name), "{heard}");
    }
}

#[tokio::test]
async fn a_tunnel_through_the_gateway_is_refused() {
    let (address, runs) = mirror().await;
    let gateway = gateway(address, "").await;

    let heard = ask(&gateway, "CONNECT a:443 HTTP/1.1\r\n").await;
    let mut client = http2(&gateway).await;
    let request = http::Request::connect("a:443").body(<_>::default());
    let over_http2 = client.send_request(request.unwrap()).await.unwrap();

    assert!(heard.starts_with("HTTP/1.1 501 "), "{heard}");
    assert_eq!(over_http2.status(), 501);
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

/// A browser that hears of it opens its sockets with CONNECT instead of another connection.
#[tokio::test]
async fn web_sockets_over_http_2_are_not_advertised() {
    const SETTINGS: u8 = 4;
    const ENABLE_CONNECT_PROTOCOL: [u8; 2] = [0, 8];
    let (address, _) = mirror().await;
    let gateway = gateway(address, "").await;
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(preface).await.unwrap();

    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).await.unwrap();

    assert_eq!(head[3], SETTINGS);
    let mut names = settings.chunks(6).map(|setting| &setting[..2]);
    assert!(names.all(|name| name != ENABLE_CONNECT_PROTOCOL));
}
