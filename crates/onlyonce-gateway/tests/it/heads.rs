//! What a client may put on the wire, and what of it reaches the service: hosts, headers of one
//! hop, and bytes after a request.

use onlyonce_gateway::Gateway;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Service, gateway, heard, http2};

/// Whether the gateway refuses these lines with a problem of its own.
async fn is_refused(gateway: &Gateway, lines: &str) -> bool {
    let heard = heard(gateway, &format!("{lines}connection: close\r\n\r\n")).await;
    let status = heard.split(' ').nth(1);
    status == Some("400") && heard.contains("urn:onlyonce:problem:")
}

#[tokio::test]
async fn a_request_that_does_not_name_one_host_is_refused() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;

    for lines in [
        "GET /told HTTP/1.1\r\n",
        "GET http://a/told HTTP/1.1\r\n",
        "GET /told HTTP/1.1\r\nhost: a\r\nhost: a\r\n",
        "GET /told HTTP/1.1\r\nhost: a\r\nHost: b\r\n",
        "GET /told HTTP/1.0\r\nhost: a\r\nhost: b\r\n",
        "GET /told HTTP/1.1\r\nhost: a, b\r\n",
        "GET /told HTTP/1.1\r\nhost: a/b\r\n",
        "GET /told HTTP/1.1\r\nhost: user@a\r\n",
        "GET /told HTTP/1.1\r\nhost: a b\r\n",
        "GET /told HTTP/1.1\r\nhost:\r\n",
    ] {
        assert!(is_refused(&gateway, lines).await, "{lines}");
    }
    for host in ["a", "A.example:8080", "[::1]:80", "a_b-c.example."] {
        let lines = format!("GET /told HTTP/1.1\r\nhost: {host}\r\n");
        assert!(!is_refused(&gateway, &lines).await, "{lines}");
    }
}

#[tokio::test]
async fn the_service_hears_one_host() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let told =
        async |lines: &str| heard(&gateway, &format!("{lines}connection: close\r\n\r\n")).await;

    let absolute = told("GET http://named/told HTTP/1.1\r\nhost: other\r\n").await;
    let old = told("GET /told HTTP/1.0\r\n").await;
    let request = http::Request::get("http://named/told").header("host", "other");
    let mut client = http2(&gateway).await;
    let answer = client.send_request(request.body(<_>::default()).unwrap());
    let over_http2 = http_body_util::BodyExt::collect(answer.await.unwrap().into_body());
    let over_http2 = over_http2.await.unwrap().to_bytes();
    let over_http2 = String::from_utf8(over_http2.to_vec()).unwrap();

    for told in [absolute, over_http2] {
        assert!(told.contains("\nhost: named\n"), "{told}");
        assert!(told.contains("\nx-forwarded-host: named"), "{told}");
        assert!(!told.contains("other"), "{told}");
    }
    // It has to be called something.
    assert!(
        old.contains(&format!("\nhost: {}", service.address)),
        "{old}"
    );
}

#[tokio::test]
async fn an_http_2_request_that_does_not_name_one_host_is_refused() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let mut client = http2(&gateway).await;
    let twice = http::Request::get("http://a/told")
        .header("host", "a")
        .header("host", "b");

    let answer = client.send_request(twice.body(<_>::default()).unwrap());

    assert_eq!(answer.await.unwrap().status(), 400);
    assert_eq!(status_without_authority(&gateway).await, STATUS_400);
}

/// The number of `:status: 400` in HPACK's table.
const STATUS_400: u8 = 0x80 | 12;

/// Sends a request without `:authority`, which no client library lets one do, and gives the first
/// byte of the answer's head.
async fn status_without_authority(gateway: &Gateway) -> u8 {
    const HEADERS: u8 = 1;
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // `:method: GET` and `:scheme: http` by their numbers, `:path` written out.
    let request = b"\0\0\x09\x01\x05\0\0\0\x01\x82\x86\x04\x05/told";
    stream
        .write_all(&[&preface[..], request].concat())
        .await
        .unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut content = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut content).await.unwrap();
        if head[3] == HEADERS {
            return content[0];
        }
    }
}

#[tokio::test]
async fn what_any_line_of_connection_names_stays_on_its_hop() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let lines = "GET /told HTTP/1.1\r\nhost: a\r\nconnection: x-first, close\r\n\
                 connection: X-Second\r\nconnection: \u{e9}, x-third\r\nx-first: 1\r\n\
                 x-second: 2\r\nx-third: 3\r\nx-fourth: 4\r\nkeep-alive: 5\r\n\
                 proxy-connection: close\r\n\r\n";

    let told = heard(&gateway, lines).await;

    for name in ["x-first", "x-second", "x-third", "keep-alive", "proxy-"] {
        assert!(!told.contains(name), "{told}");
    }
    assert!(told.contains("x-fourth: 4"), "{told}");
}

#[tokio::test]
async fn who_asks_cannot_be_dropped_by_naming_it_in_connection() {
    const SENT: [&str; 16] = [
        "authorization: Bearer a",
        "cookie: session=a",
        "idempotency-key: key",
        "x-idempotency-ttl: 60000",
        "forwarded: for=192.0.2.1",
        "x-forwarded-for: 192.0.2.1",
        "x-forwarded-port: 443",
        "x-real-ip: 192.0.2.1",
        "x-client: 192.0.2.1",
        "x-user: alice",
        "x-tenant: blue",
        "x-actor-type: service",
        "x-made-at: Thu, 19 Nov 2026 00:00:00 GMT",
        "content-type: text/plain",
        "via: 1.1 balancer",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ];
    let service = Service::start().await;
    let more = "scope = [\"trusted-header:x-user\"]\n[limits]\naddress_header = \"x-client\"\n\
                [[route]]\nmatch = \"* /other\"\nscope = [\"header:x-tenant\"]\n\
                rules.actor_type = \"header:x-actor-type\"\n\
                rules.ttl_header = \"none\"\nrules.key_time = { from = \"header:x-made-at\", ahead_max = \"5m\" }";
    let gateway = gateway(service.address, more).await;
    let named = SENT.map(|line| line.split_once(':').unwrap().0).join(", ");
    let lines = format!(
        "PUT /told HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\nconnection: close, host, \
         content-length, x-forwarded-host, x-forwarded-proto, {named}\r\n{}\r\n\r\nhi",
        SENT.join("\r\n")
    );

    let told = heard(&gateway, &lines).await;

    for line in SENT {
        assert!(told.contains(line), "{line} is not in {told}");
    }
    assert!(told.contains("\nhost: a\n"), "{told}");
    assert!(
        told.contains("x-forwarded-for: 192.0.2.1, 127.0.0.1"),
        "{told}"
    );
    assert!(told.contains("content-length: 2"), "{told}");
}

/// Reads one answer with a length off a connection.
async fn answer(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(std::time::Duration::from_secs(30), stream.read_u8());
        text.push(byte.await.expect("the answer comes").unwrap());
    }
    let head = String::from_utf8(text).unwrap();
    let (_, length) = head.split_once("content-length: ").unwrap();
    let length = length.split_once("\r\n").unwrap().0.parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    head + std::str::from_utf8(&body).unwrap()
}

fn keyed(path: &str, key: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\nidempotency-key: {key}\r\n\r\nhi"
    )
}

#[tokio::test]
async fn bytes_after_a_request_do_not_hold_its_answer_back() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let rest = "OST /orders HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";

    for (number, after) in ["\r\n", "P", "\r\nPOST /orders HTTP/1.1\r\nhost"]
        .iter()
        .enumerate()
    {
        let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
        let request = keyed("/orders", &format!("key-{number}")) + after;
        stream.write_all(request.as_bytes()).await.unwrap();

        let first = answer(&mut stream).await;

        assert!(first.starts_with("HTTP/1.1 201 "), "{first}");
        if *after == "P" {
            stream.write_all(rest.as_bytes()).await.unwrap();
            assert!(answer(&mut stream).await.starts_with("HTTP/1.1 201 "));
        }
    }
}

#[tokio::test]
async fn requests_sent_at_once_are_answered_in_order() {
    const COUNT: usize = 20;
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let mut all = keyed("/slow", "slow");
    for number in 0..COUNT {
        all += &keyed("/orders", &format!("key-{}", number / 2));
        all += "\r\n";
    }
    stream.write_all(all.as_bytes()).await.unwrap();

    service.work.gate.notify_one();

    assert!(answer(&mut stream).await.ends_with("slow 1"));
    for number in 0..COUNT {
        let order = format!("order {}", number / 2 + 2);
        let answer = answer(&mut stream).await;
        assert!(answer.ends_with(&order), "{order}: {answer}");
    }
    assert_eq!(service.work.runs(), 1 + COUNT / 2);
}

/// The first answer does not wait for the second request's.
#[tokio::test]
async fn an_answer_does_not_wait_for_the_request_after_it() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let both = keyed("/orders", "one") + &keyed("/slow", "two");
    stream.write_all(both.as_bytes()).await.unwrap();

    assert!(answer(&mut stream).await.ends_with("order 1"));
    service.work.gate.notify_one();
    assert!(answer(&mut stream).await.ends_with("slow 2"));
}

#[tokio::test]
async fn a_length_that_is_said_twice_reaches_the_service_once() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let mut client = http2(&gateway).await;
    let mut with_lengths = |lengths: &[&str]| {
        let mut request = http::Request::post("http://a/told");
        for length in lengths {
            request = request.header("content-length", *length);
        }
        let body = http_body_util::Full::from("four");
        client.send_request(request.body(body).unwrap())
    };

    let twice = with_lengths(&["4", "4"]).await.unwrap();

    assert_eq!(twice.status(), 200);
    let told = http_body_util::BodyExt::collect(twice.into_body());
    let told = String::from_utf8(told.await.unwrap().to_bytes().to_vec()).unwrap();
    assert_eq!(told.matches("content-length: 4").count(), 1, "{told}");
    for lines in [
        "content-length: 4\r\ncontent-length: 5\r\n",
        "content-length: +4\r\n",
    ] {
        let lines = format!("POST /told HTTP/1.1\r\nhost: a\r\n{lines}");
        let heard = heard(&gateway, &format!("{lines}connection: close\r\n\r\nfour")).await;
        assert!(heard.starts_with("HTTP/1.1 400"), "{heard}");
    }
}
