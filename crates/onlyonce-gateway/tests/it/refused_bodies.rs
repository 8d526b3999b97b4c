//! A client that is still sending hears why it is refused, within bounds.

use std::process::Stdio;
use std::time::Duration;

use onlyonce_gateway::Gateway;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{Service, gateway};
use crate::wire::{PATIENCE, Say, scripted, status_line};

const MIB: usize = 1 << 20;

/// Sends all of a request of so many bytes before it reads anything, as simple clients do; gives the
/// status.
async fn send_all_then_read(gateway: &Gateway, head: &str, chunked: bool, bytes: usize) -> String {
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let framing = if chunked {
        format!("transfer-encoding: chunked\r\n\r\n{bytes:x}\r\n")
    } else {
        format!("content-length: {bytes}\r\n\r\n")
    };
    let head = format!("{head}host: a\r\n{framing}");
    stream.write_all(head.as_bytes()).await.unwrap();
    let sent = stream.write_all(&vec![b'x'; bytes]).await;
    sent.expect("all of the body is taken");
    if chunked {
        stream.write_all(b"\r\n0\r\n\r\n").await.unwrap();
    }
    let line = status_line(&mut stream).await;
    line["HTTP/1.1 ".len()..][..3].to_owned()
}

#[tokio::test]
async fn a_client_that_sends_all_of_a_large_body_first_hears_that_it_is_too_large() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let head = "POST /orders HTTP/1.1\r\nidempotency-key: k\r\n";

    for bytes in [4 * MIB, 16 * MIB] {
        for chunked in [false, true] {
            let status = send_all_then_read(&gateway, head, chunked, bytes).await;
            assert_eq!(status, "413", "{bytes} bytes, chunked: {chunked}");
        }
    }
    assert_eq!(service.work.runs(), 0);
}

#[tokio::test]
async fn whatever_the_refusal_is_a_client_that_is_still_sending_hears_it() {
    let service = Service::start().await;
    let refusing = gateway(service.address, "[limits]\nheader_bytes = 8192").await;
    // Taken and not listened on: nobody else answers there either.
    let nowhere = TcpSocket::new_v4().unwrap();
    nowhere.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let unreachable = gateway(nowhere.local_addr().unwrap(), "").await;
    let filler = "x".repeat(9000);

    for (gateway, head, expected) in [
        (&refusing, "idempotency-key: \"bad\r\n", "400"),
        (&refusing, &*format!("x-filler: {filler}\r\n"), "431"),
        (&unreachable, "", "502"),
    ] {
        let head = format!("POST /orders HTTP/1.1\r\n{head}");
        let status = send_all_then_read(gateway, &head, false, 4 * MIB).await;
        assert_eq!(status, expected);
    }
}

#[tokio::test]
async fn after_a_refused_body_was_read_the_connection_takes_the_next_request() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let head = "POST /orders HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\n";
    let large = format!("{head}content-length: {}\r\n\r\n", 4 * MIB);
    stream.write_all(large.as_bytes()).await.unwrap();
    stream.write_all(&vec![b'x'; 4 * MIB]).await.unwrap();

    let small = format!("{head}connection: close\r\ncontent-length: 2\r\n\r\n{{}}");
    stream.write_all(small.as_bytes()).await.unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await.unwrap();

    assert!(heard.starts_with("HTTP/1.1 413 "), "{heard}");
    assert!(heard.ends_with("order 1"), "{heard}");
}

#[tokio::test]
async fn a_refused_body_is_not_read_for_ever() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "[timeouts]\nlinger = \"300ms\"").await;
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let head = "POST /orders HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\n\
                content-length: 1000000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert!(status_line(&mut stream).await.starts_with("HTTP/1.1 413 "));

    let sending = async {
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };

    let closed = tokio::time::timeout(PATIENCE, sending).await;
    closed.expect("the gateway closes the connection");
}

#[tokio::test]
async fn a_client_that_waits_for_leave_hears_a_refusal_instead() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let head = format!(
        "POST /orders HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\nexpect: 100-continue\r\n\
         content-length: {}\r\n\r\n",
        4 * MIB
    );

    stream.write_all(head.as_bytes()).await.unwrap();
    let mut heard = String::new();
    let hearing = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut heard));

    hearing.await.unwrap().unwrap();
    assert!(heard.starts_with("HTTP/1.1 413 "), "{heard}");
    assert!(!heard.contains("100 Continue"), "{heard}");
}

/// It reads the head of a request, answers, and closes: the rest of the request meets a reset.
#[tokio::test]
async fn a_service_that_answers_early_and_closes_is_heard_through_the_gateway() {
    let (service, _) = scripted(|_, _| {
        Say::Last(
            "HTTP/1.1 413 Payload Too Large\r\nconnection: close\r\n\
             content-length: 9\r\n\r\ntoo large",
        )
    })
    .await;
    let gateway = gateway(service, "").await;

    for _ in 0..15 {
        let head = "POST /upload HTTP/1.1\r\n";
        let status = send_all_then_read(&gateway, head, false, 4 * MIB).await;
        assert_eq!(status, "413");
    }
}

/// It sends all of a body before it reads, and gives up at the first broken pipe.
const PYTHON: &str = "
import http.client, sys
for _ in range(15):
    connection = http.client.HTTPConnection(sys.argv[1])
    headers = {'Idempotency-Key': 'k'}
    connection.request('POST', '/orders', b'x' * (4 << 20), headers)
    answer = connection.getresponse()
    print(answer.status, answer.getheader('content-type'))
    connection.close()
";

#[tokio::test]
async fn pythons_client_hears_that_its_body_is_too_large() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;

    let ran = tokio::process::Command::new("python3")
        .args(["-c", PYTHON, &gateway.address().to_string()])
        .stdin(Stdio::null())
        .output()
        .await
        .expect("python3 is installed");

    let said = String::from_utf8(ran.stdout).unwrap();
    let failed = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(
        said,
        "413 application/problem+json\n".repeat(15),
        "{failed}"
    );
}
