//! One client and one server. Everything passes as it came, but for three things: lists of tools
//! get the key, calls with a key go through the engine, and a client that cancels such a call only
//! stops waiting for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use onlyonce_core::engine::Who;
use onlyonce_core::{Answer, Engine, Execution, Key, Origin, Outcome, Policy, Reason, Refusal};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use crate::answer::{outcome, refused, repeated};
use crate::call::{SentKey, ToolCall};
use crate::catalog::Catalog;
use crate::members::{Members, raw};
use crate::message::{Id, Message, Reply, request};
use crate::rules::Rules;

/// Calls that are running or waiting.
const CALLS_MAX: usize = 1000;
/// Pages of a list of tools that we ask for ourselves.
const PAGES_MAX: usize = 100;
const LIST_WAIT_MAX: Duration = Duration::from_secs(10);

pub(crate) struct Session {
    engine: Engine,
    rules: Arc<Rules>,
    policy: Arc<Policy>,
    to_client: mpsc::Sender<String>,
    to_server: mpsc::Sender<String>,
    /// What the server has yet to answer; nothing once it is gone.
    owed: Mutex<Option<BTreeMap<Id, Owed>>>,
    /// Calls of ours that the client still waits for.
    open: Mutex<BTreeSet<Id>>,
    catalog: Mutex<Catalog>,
    /// Held while we ask for the list of tools.
    listing: tokio::sync::Mutex<()>,
    requests: AtomicU64,
    calls: TaskTracker,
}

/// Whom an answer of the server is for.
enum Owed {
    Us(oneshot::Sender<Reply>),
    /// The client, with the key in it.
    List,
}

impl Session {
    pub(crate) fn new(
        engine: Engine,
        rules: Arc<Rules>,
        policy: Arc<Policy>,
        to_client: mpsc::Sender<String>,
        to_server: mpsc::Sender<String>,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine,
            rules,
            policy,
            to_client,
            to_server,
            owed: Mutex::new(Some(BTreeMap::new())),
            open: Mutex::default(),
            catalog: Mutex::default(),
            listing: tokio::sync::Mutex::default(),
            requests: AtomicU64::default(),
            calls: TaskTracker::new(),
        })
    }

    pub(crate) async fn client_said(self: &Arc<Self>, line: String) {
        match Message::read(&line) {
            Message::Request { id, method, params } if method == "tools/call" => {
                let call = params.and_then(|params| ToolCall::read(&line, params));
                if let Some(call) = call.filter(|call| self.is_ours(call)) {
                    return self.take(id, line, call).await;
                }
            }
            Message::Request { id, method, .. } if method == "tools/list" => {
                self.owe(id, Owed::List);
            }
            Message::Notification { method, params }
                if method == "notifications/cancelled" && self.stops_waiting(params) =>
            {
                return;
            }
            Message::Request { .. }
            | Message::Notification { .. }
            | Message::Response { .. }
            | Message::Other => {}
        }
        self.tell_server(line).await;
    }

    pub(crate) async fn server_said(&self, line: String) {
        match Message::read(&line) {
            Message::Response { id, reply } => match (self.owed_to(&id), reply) {
                (Some(Owed::Us(us)), reply) => {
                    // Whoever asked may have stopped waiting.
                    drop(us.send(reply));
                    return;
                }
                (Some(Owed::List), Reply::Result(list)) => {
                    let list = lock(&self.catalog).learn(list, &self.rules.tools);
                    return self.tell_client(Reply::Result(list).message(&id)).await;
                }
                (Some(Owed::List), Reply::Error(_)) | (None, _) => {}
            },
            Message::Notification { method, .. }
                if method == "notifications/tools/list_changed" =>
            {
                lock(&self.catalog).forget();
            }
            Message::Request { .. } | Message::Notification { .. } | Message::Other => {}
        }
        self.tell_client(line).await;
    }

    /// The server is gone: what it owes, it owes forever.
    pub(crate) fn server_gone(&self) {
        lock(&self.owed).take();
    }

    /// Returns when every call has its answer.
    pub(crate) async fn settled(&self) {
        self.calls.close();
        self.calls.wait().await;
    }

    /// Whether a call is to be looked at: all others go straight to the server.
    fn is_ours(&self, call: &ToolCall) -> bool {
        call.key != SentKey::Nothing || self.rules.derive.is_some()
    }

    /// Answers a call in a task of its own, for other messages must not wait for it.
    async fn take(self: &Arc<Self>, id: Id, line: String, call: ToolCall) {
        if self.calls.len() >= CALLS_MAX {
            let refusal = Refusal::new(Reason::TooManyWaiters);
            let reply = refused(&refusal, false, call.says_complete());
            return self.tell_client(reply.message(&id)).await;
        }
        lock(&self.open).insert(id.clone());
        let session = Arc::clone(self);
        self.calls.spawn(async move {
            let line = match (session.covers(&call).await, session.has_key(&call)) {
                (false, _) => line,
                (true, false) => call.forwarded,
                (true, true) => return session.answer(&id, call).await,
            };
            if lock(&session.open).remove(&id) {
                session.tell_server(line).await;
            }
        });
    }

    /// Answers a call, if the client still waits for it by then.
    async fn answer(self: &Arc<Self>, id: &Id, call: ToolCall) {
        let reply = self.once(id, call).await;
        if lock(&self.open).remove(id) {
            self.tell_client(reply.message(id)).await;
        }
    }

    fn has_key(&self, call: &ToolCall) -> bool {
        match call.key {
            SentKey::Text(_) | SentKey::NotText => true,
            SentKey::Nothing | SentKey::Null => self.rules.derive.is_some(),
        }
    }

    /// A client that cancels a call of ours stops waiting for it. The call goes on: its result is
    /// there for a retry. Says whether it was a call of ours.
    fn stops_waiting(&self, params: Option<&RawValue>) -> bool {
        let params = params.and_then(Members::of);
        let id = params.and_then(|params| params.get("requestId").and_then(Id::of));
        id.is_some_and(|id| lock(&self.open).remove(&id))
    }

    /// Runs the call, or answers it from its record.
    async fn once(self: &Arc<Self>, id: &Id, call: ToolCall) -> Reply {
        let says_complete = call.says_complete();
        let (key, is_derived) = match self.key(&call) {
            Ok(key) => key,
            Err(refusal) => return refused(&refusal, false, says_complete),
        };
        let mut scope = self.engine.scope().with("mcp", &self.rules.server);
        scope = scope.with("tool", &call.tool);
        if is_derived {
            scope = scope.with("derived", "");
        }
        let who = Who::doing(call.tool.as_str());
        let mut keyed = self
            .engine
            .call(&scope, &key, call.fingerprint(), &self.policy, who);
        if let (true, Some(derive)) = (is_derived, &self.rules.derive) {
            keyed = keyed.keep_for(derive.within);
        }

        let own = Arc::new(OnceLock::new());
        let (session, id, kept) = (Arc::clone(self), id.clone(), Arc::clone(&own));
        let work =
            move |execution| async move { session.run(id, call.forwarded, execution, &kept).await };
        match self.engine.once(keyed, work).await {
            Answer::Ran {
                response,
                as_returned,
                ..
            } => match own.get() {
                // What the tool said, though it may be too large to be stored.
                Some(reply) if as_returned => Reply::clone(reply),
                Some(_) | None => repeated(&response, is_derived),
            },
            Answer::Replayed(replay) if replay.response.origin == Origin::Handler => {
                repeated(&replay.response, is_derived)
            }
            Answer::Replayed(_) => {
                let refusal = Refusal::new(Reason::ResponseTooLarge);
                refused(&refusal, is_derived, says_complete)
            }
            Answer::Refused(refusal) => refused(&refusal, is_derived, says_complete),
        }
    }

    /// The key, and whether it is derived.
    fn key(&self, call: &ToolCall) -> Result<(Key, bool), Refusal> {
        let bad = |why: &dyn std::fmt::Display| Refusal::new(Reason::BadKey).because(why);
        let (text, is_derived) = match (&call.key, &self.rules.derive) {
            (SentKey::Text(text), _) => (text.clone(), false),
            (SentKey::NotText, _) => return Err(bad(&"it is not text")),
            (SentKey::Nothing | SentKey::Null, Some(derive)) => {
                let conversation = call.conversation.as_deref();
                let conversation = conversation.unwrap_or(&derive.conversation);
                let key = call.derived_key(conversation);
                (key.ok_or_else(|| bad(&"none can be derived"))?, true)
            }
            (SentKey::Nothing | SentKey::Null, None) => {
                return Err(Refusal::new(Reason::MissingKey));
            }
        };
        let key = Key::new(&text, &self.policy.key).map_err(|error| bad(&error))?;
        Ok((key, is_derived))
    }

    /// Sends the call to the server and waits for its reply.
    async fn run(
        &self,
        id: Id,
        message: String,
        execution: Execution,
        own: &OnceLock<Reply>,
    ) -> Outcome {
        let Some(answered) = self.ask(id, message).await else {
            return Outcome::NotRun;
        };
        // The server went without a word: it may have done everything but answer.
        let Ok(reply) = answered.await else {
            return Outcome::Unknown;
        };
        let outcome = outcome(&reply, self.rules.errors, &self.policy.limits, &execution);
        drop(own.set(reply));
        outcome
    }

    /// Whether a call is of a tool that is covered. A tool that even the server's list does not know
    /// is: its call may do something, and has a key.
    async fn covers(&self, call: &ToolCall) -> bool {
        let known = || lock(&self.catalog).covers(&call.tool);
        if let Some(is_covered) = known() {
            return is_covered;
        }
        let _one_at_a_time = self.listing.lock().await;
        if known().is_none() {
            let listing = self.list_tools(call.meta.as_ref());
            // A server that gives no list has no say in what is covered.
            drop(tokio::time::timeout(LIST_WAIT_MAX, listing).await);
        }
        known().unwrap_or_else(|| self.rules.tools.include(&call.tool))
    }

    /// Asks the server for its tools, as the client would.
    async fn list_tools(&self, meta: Option<&Members>) -> Option<()> {
        let mut params = Members::default();
        if let Some(mut meta) = meta.cloned() {
            meta.take("progressToken");
            params.set("_meta", meta.to_raw());
        }
        for _ in 0..PAGES_MAX {
            let id = Id::ours(self.requests.fetch_add(1, Ordering::Relaxed));
            let message = request(&id, "tools/list", &params);
            let Ok(Reply::Result(list)) = self.ask(id, message).await?.await else {
                return None;
            };
            let next = Members::of(&list).and_then(|list| list.text("nextCursor"));
            lock(&self.catalog).learn(list, &self.rules.tools);
            params.set("cursor", raw(&next?));
        }
        None
    }

    /// Sends a request of ours; nothing if it certainly did not reach the server.
    async fn ask(&self, id: Id, message: String) -> Option<oneshot::Receiver<Reply>> {
        let (reply, answered) = oneshot::channel();
        if !self.owe(id.clone(), Owed::Us(reply)) {
            return None;
        }
        if self.to_server.send(message).await.is_err() {
            self.owed_to(&id);
            return None;
        }
        Some(answered)
    }

    /// Notes whom an answer is for; false if none will come.
    fn owe(&self, id: Id, to: Owed) -> bool {
        match &mut *lock(&self.owed) {
            Some(owed) => {
                owed.insert(id, to);
                true
            }
            None => false,
        }
    }

    fn owed_to(&self, id: &Id) -> Option<Owed> {
        lock(&self.owed).as_mut()?.remove(id)
    }

    /// Who is gone hears nothing; that both ends of a line end is the proxy's business.
    async fn tell_client(&self, line: String) {
        drop(self.to_client.send(line).await);
    }

    async fn tell_server(&self, line: String) {
        drop(self.to_server.send(line).await);
    }
}

/// Locks, also after a panic elsewhere: every critical section leaves its data whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
