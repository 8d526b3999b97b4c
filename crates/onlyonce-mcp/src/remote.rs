//! A server on the network, for a session whose client is on stdio: each message becomes a request of
//! streamable HTTP, and whatever the server says, in an answer or in a stream, goes to the session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

pub(crate) use self::head::{METHOD, NAME, VERSION_MEMBER};
use self::state::State;
pub(crate) use self::state::{SESSION, VERSION};
use crate::decide::{Decision, decide};
use crate::exchange::{Exchanged, Http, Unanswered, exchange, is_before_the_tool};
use crate::message::{Id, Message, Reply, is_initialized};
use crate::pending::lock;
use crate::proxy::LINE_BYTES_MAX;
use crate::session::Session;

mod head;
mod listen;
mod state;

/// How long a message that has no answer may take, and the goodbye.
const DELIVERY_MAX: Duration = Duration::from_secs(30);
/// How much of a refusal is shown.
const SHOWN_CHARS_MAX: usize = 300;

/// A server on the network.
#[derive(Clone)]
pub struct Remote {
    http: Arc<dyn Http>,
    url: Uri,
    headers: HeaderMap,
}

impl Remote {
    /// The server at `url`, which gets `headers` with every request, such as a credential.
    pub fn new(http: Arc<dyn Http>, url: Uri, headers: HeaderMap) -> Self {
        Self { http, url, headers }
    }
}

/// The server of one session.
pub(crate) struct Peer {
    remote: Remote,
    session: Arc<Session>,
    state: Mutex<State>,
    /// Held while a lost session is begun anew.
    renewing: tokio::sync::Mutex<()>,
    tasks: TaskTracker,
    /// Requests on their way, and whether closing their stream cancels them.
    running: Mutex<BTreeMap<Id, (AbortHandle, bool)>>,
}

impl Peer {
    pub(crate) fn new(remote: Remote, session: Arc<Session>) -> Arc<Self> {
        Arc::new(Self {
            remote,
            session,
            state: Mutex::default(),
            renewing: tokio::sync::Mutex::default(),
            tasks: TaskTracker::new(),
            running: Mutex::default(),
        })
    }

    /// Sends what the session says, until it says no more. Requests go side by side; what has no answer
    /// goes first, for a server must know of it before what follows.
    pub(crate) async fn serve(self: &Arc<Self>, mut said: mpsc::Receiver<String>) {
        while let Some(line) = said.recv().await {
            match Message::read(&line) {
                Message::Request { id, .. } => self.start(id, line),
                Message::Notification { .. }
                | Message::Response { .. }
                | Message::Other
                | Message::Unreadable => self.tell(line).await,
            }
        }
    }

    /// Ends the session at the server, if there is one.
    pub(crate) async fn close(&self) {
        self.tasks.close();
        let state = self.state().clone();
        if let Some(listener) = &state.listener {
            listener.abort();
        }
        for (abort, _) in std::mem::take(&mut *lock(&self.running)).into_values() {
            abort.abort();
        }
        if state.session.is_none() {
            return;
        }
        let mut request = self.request(Method::DELETE, Bytes::new());
        state.name_session(request.headers_mut());
        let sent = self.remote.http.send(request);
        drop(tokio::time::timeout(DELIVERY_MAX, sent).await);
    }

    fn start(self: &Arc<Self>, id: Id, line: String) {
        let peer = Arc::clone(self);
        let is_cancelled_by_closing = head::version_in(&line).is_some();
        let running = id.clone();
        let mut table = lock(&self.running);
        let task = self.tasks.spawn(async move {
            peer.deliver(&line, &id).await;
            lock(&peer.running).remove(&id);
        });
        table.insert(running, (task.abort_handle(), is_cancelled_by_closing));
    }

    /// Sends a request, and tells the session what came of it.
    async fn deliver(self: &Arc<Self>, line: &str, id: &Id) {
        let before = self.state().session.clone();
        let mut exchanged = self.ask(line, id).await;
        if let (Exchanged::Refused(refused), Some(before)) = (&exchanged, before)
            && refused.status() == StatusCode::NOT_FOUND
            && self.begin_again(&before).await
        {
            exchanged = self.ask(line, id).await;
        }
        match exchanged {
            Exchanged::Answered { message, headers } => {
                self.state().learn(line, &message, &headers);
                self.session.server_said(message).await;
            }
            Exchanged::Refused(refused) => {
                let why = describe(&refused);
                let unanswered = if is_before_the_tool(refused.status()) {
                    Unanswered::NotSent(why)
                } else {
                    Unanswered::Lost(why)
                };
                self.session.undelivered(line, &unanswered).await;
            }
            Exchanged::Unanswered(unanswered) => {
                self.session.undelivered(line, &unanswered).await;
            }
        }
    }

    async fn ask(self: &Arc<Self>, line: &str, id: &Id) -> Exchanged {
        let request = self.post(line);
        let session = Arc::clone(&self.session);
        let mut other = move |message| {
            let session = Arc::clone(&session);
            async move { session.server_said(message).await }.boxed()
        };
        exchange(&*self.remote.http, request, id, bytes_max(), &mut other).await
    }

    /// Sends what has no answer.
    async fn tell(self: &Arc<Self>, line: String) {
        if let Decision::Cancel(id) = decide(&line, self.session.rules(), None)
            && self.cancelled_by_closing(&id)
        {
            return;
        }
        let sent = self.remote.http.send(self.post(&line));
        let answer = tokio::time::timeout(DELIVERY_MAX, sent).await;
        if is_initialized(&line) {
            self.state().initialized = Some(line);
            if matches!(&answer, Ok(Ok(answer)) if answer.status().is_success()) {
                self.listen();
            }
        }
    }

    /// Since 2026-07-28 a request is cancelled by closing its stream.
    fn cancelled_by_closing(&self, id: &Id) -> bool {
        let mut running = lock(&self.running);
        let Some((abort, true)) = running.get(id) else {
            return false;
        };
        abort.abort();
        running.remove(id);
        true
    }

    /// The server has forgotten the session, as after a restart: begins another one as the client did.
    /// Whether there is one now.
    async fn begin_again(self: &Arc<Self>, lost: &HeaderValue) -> bool {
        let _one_at_a_time = self.renewing.lock().await;
        let state = self.state().clone();
        if state.session.as_ref() != Some(lost) {
            return state.session.is_some();
        }
        let Some(initialize) = state.initialize else {
            return false;
        };
        let Message::Request { id, .. } = Message::read(&initialize) else {
            return false;
        };
        self.state().session = None;
        match self.ask(&initialize, &id).await {
            Exchanged::Answered { message, headers }
                if matches!(Reply::of(&message), Some(Reply::Result(_))) =>
            {
                self.state().learn(&initialize, &message, &headers);
            }
            Exchanged::Answered { .. } | Exchanged::Refused(_) | Exchanged::Unanswered(_) => {
                // What comes next finds it lost again, and tries again.
                self.state().session = Some(lost.clone());
                return false;
            }
        }
        if let Some(initialized) = state.initialized {
            let sent = self.remote.http.send(self.post(&initialized));
            drop(tokio::time::timeout(DELIVERY_MAX, sent).await);
            self.listen();
        }
        true
    }

    fn post(&self, line: &str) -> Request<Bytes> {
        let mut request = self.request(Method::POST, Bytes::from(line.to_owned()));
        let state = self.state().clone();
        head::describe(line, &state, &self.session, request.headers_mut());
        request
    }

    fn request(&self, method: Method, body: Bytes) -> Request<Bytes> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = self.remote.url.clone();
        *request.headers_mut() = self.remote.headers.clone();
        request
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn bytes_max() -> usize {
    usize::try_from(LINE_BYTES_MAX).unwrap_or(usize::MAX)
}

/// What a server said instead of an answer, for the caller that asked.
fn describe(refused: &Response<Bytes>) -> String {
    let said = String::from_utf8_lossy(refused.body());
    let said: String = said.trim().chars().take(SHOWN_CHARS_MAX).collect();
    let elsewhere = refused.headers().get(LOCATION);
    if let Some(elsewhere) = elsewhere.and_then(|it| it.to_str().ok()) {
        return format!("it is at {elsewhere}; give that as --upstream");
    }
    match said.as_str() {
        "" => format!("it answered with {}", refused.status()),
        said => format!("it answered with {}: {said}", refused.status()),
    }
}
