//! A client that sends what wrk sends, one request per connection: to begin sessions, to store what
//! shall be replayed, and to send duplicates at the same time.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::wrk::{AUTHORIZATION, BODY_BYTES, body};

const TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
    /// The cookie that it sets, without its attributes.
    pub(crate) cookie: Option<String>,
}

/// What is asked.
#[derive(Clone, Copy)]
pub(crate) struct Post<'a> {
    pub(crate) path: &'a str,
    pub(crate) key: Option<&'a str>,
    pub(crate) cookie: Option<&'a str>,
}

impl<'a> Post<'a> {
    /// Without a key and a session.
    pub(crate) fn to(path: &'a str) -> Self {
        Self {
            path,
            key: None,
            cookie: None,
        }
    }
}

impl Client {
    pub(crate) async fn connect(port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await;
        let stream = stream.map_err(Failure::doing("connect"))?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(Failure::doing("connect"))?;
        // The sender notices its end.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender })
    }

    pub(crate) async fn post(&mut self, post: Post<'_>) -> Result<Answer, Failure> {
        self.send(post, body(BODY_BYTES)).await
    }

    pub(crate) async fn send(&mut self, post: Post<'_>, body: String) -> Result<Answer, Failure> {
        let mut request = Request::post(post.path)
            .header(header::HOST, "127.0.0.1")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, AUTHORIZATION)
            .header(header::CONTENT_LENGTH, body.len());
        if let Some(key) = post.key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(cookie) = post.cookie {
            request = request.header(header::COOKIE, cookie);
        }
        let request = request
            .body(Full::from(body))
            .map_err(Failure::doing("make a request"))?;
        match timeout(TIMEOUT, self.exchange(request)).await {
            Ok(answer) => answer.map_err(Failure::doing(format!("post to {}", post.path))),
            Err(_) => Err(Failure::new(format!("no answer from {}", post.path))),
        }
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, hyper::Error> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let cookie = response.headers().get(header::SET_COOKIE);
        let cookie = cookie.and_then(|it| it.to_str().ok()?.split(';').next());
        Ok(Answer {
            cookie: cookie.map(str::to_owned),
            status: response.status(),
            body: response.into_body().collect().await?.to_bytes(),
        })
    }
}
