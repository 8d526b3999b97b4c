//! Everything has a bound: connections, headers, and every wait. No test depends on how long a
//! bound takes, only on its being there.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Service, client, eventually, gateway, order_with};

/// Far more than any bound here.
const PATIENCE: Duration = Duration::from_secs(30);

async fn connect(gateway: SocketAddr) -> TcpStream {
    TcpStream::connect(gateway).await.unwrap()
}

/// Sends, and reads until the gateway closes the connection.
async fn until_closed(stream: &mut TcpStream, sent: &str) -> String {
    stream.write_all(sent.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard))
        .await
        .expect("the gateway closes the connection")
        .unwrap();
    String::from_utf8(heard).unwrap()
}

#[tokio::test]
async fn a_client_that_stops_in_its_headers_is_not_waited_for() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "[timeouts]\nheaders = \"300ms\"").await;
    let mut stream = connect(gateway.address()).await;

    let heard = until_closed(&mut stream, "POST /orders HTTP/1.1\r\nhost: a\r\nx-un").await;

    assert!(!heard.contains(" 201 "), "{heard}");
    assert_eq!(service.work.runs(), 0);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "[timeouts]\nidle = \"300ms\"").await;
    let mut stream = connect(gateway.address()).await;

    let request = "POST /orders HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    let heard = until_closed(&mut stream, request).await;

    assert!(heard.starts_with("HTTP/1.1 201 "), "{heard}");
}

#[tokio::test]
async fn a_connection_that_waits_for_the_service_is_not_idle() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "[timeouts]\nidle = \"100ms\"").await;
    let url = format!("http://{}/slow", gateway.address());
    let request = client().post(&url).header("idempotency-key", "key").send();
    let running = tokio::spawn(async move { request.await.unwrap().text().await.unwrap() });

    // Longer than the bound; nothing depends on how much longer.
    tokio::time::sleep(Duration::from_millis(400)).await;
    service.work.gate.notify_one();

    assert_eq!(running.await.unwrap(), "slow 1");
}

#[tokio::test]
async fn a_client_that_stops_in_its_body_is_not_waited_for() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "[timeouts]\nbody = \"300ms\"").await;

    for (key, status) in [("", "408"), ("idempotency-key: k\r\n", "400")] {
        let mut stream = connect(gateway.address()).await;
        let request = format!(
            "POST /echo HTTP/1.1\r\nhost: a\r\n{key}content-length: 10\r\nconnection: close\r\n\r\nabc"
        );
        let heard = until_closed(&mut stream, &request).await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{heard}");
    }
}

#[tokio::test]
async fn a_service_that_does_not_begin_to_answer_is_a_timeout() {
    let service = Service::start().await;
    let more = "[timeouts]\nresponse = \"300ms\"\n[rules]\nexecution_max = \"300ms\"";
    let gateway = gateway(service.address, more).await;
    let url = format!("http://{}/slow", gateway.address());

    let unkeyed = client().post(&url).send().await.unwrap();
    let keyed = client().post(&url).header("idempotency-key", "key");
    let keyed = keyed.send().await.unwrap();

    assert_eq!(unkeyed.status(), 504);
    assert!(unkeyed.text().await.unwrap().contains("upstream-slow"));
    assert_eq!(keyed.status(), 504);
    assert!(keyed.text().await.unwrap().contains("timed-out"));
}

#[tokio::test]
async fn a_service_that_takes_no_connection_is_a_timeout_and_gives_the_key_back() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // Fills the queue of connections nobody accepts: the next one gets no answer.
    let mut filling = Vec::new();
    while let Ok(stream) =
        tokio::time::timeout(Duration::from_millis(500), TcpStream::connect(address)).await
    {
        filling.push(stream.unwrap());
    }
    let gateway = gateway(address, "[timeouts]\nconnect = \"300ms\"").await;

    let answer = order_with(&gateway, "key", "{}").await;

    assert_eq!(answer.status(), 502);
    assert!(answer.text().await.unwrap().contains("was not sent to it"));
}

#[tokio::test]
async fn a_header_section_over_the_bound_is_refused() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "[limits]\nheader_bytes = 16384").await;
    let send = |bytes: usize| {
        client()
            .post(format!("http://{}/orders", gateway.address()))
            .header("x-filler", "x".repeat(bytes))
            .send()
    };

    assert_eq!(send(8_000).await.unwrap().status(), 201);
    assert_eq!(send(20_000).await.unwrap().status(), 431);
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test]
async fn a_header_section_over_the_bound_is_refused_over_http_2_too() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "[limits]\nheader_bytes = 16384").await;
    let client = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    let request = client
        .post(format!("http://{}/orders", gateway.address()))
        .header("x-filler", "x".repeat(32_000));

    let refused = match request.send().await {
        Ok(answer) => answer.status() == 431,
        Err(_) => true,
    };

    assert!(refused);
    assert_eq!(service.work.runs(), 0);
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_their_turn() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "[limits]\nconnections = 1").await;
    let request =
        "POST /orders HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let mut first = connect(gateway.address()).await;
    first.write_all(&request.as_bytes()[..20]).await.unwrap();
    let mut second = connect(gateway.address()).await;
    second.write_all(request.as_bytes()).await.unwrap();

    // The second has asked already, yet the first is served first: it has the only place.
    let heard = until_closed(&mut first, &request[20..]).await;
    assert!(heard.ends_with("order 1"), "{heard}");
    drop(first);
    let heard = until_closed(&mut second, "").await;

    assert!(heard.ends_with("order 2"), "{heard}");
}

#[tokio::test]
async fn a_web_socket_keeps_its_place_among_the_connections() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "[limits]\nconnections = 1").await;
    let address = format!("ws://{}/socket", gateway.address());
    let (mut socket, _) = tokio_tungstenite::connect_async(address).await.unwrap();
    let mut stream = connect(gateway.address()).await;
    let waiting = tokio::spawn(async move {
        let request = "POST /orders HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\
                       connection: close\r\n\r\n";
        until_closed(&mut stream, request).await
    });

    for _ in 0..50 {
        socket.send(Message::text("hello")).await.unwrap();
        socket.next().await.unwrap().unwrap();
    }
    assert!(!waiting.is_finished());
    socket.close(None).await.unwrap();
    drop(socket);

    assert!(waiting.await.unwrap().ends_with("order 1"));
}

/// A request of HTTP/2 that is nothing but its head, on a stream of its own.
fn slow_request(stream: u8) -> Vec<u8> {
    const HEADERS: u8 = 1;
    const END_STREAM_AND_HEADERS: u8 = 0x05;
    // `:method: POST` and `:scheme: http` by their numbers, `:path` and `:authority` written out.
    let head = [b"\x83\x86\x04\x05", &b"/slow"[..], b"\x01\x01a"].concat();
    let length = u8::try_from(head.len()).unwrap();
    let frame = [
        0,
        0,
        length,
        HEADERS,
        END_STREAM_AND_HEADERS,
        0,
        0,
        0,
        stream,
    ];
    [&frame[..], &head].concat()
}

/// Reads frames of HTTP/2 until one of this type comes; gives its stream and what it holds.
async fn next_frame(stream: &mut TcpStream, wanted: u8) -> (u8, Vec<u8>) {
    loop {
        let mut head = [0; 9];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut head))
            .await
            .expect("the gateway sends the next frame")
            .unwrap();
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut content = vec![0; length];
        stream.read_exact(&mut content).await.unwrap();
        if head[3] == wanted {
            return (head[8], content);
        }
    }
}

/// Ordinary clients wait once they know the bound; this one does not care.
#[tokio::test]
async fn requests_beyond_the_bound_of_a_connection_are_refused_by_themselves() {
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
    const MAX_CONCURRENT_STREAMS_OF_2: [u8; 6] = [0, 3, 0, 0, 0, 2];
    let service = Service::start().await;
    let gateway = gateway(service.address, "[limits]\nstreams = 2").await;
    let mut connection = connect(gateway.address()).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    connection.write_all(preface).await.unwrap();

    for stream in [1, 3, 5] {
        connection.write_all(&slow_request(stream)).await.unwrap();
    }

    let (_, settings) = next_frame(&mut connection, SETTINGS).await;
    let mut settings = settings.chunks(6);
    assert!(settings.any(|setting| setting == MAX_CONCURRENT_STREAMS_OF_2));
    let refused = next_frame(&mut connection, RST_STREAM).await;
    assert_eq!(refused, (5, REFUSED_STREAM.to_vec()));
    eventually(|| service.work.runs() == 2).await;
}
