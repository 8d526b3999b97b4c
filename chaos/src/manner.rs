//! The ways in which a client sends one keyed request: properly, or as somebody would who wants it
//! to run twice or its answer to get lost. However it is sent, it is the same operation.

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use onlyonce_testkit::sim::dice::Dice;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// A prefix that the gateway passes on without protection; dotted paths lead out of it.
pub(crate) const PASSED: &str = "/public";
const PATH: &str = "/orders";
const HEADERS_MAX: usize = 64;
/// An answer that is longer is none of ours.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// How much of an answer is read before the client has had enough.
const HALF_BYTES: usize = 12;
/// How long a client waits before it resets what it began.
const RESET_AFTER_MS: std::ops::RangeInclusive<u64> = 0..=30;
/// Requests out of a thousand that are sent in a way of an adversary.
const ODD_PERMILLE: u64 = 150;

/// How a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// By an ordinary client.
    Plain,
    /// With the offer to change to HTTP/2, as `curl --http2` sends it.
    Upgrade,
    /// With an empty line after it, as old clients send one.
    TrailingLine,
    /// Twice at once on one connection.
    Pipelined,
    /// By a path that leads out of what passes without protection.
    Dotted,
    /// The same with escaped dots.
    Escaped,
    /// The client names headers in `Connection` that decide about the request.
    Stripped,
    /// The client reads a few bytes of the answer and resets the connection.
    HalfRead,
    /// The client resets the connection soon after it sent the request.
    Reset,
    /// The client resets the stream of an HTTP/2 connection.
    StreamReset,
}

const ODD: [Manner; 9] = [
    Manner::Upgrade,
    Manner::TrailingLine,
    Manner::Pipelined,
    Manner::Dotted,
    Manner::Escaped,
    Manner::Stripped,
    Manner::HalfRead,
    Manner::Reset,
    Manner::StreamReset,
];

/// What to send, whatever the manner.
pub(crate) struct Order<'a> {
    pub(crate) host: &'a str,
    pub(crate) key: &'a str,
    pub(crate) body: &'a str,
}

/// A whole answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Manner {
    /// Mostly the ordinary one.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        if dice.chance(ODD_PERMILLE) {
            dice.pick(&ODD)
        } else {
            Self::Plain
        }
    }

    /// Sends the order on a connection of its own; returns every whole answer, in order of arrival.
    pub(crate) async fn send(
        self,
        gateway: SocketAddr,
        order: &Order<'_>,
        dice: &mut Dice,
    ) -> io::Result<Vec<Heard>> {
        let reset_after = Duration::from_millis(dice.between(RESET_AFTER_MS));
        let mut stream = TcpStream::connect(gateway).await?;
        stream.set_nodelay(true)?;
        if self == Self::StreamReset {
            reset_stream(stream, order, reset_after).await?;
            return Ok(Vec::new());
        }
        stream.write_all(&self.bytes(order)).await?;
        match self {
            Self::Reset => {
                sleep(reset_after).await;
                stream.set_zero_linger()?;
                Ok(Vec::new())
            }
            Self::HalfRead => {
                stream.read_exact(&mut [0; HALF_BYTES]).await?;
                stream.set_zero_linger()?;
                Ok(Vec::new())
            }
            Self::Plain
            | Self::Upgrade
            | Self::TrailingLine
            | Self::Pipelined
            | Self::Dotted
            | Self::Escaped
            | Self::Stripped
            | Self::StreamReset => {
                let mut answers = Vec::new();
                stream
                    .take(ANSWER_BYTES_MAX)
                    .read_to_end(&mut answers)
                    .await?;
                Ok(read_all(&answers))
            }
        }
    }

    /// What goes over the wire in HTTP/1.1. The gateway is asked to close the connection, so that
    /// the end of its last answer is the end of what there is to read.
    fn bytes(self, order: &Order<'_>) -> Vec<u8> {
        let (path, connection, more) = match self {
            Self::Upgrade => (
                PATH.to_owned(),
                "close, Upgrade, HTTP2-Settings",
                "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n",
            ),
            Self::Dotted => (format!("{PASSED}/..{PATH}"), "close", ""),
            Self::Escaped => (format!("{PASSED}/%2e%2E{PATH}"), "close", ""),
            Self::Stripped => (
                PATH.to_owned(),
                "close, Idempotency-Key, Host, Content-Type",
                "Connection: Forwarded, X-Forwarded-For\r\n",
            ),
            Self::Plain
            | Self::TrailingLine
            | Self::Pipelined
            | Self::HalfRead
            | Self::Reset
            | Self::StreamReset => (PATH.to_owned(), "close", ""),
        };
        let last = request(order, &path, &format!("Connection: {connection}\r\n{more}"));
        match self {
            Self::Pipelined => [request(order, &path, ""), last].concat().into_bytes(),
            Self::TrailingLine => [&last, "\r\n"].concat().into_bytes(),
            Self::Plain
            | Self::Upgrade
            | Self::Dotted
            | Self::Escaped
            | Self::Stripped
            | Self::HalfRead
            | Self::Reset
            | Self::StreamReset => last.into_bytes(),
        }
    }
}

fn request(Order { host, key, body }: &Order<'_>, path: &str, more: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nIdempotency-Key: {key}\r\n\
         Content-Type: text/plain\r\nContent-Length: {length}\r\n{more}\r\n{body}"
    )
}

/// Sends the order over HTTP/2 and takes it back.
async fn reset_stream(stream: TcpStream, order: &Order<'_>, after: Duration) -> io::Result<()> {
    let io = TokioIo::new(stream);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io)
        .await
        .map_err(io::Error::other)?;
    let serving = tokio::spawn(connection);
    let request = Request::post(format!("http://{}{PATH}", order.host))
        .header("idempotency-key", order.key)
        .header("content-type", "text/plain")
        .body(Full::<Bytes>::from(order.body.to_owned()))
        .map_err(io::Error::other)?;
    // Dropped before its answer is there, a request is reset.
    drop(timeout(after, sender.send_request(request)).await);
    drop(sender);
    drop(timeout(after, serving).await);
    Ok(())
}

/// The whole answers that these bytes begin with.
fn read_all(mut bytes: &[u8]) -> Vec<Heard> {
    let mut all = Vec::new();
    while let Some((heard, rest)) = read_one(bytes) {
        all.push(heard);
        bytes = rest;
    }
    all
}

/// The first answer and what follows it; nothing if it is cut off, or of unknown length.
fn read_one(bytes: &[u8]) -> Option<(Heard, &[u8])> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = head.parse(bytes).ok()? else {
        return None;
    };
    let status = StatusCode::from_u16(head.code?).ok()?;
    let length = head
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length: usize = match length {
        Some(header) => std::str::from_utf8(header.value)
            .ok()?
            .trim()
            .parse()
            .ok()?,
        None if status.is_informational() => 0,
        None => return None,
    };
    let body = bytes[head_bytes..].get(..length)?;
    let heard = Heard {
        status,
        body: Bytes::copy_from_slice(body),
    };
    Some((heard, &bytes[head_bytes + length..]))
}
