//! Clients on streamable HTTP before servers on pipes: each session has a server of its own, and requests of
//! the revisions without sessions share one with no one but their own caller. It has no listener: the program
//! that has one says who the caller is, and checks where a request comes from.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, request};
use tokio::io::{AsyncRead, AsyncWrite};

use self::budget::{Kept, Whole};
use self::head::{BATCHES_IN, HANDSHAKES, Head, PRIMED_SINCE, STATELESS_SINCE, version_in};
use self::line::{Line, NotTaken};
use self::stream::Reader;
use self::table::{NoServer, Table};
use self::words::{Form, INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR};
use crate::message::{INITIALIZE, Message, Reply, each};
use crate::proxy::{Ended, Proxy};
use crate::remote::SESSION;
use crate::session::Caller;

mod budget;
mod head;
mod line;
mod own;
mod rename;
mod stateless;
mod stream;
mod table;
mod words;

pub use self::words::FrontBody;

/// Messages in one batch.
const BATCH_MAX: usize = 100;
/// How long a server may take to begin a session: some are fetched first.
const BEGIN_MAX: Duration = Duration::from_secs(120);

/// Starts servers that speak on a pair of pipes.
pub trait Servers: Send + Sync {
    /// Starts one.
    fn start(&self) -> io::Result<Started>;
}

/// Ends a server whose pipes are closed; it is told which side went first.
pub type End = Box<dyn FnOnce(Ended) -> BoxFuture<'static, ()> + Send>;

/// A server that was started.
pub struct Started {
    /// What it says, a line for each message.
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// What it hears.
    pub input: Box<dyn AsyncWrite + Send + Unpin>,
    /// Called once its pipes are closed.
    pub end: End,
}

/// How much a front holds.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Servers that run at a time.
    pub servers_max: usize,
    /// After how long without use a server is ended.
    pub idle: Duration,
    /// Bytes of messages that each server's streams hold for clients that do not read, and as many on their way
    /// to a server that does not. One message may exceed it. Beyond it, what is no answer is not kept, an answer
    /// becomes an error (a call with a key can be sent again), and requests are refused until there is room.
    pub held_bytes_max: usize,
    /// Whether derived keys belong to the conversation that the rules name, and not to each session.
    pub is_one_conversation: bool,
}

/// Clients over HTTP before servers on pipes.
#[derive(Clone)]
pub struct Front {
    table: Arc<Table>,
}

impl Front {
    /// A front that makes calls run once as `proxy` does, before servers that it starts itself. Where the
    /// rules want calls in doubt settled without a retry, it must be made in a runtime: then it starts a
    /// server for that when it has something to ask.
    pub fn new(proxy: Proxy, servers: impl Servers + 'static, bounds: Bounds) -> Self {
        let table = Arc::new(Table::new(proxy, Box::new(servers), bounds));
        table.settle();
        Self { table }
    }

    /// Answers one request to the endpoint. `caller` names its sender: sessions and keys of different
    /// callers never meet. Dropping the future, or the answer's body, stops nothing that has begun, except
    /// that revisions without sessions have it cancel a request without a key.
    pub async fn answer(
        &self,
        request: Request<Bytes>,
        caller: Option<Caller>,
    ) -> Response<FrontBody> {
        let (parts, body) = request.into_parts();
        if parts.method == Method::POST {
            self.post(&parts, &body, caller).await
        } else if parts.method == Method::GET {
            self.get(&parts, &caller)
        } else if parts.method == Method::DELETE {
            self.delete(&parts, &caller)
        } else {
            words::not_allowed("GET, POST, DELETE")
        }
    }

    /// Ends every server. Calls with a key that run are waited for, ten seconds at most; nothing new
    /// begins.
    pub async fn shutdown(&self) {
        self.table.shutdown().await;
    }

    async fn post(
        &self,
        parts: &request::Parts,
        body: &[u8],
        caller: Option<Caller>,
    ) -> Response<FrontBody> {
        let head = Head::of(parts);
        if !head.is_json() {
            let why = "send messages as Content-Type: application/json";
            return words::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, INVALID_REQUEST, why);
        }
        let takes = head.takes();
        if !takes.json && !takes.events {
            let why = "accept application/json and text/event-stream";
            return words::refused(StatusCode::NOT_ACCEPTABLE, INVALID_REQUEST, why);
        }
        let key = match head.key(self.table.key_rule()) {
            Ok(key) => key,
            Err(error) => {
                let why = format!("the header Idempotency-Key cannot be read: {error}");
                return words::refused(StatusCode::BAD_REQUEST, INVALID_REQUEST, &why);
            }
        };
        // What is no text would be another message on its way on.
        let Ok(text) = std::str::from_utf8(body).map(str::to_owned) else {
            return refused_message(NotTaken::Unreadable);
        };
        let is_batch = text.trim_start().starts_with('[');
        let mut messages = each(text);
        let (has_no_session, is_first) = {
            let first = match &messages[..] {
                [first] if !is_batch => Message::read(first),
                _ => Message::Other,
            };
            let is_first =
                matches!(&first, Message::Request { method, .. } if method == INITIALIZE);
            (is_stateless(&head, &first), is_first)
        };
        if has_no_session {
            let asked = stateless::Asked { head, takes, key };
            return stateless::answer(&self.table, asked, &messages, is_batch, caller).await;
        }
        if is_first && head.session().is_none() {
            let message = messages.remove(0);
            return self.begin(&head, message, caller).await;
        }
        let line = match self.session(&head, &caller) {
            Ok(line) => line,
            Err(refused) => return *refused,
        };
        if is_batch {
            if line.version().as_deref() != Some(BATCHES_IN) {
                let why = "this revision of the protocol has no batches";
                return words::refused(StatusCode::BAD_REQUEST, INVALID_REQUEST, why);
            }
            if messages.is_empty() || messages.len() > BATCH_MAX {
                let why = format!("a batch has 1 to {BATCH_MAX} messages");
                return words::refused(StatusCode::BAD_REQUEST, INVALID_REQUEST, &why);
            }
        }
        let mut reader = match line.say(messages, key, takes.events).await {
            Ok(Some(reader)) => reader,
            Ok(None) => return words::empty(StatusCode::ACCEPTED),
            Err(not_taken) => return refused_message(not_taken),
        };
        if takes.events {
            return words::events(reader, None, form_of(&line));
        }
        let answers = answers(&mut reader).await;
        words::json(StatusCode::OK, in_one(answers, is_batch))
    }

    /// Begins a session, with a server of its own.
    async fn begin(
        &self,
        head: &Head<'_>,
        message: String,
        caller: Option<Caller>,
    ) -> Response<FrontBody> {
        let (id, line) = match self.table.begin(caller).await {
            Ok(begun) => begun,
            Err(no_server) => return refused_server(&no_server),
        };
        let takes = head.takes();
        // One whose client hangs up now is of no use to anybody.
        let unused = Unused(Some(Arc::clone(&line)));
        let mut reader = match line.say(vec![message], None, false).await {
            Ok(Some(reader)) => reader,
            Ok(None) => return words::empty(StatusCode::ACCEPTED),
            Err(not_taken) => return refused_message(not_taken),
        };
        let Ok(answers) = tokio::time::timeout(BEGIN_MAX, answers(&mut reader)).await else {
            let why = "the server did not begin a session in time";
            return words::refused(StatusCode::GATEWAY_TIMEOUT, INTERNAL_ERROR, why);
        };
        let answer = in_one(answers, false);
        let agreed = match Reply::of(&answer) {
            Some(Reply::Result(result)) => Some(version_agreed(&result)),
            Some(Reply::Error(_)) | None => None,
        };
        let mut response = if takes.json {
            words::json(StatusCode::OK, answer)
        } else {
            let form = Form {
                has_ids: false,
                is_primed: false,
            };
            words::events(reader, Some((1, answer)), form)
        };
        if let Some(version) = agreed {
            line.agreed(version);
            unused.keep();
            if let Ok(id) = HeaderValue::from_str(&id) {
                response.headers_mut().insert(SESSION, id);
            }
        }
        response
    }

    fn get(&self, parts: &request::Parts, caller: &Option<Caller>) -> Response<FrontBody> {
        let head = Head::of(parts);
        if head.session().is_none() && head.version().is_some_and(|it| it >= STATELESS_SINCE) {
            return words::not_allowed("POST");
        }
        if !head.takes().events {
            let why = "accept text/event-stream";
            return words::refused(StatusCode::NOT_ACCEPTABLE, INVALID_REQUEST, why);
        }
        let line = match self.session(&head, caller) {
            Ok(line) => line,
            Err(refused) => return *refused,
        };
        let reader = match head.last_event() {
            None => Some(line.listen()),
            Some(Ok((stream, event))) => line.resume(stream, event),
            Some(Err(())) => None,
        };
        match reader {
            Some(reader) => words::events(reader, None, form_of(&line)),
            None => {
                let why = "this stream is not kept any more; a call with a key can be sent again";
                words::refused(StatusCode::BAD_REQUEST, INVALID_REQUEST, why)
            }
        }
    }

    fn delete(&self, parts: &request::Parts, caller: &Option<Caller>) -> Response<FrontBody> {
        let head = Head::of(parts);
        if head.session().is_none() && head.version().is_some_and(|it| it >= STATELESS_SINCE) {
            return words::not_allowed("POST");
        }
        match self.session(&head, caller) {
            Ok(line) => {
                line.close();
                words::empty(StatusCode::NO_CONTENT)
            }
            Err(refused) => *refused,
        }
    }

    /// The session that a request belongs to. That of another caller is as good as none.
    fn session(
        &self,
        head: &Head<'_>,
        caller: &Option<Caller>,
    ) -> Result<Arc<Line>, Box<Response<FrontBody>>> {
        let Some(id) = head.session() else {
            let why = "this request has no Mcp-Session-Id; begin a session with initialize";
            let refused = words::refused(StatusCode::BAD_REQUEST, INVALID_REQUEST, why);
            return Err(Box::new(refused));
        };
        let Some(line) = self.table.session(id, caller) else {
            let why = "there is no such session, or no more; begin one with initialize";
            let refused = words::refused(StatusCode::NOT_FOUND, INVALID_REQUEST, why);
            return Err(Box::new(refused));
        };
        let agreed = line.version();
        match head.version() {
            Some(version)
                if agreed.as_deref() != Some(version) && !HANDSHAKES.contains(&version) =>
            {
                let id = crate::message::Id::null();
                Err(Box::new(words::unsupported(version, &HANDSHAKES, &id)))
            }
            Some(_) | None => Ok(line),
        }
    }
}

/// Whether a request is of a revision that has no sessions.
fn is_stateless(head: &Head<'_>, message: &Message<'_>) -> bool {
    let is_since = |version: &str| version >= STATELESS_SINCE && is_date(version);
    let named = match message {
        Message::Request { method, .. } if method == INITIALIZE => return false,
        Message::Request { params, .. } => version_in(*params),
        Message::Notification { .. }
        | Message::Response { .. }
        | Message::Other
        | Message::Unreadable => None,
    };
    head.version().is_some_and(is_since) || (head.session().is_none() && named.is_some())
}

fn is_date(version: &str) -> bool {
    let mut bytes = version.bytes();
    version.len() == STATELESS_SINCE.len() && bytes.all(|it| it.is_ascii_digit() || it == b'-')
}

fn version_agreed(result: &serde_json::value::RawValue) -> Option<String> {
    crate::members::Members::of(result)?.text("protocolVersion")
}

fn form_of(line: &Line) -> Form {
    let version = line.version();
    Form {
        has_ids: true,
        is_primed: version.is_some_and(|version| version.as_str() >= PRIMED_SINCE),
    }
}

/// All answers of a stream: what comes before them has no place in one piece of JSON.
async fn answers(reader: &mut Reader) -> Vec<Arc<Kept>> {
    let mut answers = Vec::new();
    while let Some((_, message)) = reader.next().await {
        if Reply::of(&message).is_some() {
            answers.push(message);
        }
    }
    answers
}

fn in_one(answers: Vec<Arc<Kept>>, is_batch: bool) -> Whole {
    let text = match (is_batch, &answers[..]) {
        (false, [answer]) => answer.to_string(),
        (false, []) => words::cancelled(),
        (true, _) | (false, _) => {
            let answers: Vec<&str> = answers.iter().map(|answer| &***answer).collect();
            format!("[{}]", answers.join(","))
        }
    };
    Whole::new(text, answers)
}

fn refused_message(not_taken: NotTaken) -> Response<FrontBody> {
    match not_taken {
        NotTaken::Unreadable => {
            let why = "the message cannot be read, and was not passed on";
            words::refused(StatusCode::BAD_REQUEST, PARSE_ERROR, why)
        }
        NotTaken::Invalid => {
            let why = "this is no message of JSON-RPC";
            words::refused(StatusCode::BAD_REQUEST, INVALID_REQUEST, why)
        }
        NotTaken::TooMany => {
            let why = "too many requests of this client are not answered yet, or too much is not passed on yet";
            words::refused(StatusCode::SERVICE_UNAVAILABLE, INTERNAL_ERROR, why)
        }
    }
}

fn refused_server(no_server: &NoServer) -> Response<FrontBody> {
    let status = match no_server {
        NoServer::TooMany | NoServer::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        NoServer::NotStarted => StatusCode::BAD_GATEWAY,
    };
    words::refused(status, INTERNAL_ERROR, &no_server.to_string())
}

/// A session that was not begun ends with this.
struct Unused(Option<Arc<Line>>);

impl Unused {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        if let Some(line) = &self.0 {
            line.close();
        }
    }
}
