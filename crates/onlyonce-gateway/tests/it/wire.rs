//! Clients and services byte by byte, for what ordinary ones do not do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Far more than any bound in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// One frame of HTTP/2.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), content].concat()
}

/// The start of a connection whose streams may each be sent so many bytes before more is asked for.
pub(crate) fn preface(window: u32) -> Vec<u8> {
    let setting = [&[0, 4][..], &window.to_be_bytes()].concat();
    let start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    [&start[..], &frame(SETTINGS, 0, 0, &setting)].concat()
}

/// The head of a POST without a body, under `key` if there is one.
pub(crate) fn post(stream: u32, path: &str, key: Option<&str>) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    // `:method: POST` and `:scheme: http` by their numbers, the rest written out.
    let mut head = vec![0x83, 0x86, 0x04, length(path)];
    head.extend(path.as_bytes());
    head.extend(b"\x01\x01a");
    if let Some(key) = key {
        head.extend(b"\x00\x0fidempotency-key");
        head.push(length(key));
        head.extend(key.as_bytes());
    }
    frame(HEADERS, 0x05, stream, &head)
}

/// A connection of HTTP/2 as a client that does as it likes.
pub(crate) struct Http2(pub(crate) TcpStream);

impl Http2 {
    pub(crate) async fn connect(gateway: SocketAddr, window: u32) -> Self {
        let mut stream = TcpStream::connect(gateway).await.unwrap();
        stream.write_all(&preface(window)).await.unwrap();
        Self(stream)
    }

    pub(crate) async fn send(&mut self, frame: &[u8]) {
        self.0.write_all(frame).await.unwrap();
    }

    /// Reads until a frame of this type comes on this stream; gives what it holds.
    pub(crate) async fn next(&mut self, kind: u8, on: u32) -> Vec<u8> {
        let reading = async {
            loop {
                let mut head = [0; 9];
                self.0.read_exact(&mut head).await.unwrap();
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let mut content = vec![0; length as usize];
                self.0.read_exact(&mut content).await.unwrap();
                let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                if (head[3], stream) == (kind, on) {
                    return content;
                }
            }
        };
        let read = tokio::time::timeout(PATIENCE, reading).await;
        read.expect("the gateway sends the frame")
    }
}

/// Reads the head of a request or response.
pub(crate) async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return None,
        }
    }
    Some(String::from_utf8(head).unwrap())
}

/// Reads the first line of an answer.
pub(crate) async fn status_line(stream: &mut TcpStream) -> String {
    let head = tokio::time::timeout(PATIENCE, head(stream)).await;
    let head = head.expect("an answer comes").expect("the answer is heard");
    head.lines().next().unwrap().to_owned()
}

/// What a scripted service does about a request.
pub(crate) enum Say {
    /// Answers, and reads on.
    This(&'static str),
    /// Answers, and closes, whatever was not read: that resets the connection.
    Last(&'static str),
    /// Closes.
    Nothing,
}

/// A service that does to each request what `answer` says to the number of its connection and its own
/// number on that one. Gives its address and how many connections it had.
pub(crate) async fn scripted(
    answer: impl Fn(usize, usize) -> Say + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::<AtomicUsize>::default();
    let (answer, count) = (Arc::new(answer), Arc::clone(&connections));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let connection = count.fetch_add(1, Ordering::SeqCst) + 1;
            let answer = Arc::clone(&answer);
            tokio::spawn(async move {
                let mut number = 0;
                while head(&mut stream).await.is_some() {
                    number += 1;
                    let (said, stays) = match answer(connection, number) {
                        Say::This(said) => (said, true),
                        Say::Last(said) => (said, false),
                        Say::Nothing => return,
                    };
                    stream.write_all(said.as_bytes()).await.unwrap();
                    if !stays {
                        return;
                    }
                }
            });
        }
    });
    (address, connections)
}
