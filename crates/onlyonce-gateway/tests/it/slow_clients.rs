//! Clients that do not read, or send as slowly as they can: each gives its place back. No test depends
//! on how long a bound takes, only on its being there.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::any;
use onlyonce_gateway::Gateway;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::gateway;
use crate::wire::{
    CANCEL, DATA, HEADERS, Http2, PATIENCE, PING, RST_STREAM, WINDOW_UPDATE, frame, head, post,
    status_line,
};

/// More than all buffers between a gateway and its client hold.
const BIG: usize = 64 << 20;

/// A service whose answers are large, or small.
async fn service() -> SocketAddr {
    let big = Bytes::from(vec![b'x'; BIG]);
    let app = Router::new()
        .route("/big", any(async move || big.clone()))
        .route("/small", any(async || "a small answer"))
        .route("/echo", any(async |body: Bytes| body));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A gateway that has one place for a connection.
async fn with_one_place(timeouts: &str) -> Gateway {
    let settings = format!("[limits]\nconnections = 1\n[timeouts]\n{timeouts}");
    gateway(service().await, &settings).await
}

/// Asks for something small, which takes a place.
async fn is_served(gateway: &Gateway) {
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let request = b"GET /small HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    assert_eq!(status_line(&mut stream).await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_client_that_never_reads_gives_its_place_back() {
    let gateway = with_one_place("write = \"300ms\"").await;
    let mut silent = TcpStream::connect(gateway.address()).await.unwrap();
    let request = b"GET /big HTTP/1.1\r\nhost: a\r\n\r\n";
    silent.write_all(request).await.unwrap();

    is_served(&gateway).await;

    drop(silent);
}

#[tokio::test]
async fn a_client_that_never_reads_gives_its_place_back_over_http_2_too() {
    let gateway = with_one_place("write = \"300ms\"").await;
    let mut silent = Http2::connect(gateway.address(), 0x7fff_ffff).await;
    let whole_connection = 0x7fff_0000_u32.to_be_bytes();
    silent
        .send(&frame(WINDOW_UPDATE, 0, 0, &whole_connection))
        .await;
    silent.send(&post(1, "/big", None)).await;

    is_served(&gateway).await;

    drop(silent);
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_all_of_its_answer() {
    let gateway = with_one_place("write = \"500ms\"").await;
    let mut slow = TcpStream::connect(gateway.address()).await.unwrap();
    let request = b"GET /big HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    slow.write_all(request).await.unwrap();

    let mut heard = 0;
    let mut buffer = vec![0; 256 << 10];
    loop {
        match slow.read(&mut buffer).await.unwrap() {
            0 => break,
            bytes => heard += bytes,
        }
        // Longer than the bound in all, never for long.
        tokio::time::sleep(Duration::from_millis(4)).await;
    }

    assert!(heard > BIG, "{heard}");
}

#[tokio::test]
async fn a_stream_whose_client_takes_nothing_is_reset_and_the_others_go_on() {
    let gateway = with_one_place("write = \"300ms\"").await;
    let mut client = Http2::connect(gateway.address(), 0).await;
    for (stream, path) in [(1, "/big"), (3, "/small")] {
        client.send(&post(stream, path, None)).await;
        client.next(HEADERS, stream).await;

        let reason = client.next(RST_STREAM, stream).await;

        assert_eq!(reason, CANCEL, "{path}");
    }

    client.send(&post(5, "/small", None)).await;
    let window = 1000_u32.to_be_bytes();
    client.send(&frame(WINDOW_UPDATE, 0, 5, &window)).await;
    assert_eq!(client.next(DATA, 5).await, b"a small answer");
}

#[tokio::test]
async fn a_stream_that_is_given_a_byte_at_a_time_is_reset() {
    let gateway = with_one_place("write = \"300ms\"").await;
    let mut client = Http2::connect(gateway.address(), 1).await;
    client.send(&post(1, "/big", None)).await;
    client.next(DATA, 1).await;

    let (mut read, mut write) = client.0.into_split();
    let giving = tokio::spawn(async move {
        let one = frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes());
        while write.write_all(&one).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let is_reset = async {
        loop {
            let mut head = [0; 9];
            read.read_exact(&mut head).await.unwrap();
            let mut content = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            read.read_exact(&mut content).await.unwrap();
            if head[3] == RST_STREAM {
                return content;
            }
        }
    };

    let reason = tokio::time::timeout(PATIENCE, is_reset).await.unwrap();
    assert_eq!(reason, CANCEL);
    giving.abort();
}

#[tokio::test]
async fn a_connection_that_leaves_the_end_of_its_answers_gives_its_place_back() {
    let gateway = with_one_place("write = \"300ms\"\nidle = \"300ms\"").await;
    let mut client = Http2::connect(gateway.address(), 1).await;
    client.send(&post(1, "/small", None)).await;
    assert_eq!(client.next(DATA, 1).await, b"a");
    let (mut read, mut write) = client.0.into_split();
    let pinging = tokio::spawn(async move {
        while write.write_all(&frame(PING, 0, 0, &[7; 8])).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });

    let mut rest = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, read.read_to_end(&mut rest)).await;

    assert!(closed.is_ok(), "the gateway closes the connection");
    pinging.abort();
}

/// Sends a body a byte at a time until it is all sent or an answer comes; gives the answer's first line.
async fn drip(gateway: &Gateway, key: &str, bytes: usize) -> String {
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let head = format!("POST /echo HTTP/1.1\r\nhost: a\r\n{key}content-length: {bytes}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut read, mut write) = stream.split();
    let sending = async {
        for _ in 0..bytes {
            write.write_all(b"x").await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        std::future::pending::<()>().await;
    };
    let mut status = [0; 12];
    let hearing = tokio::time::timeout(PATIENCE, read.read_exact(&mut status));
    tokio::select! {
        heard = hearing => heard.expect("an answer comes").map(|_| ()).unwrap(),
        () = sending => {}
    }
    String::from_utf8(status.to_vec()).unwrap()
}

#[tokio::test]
async fn a_body_that_is_dripped_is_bounded_as_a_whole() {
    let gateway = with_one_place("body_whole = \"300ms\"").await;

    let status = drip(&gateway, "idempotency-key: k\r\n", 1_000_000).await;

    assert_eq!(status, "HTTP/1.1 400");
}

#[tokio::test]
async fn what_streams_through_without_a_key_is_not_bounded_as_a_whole() {
    let gateway = with_one_place("body_whole = \"100ms\"").await;

    let status = drip(&gateway, "", 50).await;

    assert_eq!(status, "HTTP/1.1 200");
}

/// A service that agrees to every WebSocket and sends back what it gets.
async fn echoing() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let head = head(&mut stream).await.unwrap_or_default();
                let agreed = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                              upgrade: websocket\r\n\r\n";
                let small = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                let is_socket = head.contains("upgrade: websocket");
                let said = if is_socket { agreed } else { small };
                stream.write_all(said.as_bytes()).await.unwrap();
                let (mut from, mut to) = stream.split();
                drop(tokio::io::copy(&mut from, &mut to).await);
            });
        }
    });
    address
}

/// Opens a WebSocket, as far as a gateway looks at it.
async fn web_socket(gateway: &Gateway) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let request = b"GET /socket HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\n\
                    upgrade: websocket\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let agreed = "HTTP/1.1 101 Switching Protocols";
    assert_eq!(status_line(&mut stream).await, agreed);
    stream
}

#[tokio::test]
async fn a_web_socket_on_which_nothing_moves_gives_its_place_back() {
    let settings = "[limits]\nconnections = 1\n[timeouts]\nwebsocket = \"300ms\"";
    let gateway = gateway(echoing().await, settings).await;
    let silent = web_socket(&gateway).await;

    is_served(&gateway).await;

    drop(silent);
}

#[tokio::test]
async fn a_web_socket_that_one_side_uses_stays() {
    let settings = "[timeouts]\nwebsocket = \"2s\"";
    let gateway = gateway(echoing().await, settings).await;
    let mut socket = web_socket(&gateway).await;

    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        socket.write_all(b"x").await.unwrap();
    }

    let mut echoed = [0; 30];
    socket.read_exact(&mut echoed).await.unwrap();
    assert_eq!(echoed, [b'x'; 30]);
}

/// Whether the admin API ends a connection on which these bytes came, with or without an answer.
async fn is_ended(gateway: &Gateway, sent: &str) -> bool {
    let mut stream = TcpStream::connect(gateway.admin_address()).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    let reading = stream.read_to_end(&mut heard);
    tokio::time::timeout(PATIENCE, reading).await.is_ok()
}

#[tokio::test]
async fn the_admin_api_waits_for_no_head_and_no_body_for_ever() {
    let settings = "[timeouts]\nheaders = \"300ms\"\nbody = \"300ms\"";
    let gateway = gateway(service().await, settings).await;

    for sent in [
        "",
        "GET /healthz HTTP/1.1\r\nhost: loc",
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "POST /api/v1/records/find HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\ncontent-length: 20\r\n\r\n{",
    ] {
        assert!(is_ended(&gateway, sent).await, "{sent}");
    }
}

#[tokio::test]
async fn a_client_of_the_admin_api_that_never_reads_is_given_up() {
    let gateway = gateway(service().await, "[timeouts]\nwrite = \"300ms\"").await;
    let mut silent = TcpStream::connect(gateway.admin_address()).await.unwrap();
    let request = "GET /api/v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let many = request.repeat(1000);

    let writing = async { while silent.write_all(many.as_bytes()).await.is_ok() {} };

    let given_up = tokio::time::timeout(PATIENCE, writing).await;
    assert!(given_up.is_ok(), "it is still waited for");
}
