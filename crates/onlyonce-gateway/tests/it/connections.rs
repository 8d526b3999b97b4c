//! Connections to a service: used again where they can be, given up where the service did, and never
//! at the cost of a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::{client, eventually, gateway};
use crate::wire::{PATIENCE, head, status_line};

const MADE: &[u8] = b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\nmade";
const LARGE_BYTES: usize = 3 << 20;
const UPLOAD_BYTES: usize = 300_000;

/// A service that does as it likes with each connection; counts them.
async fn service<F, D>(serve: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(TcpStream) -> D + Send + 'static,
    D: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(stream));
        }
    });
    (address, connections)
}

async fn next(said: &mut UnboundedReceiver<()>) {
    let said = tokio::time::timeout(PATIENCE, said.recv()).await;
    said.expect("the service says so")
        .expect("the service is there");
}

#[tokio::test]
async fn a_connection_that_the_service_closed_meanwhile_costs_no_request() {
    let (say, mut closed) = unbounded_channel();
    let (service, connections) = service(move |mut stream| {
        let say = say.clone();
        async move {
            if head(&mut stream).await.is_some() {
                stream.write_all(MADE).await.unwrap();
                drop(stream);
                say.send(()).unwrap();
            }
        }
    })
    .await;
    let gateway = gateway(service, "").await;
    let client = client();
    let url = format!("http://{}/orders", gateway.address());

    for _ in 0..20 {
        let answer = client.post(&url).send().await.unwrap();
        assert_eq!(answer.status(), 201);
        next(&mut closed).await;
    }

    assert_eq!(connections.load(Ordering::SeqCst), 20);
}

#[tokio::test]
async fn a_connection_that_the_service_gives_up_is_given_up_here_too() {
    let (say, mut ended) = unbounded_channel();
    let (service, _) = service(move |mut stream| {
        let say = say.clone();
        async move {
            head(&mut stream).await.unwrap();
            stream.write_all(MADE).await.unwrap();
            stream.shutdown().await.unwrap();
            assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
            say.send(()).unwrap();
        }
    })
    .await;
    let gateway = gateway(service, "").await;

    let url = format!("http://{}/orders", gateway.address());
    let answer = client().post(url).send().await.unwrap();

    assert_eq!(answer.status(), 201);
    next(&mut ended).await;
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_large_answer() {
    let (service, connections) = service(async |mut stream: TcpStream| {
        while head(&mut stream).await.is_some() {
            let start = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(start).await.unwrap();
            for _ in 0..LARGE_BYTES >> 16 {
                stream.write_all(b"10000\r\n").await.unwrap();
                stream.write_all(&vec![b'a'; 1 << 16]).await.unwrap();
                stream.write_all(b"\r\n").await.unwrap();
            }
            stream.write_all(b"0\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let gateway = gateway(service, "").await;
    let client = client();
    let url = format!("http://{}/orders", gateway.address());

    for _ in 0..5 {
        let answer = client.get(&url).send().await.unwrap();
        assert_eq!(answer.bytes().await.unwrap().len(), LARGE_BYTES);
    }

    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// The answer is out before the request has been sent: what follows of it is still the service's.
#[tokio::test]
async fn a_service_that_answers_early_gets_the_rest_of_the_request() {
    let received = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&received);
    let (service, _) = service(move |mut stream| {
        let count = Arc::clone(&count);
        async move {
            head(&mut stream).await.unwrap();
            stream.write_all(MADE).await.unwrap();
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                count.fetch_add(read, Ordering::SeqCst);
            }
        }
    })
    .await;
    let gateway = gateway(service, "").await;
    let mut client = TcpStream::connect(gateway.address()).await.unwrap();
    let start = format!("POST /up HTTP/1.1\r\nhost: a\r\ncontent-length: {UPLOAD_BYTES}\r\n\r\n");

    client.write_all(start.as_bytes()).await.unwrap();
    let answered = status_line(&mut client).await;
    client.write_all(&vec![b'a'; UPLOAD_BYTES]).await.unwrap();

    assert_eq!(answered, "HTTP/1.1 201 Created");
    eventually(|| received.load(Ordering::SeqCst) == UPLOAD_BYTES).await;
}
