//! The proxy, in front of a Redis and of a server that only listens.

use std::io::ErrorKind;
use std::time::Duration;

use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Redis, RedisOptions, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn redis() -> (Redis, Proxy) {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let proxy = Proxy::start(&redis.url()).await.unwrap();
    (redis, proxy)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

async fn ask(client: &mut TcpStream, question: &[u8], answer: &[u8]) {
    client.write_all(question).await.unwrap();
    let mut heard = vec![0; answer.len()];
    client.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, answer);
}

async fn ping(client: &mut TcpStream) {
    ask(client, b"PING\r\n", b"+PONG\r\n").await;
}

/// What is left to be heard until the connection ends, in whatever way.
async fn rest(client: &mut TcpStream) -> Vec<u8> {
    let mut heard = Vec::new();
    // A reset keeps what was heard before.
    let _ = client.read_to_end(&mut heard).await;
    heard
}

#[tokio::test]
async fn round_trips_are_counted_over_all_connections() {
    let (_redis, proxy) = redis().await;
    assert_eq!(proxy.round_trips(), 0);

    let mut first = connect(&proxy).await;
    for _ in 0..3 {
        ping(&mut first).await;
    }
    let mut second = connect(&proxy).await;
    ping(&mut second).await;
    assert_eq!(proxy.round_trips(), 4);
    assert_eq!(proxy.connections(), 2);

    proxy.reset();
    ping(&mut first).await;
    assert_eq!(proxy.round_trips(), 1);
}

#[tokio::test]
async fn a_pipeline_is_one_round_trip() {
    // Says nothing before it has heard everything, so that the count is certain.
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(&server.local_addr().unwrap().to_string())
        .await
        .unwrap();
    let mut client = connect(&proxy).await;
    let (mut peer, _) = server.accept().await.unwrap();

    for question in [b"a", b"b", b"c"] {
        client.write_all(question).await.unwrap();
        assert_eq!(peer.read_u8().await.unwrap(), question[0]);
    }
    peer.write_u8(b'!').await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'!');

    assert_eq!(proxy.round_trips(), 1);
}

#[tokio::test]
async fn many_bytes_pass_in_both_directions() {
    let (_redis, proxy) = redis().await;
    let mut client = connect(&proxy).await;
    let long = "x".repeat(3_000_000);

    let question = format!("*2\r\n$4\r\nECHO\r\n${}\r\n{long}\r\n", long.len());
    let answer = format!("${}\r\n{long}\r\n", long.len());
    ask(&mut client, question.as_bytes(), answer.as_bytes()).await;

    assert_eq!(proxy.round_trips(), 1);
}

#[tokio::test]
async fn a_lost_reply_belongs_to_a_request_that_was_done() {
    let (redis, proxy) = redis().await;
    let mut client = connect(&proxy).await;
    ping(&mut client).await;

    proxy.drop_replies(1);
    client.write_all(b"INCR n\r\n").await.unwrap();
    assert_eq!(rest(&mut client).await, b"");

    assert_eq!(redis.cli(&["GET", "n"]).unwrap(), "1");
    assert_eq!(proxy.replies_lost(), 1);
    let mut client = connect(&proxy).await;
    ask(&mut client, b"INCR n\r\n", b":2\r\n").await;
}

#[tokio::test]
async fn the_reply_to_a_certain_request_can_be_lost() {
    let (redis, proxy) = redis().await;
    let mut client = connect(&proxy).await;

    proxy.drop_reply_to(b"INCR n");
    ping(&mut client).await;
    ask(&mut client, b"INCR m\r\nIN", b":1\r\n").await;
    client.write_all(b"CR n\r\n").await.unwrap();
    assert_eq!(rest(&mut client).await, b"");

    assert_eq!(redis.cli(&["GET", "n"]).unwrap(), "1");
    assert_eq!(proxy.replies_lost(), 1);
}

#[tokio::test]
async fn cut_connections_are_over_and_new_ones_work() {
    let (_redis, proxy) = redis().await;
    let mut old = connect(&proxy).await;
    ping(&mut old).await;

    proxy.cut().await.unwrap();

    assert_eq!(rest(&mut old).await, b"");
    assert_eq!(proxy.connections(), 0);
    ping(&mut connect(&proxy).await).await;
}

#[tokio::test]
async fn nothing_passes_a_stalled_proxy() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(&server.local_addr().unwrap().to_string())
        .await
        .unwrap();
    let mut client = connect(&proxy).await;
    client.write_u8(b'1').await.unwrap();
    let (mut peer, _) = server.accept().await.unwrap();
    assert_eq!(peer.read_u8().await.unwrap(), b'1');

    proxy.stall().await;
    proxy.stall().await;
    client.write_u8(b'2').await.unwrap();
    let mut late = connect(&proxy).await;
    late.write_u8(b'3').await.unwrap();
    proxy.cut().await.unwrap();
    assert_eq!(rest(&mut peer).await, b"");
    assert_eq!(proxy.round_trips(), 1);

    proxy.resume().await.unwrap();
    let mut client = connect(&proxy).await;
    client.write_u8(b'4').await.unwrap();
    let (mut peer, _) = server.accept().await.unwrap();
    assert_eq!(peer.read_u8().await.unwrap(), b'4');
}

#[tokio::test]
async fn what_was_stalled_arrives_when_it_is_resumed() {
    let (_redis, proxy) = redis().await;
    let mut client = connect(&proxy).await;

    proxy.stall().await;
    client.write_all(b"PING\r\n").await.unwrap();
    proxy.resume().await.unwrap();

    let mut heard = [0; 7];
    client.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"+PONG\r\n");
}

#[tokio::test]
async fn a_refusing_proxy_listens_again_at_the_same_address() {
    let (_redis, proxy) = redis().await;
    let mut old = connect(&proxy).await;
    ping(&mut old).await;

    proxy.refuse().await.unwrap();
    assert_eq!(rest(&mut old).await, b"");
    let refused = TcpStream::connect(proxy.address()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

    proxy.resume().await.unwrap();
    ping(&mut connect(&proxy).await).await;
}

#[tokio::test(start_paused = true)]
async fn a_delay_holds_answers_back() {
    // Virtual time stands still while anyone works, so that only the delay moves it.
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(&server.local_addr().unwrap().to_string())
        .await
        .unwrap();
    proxy.delay(Duration::from_secs(3_600));
    let mut client = connect(&proxy).await;
    let (mut peer, _) = server.accept().await.unwrap();
    let clock = tokio::time::Instant::now();

    client.write_u8(b'?').await.unwrap();
    peer.read_u8().await.unwrap();
    peer.write_u8(b'!').await.unwrap();
    client.read_u8().await.unwrap();

    assert!(clock.elapsed() >= Duration::from_secs(3_600));
}

#[tokio::test]
async fn a_url_keeps_all_but_the_address() {
    let proxy = Proxy::start("postgres://user:p%40ss@127.0.0.1:1/base?x=y")
        .await
        .unwrap();

    let expected = format!("postgres://user:p%40ss@{}/base?x=y", proxy.address());
    assert_eq!(proxy.url(), expected);
    for wrong in ["redis://127.0.0.1", "redis+cluster://a:1,b:2"] {
        let error = Proxy::start(wrong).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
