//! One client and one server. Everything passes as it came, but for three things: lists of tools
//! get the key, calls with a key go through the engine, and a client that cancels such a call only
//! stops waiting for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use onlyonce_core::{Engine, Entropy as _, OsEntropy, Policy};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::answer::{busy, unreadable};
use crate::call::{Ambiguous, SentKey, ToolCall};
use crate::catalog::{Catalog, KEY};
use crate::members::Members;
use crate::message::{Id, Ids, Message, Reply};
use crate::pending::{CallNumber, Pending, lock};
use crate::rules::Rules;

mod run;

/// Calls that are running or waiting.
const CALLS_MAX: usize = 1000;
const TOOLS_CALL: &str = "tools/call";

pub(crate) struct Session {
    engine: Engine,
    rules: Arc<Rules>,
    policy: Arc<Policy>,
    to_client: mpsc::Sender<String>,
    to_server: mpsc::Sender<String>,
    pending: Pending,
    catalog: Mutex<Catalog>,
    /// Held while we ask for the list of tools.
    listing: tokio::sync::Mutex<()>,
    /// Names requests of ours to the server, and calls of the client.
    ids: Ids,
    numbers: AtomicU64,
    calls: TaskTracker,
}

impl Session {
    pub(crate) fn new(
        engine: Engine,
        rules: Arc<Rules>,
        policy: Arc<Policy>,
        to_client: mpsc::Sender<String>,
        to_server: mpsc::Sender<String>,
    ) -> Arc<Self> {
        let mut random = [0; 8];
        OsEntropy::new().fill(&mut random);
        Arc::new(Self {
            engine,
            rules,
            policy,
            to_client,
            to_server,
            pending: Pending::default(),
            catalog: Mutex::default(),
            listing: tokio::sync::Mutex::default(),
            ids: Ids::new(random),
            numbers: AtomicU64::default(),
            calls: TaskTracker::new(),
        })
    }

    pub(crate) async fn client_said(self: &Arc<Self>, line: String) {
        match Message::read(&line) {
            Message::Request { id, method, params } if method == TOOLS_CALL => {
                match self.read_ours(&line, params) {
                    Ok(Some(call)) => return self.take(Some(id), line, call).await,
                    Ok(None) => {}
                    Err(Ambiguous) => return self.tell_client(unreadable(&id)).await,
                }
            }
            Message::Notification { method, params } if method == TOOLS_CALL => {
                match self.read_ours(&line, params) {
                    Ok(Some(call)) => return self.take(None, line, call).await,
                    Ok(None) => {}
                    Err(Ambiguous) => return self.tell_client(unreadable(&Id::null())).await,
                }
            }
            Message::Request { id, method, .. } if method == "tools/list" => {
                self.pending.list(id);
            }
            Message::Notification { method, params }
                if method == "notifications/cancelled" && self.stops_waiting(params) =>
            {
                return;
            }
            // A server may read what we cannot, and would run it as often as it is sent.
            Message::Unreadable if self.may_have_key(&line) => {
                return self.tell_client(unreadable(&Id::null())).await;
            }
            Message::Request { .. }
            | Message::Notification { .. }
            | Message::Response { .. }
            | Message::Other
            | Message::Unreadable => {}
        }
        self.tell_server(line).await;
    }

    pub(crate) async fn server_said(&self, line: String) {
        match Message::read(&line) {
            Message::Response { id, reply } if self.ids.made(&id) => {
                // Whoever asked may have stopped waiting, or has been answered before.
                if let Some(us) = self.pending.asked(&id) {
                    drop(us.send(reply));
                }
                return;
            }
            Message::Response { id, reply } => {
                if let (true, Reply::Result(list)) = (self.pending.is_list(&id), reply) {
                    let list = lock(&self.catalog).learn(list, &self.rules.tools);
                    return self.tell_client(Reply::Result(list).message(&id)).await;
                }
            }
            Message::Notification { method, .. }
                if method == "notifications/tools/list_changed" =>
            {
                lock(&self.catalog).forget();
            }
            Message::Request { .. }
            | Message::Notification { .. }
            | Message::Other
            | Message::Unreadable => {}
        }
        self.tell_client(line).await;
    }

    pub(crate) fn server_gone(&self) {
        self.pending.server_gone();
    }

    /// Returns when every call has its answer.
    pub(crate) async fn settled(&self) {
        self.calls.close();
        self.calls.wait().await;
    }

    /// A call that is to be looked at: all others go straight to the server. An error for one that
    /// cannot be read and may be such a call.
    fn read_ours(
        &self,
        line: &str,
        params: Option<&RawValue>,
    ) -> Result<Option<ToolCall>, Ambiguous> {
        let Some(params) = params else {
            return Ok(None);
        };
        let call = match ToolCall::read(line, params) {
            Err(Ambiguous) if self.may_have_key(line) => return Err(Ambiguous),
            Err(Ambiguous) | Ok(None) => return Ok(None),
            Ok(Some(call)) => call,
        };
        let is_ours = call.key != SentKey::Nothing || self.rules.derive.is_some();
        Ok(is_ours.then_some(call))
    }

    /// Whether a line that cannot be read may be a call that is to be looked at.
    fn may_have_key(&self, line: &str) -> bool {
        line.contains(KEY) || (self.rules.derive.is_some() && line.contains(TOOLS_CALL))
    }

    /// Answers a call in a task of its own, for other messages must not wait for it.
    async fn take(self: &Arc<Self>, id: Option<Id>, line: String, call: ToolCall) {
        if self.calls.len() >= CALLS_MAX {
            let reply = busy(CALLS_MAX, &self.audience(&call, false));
            if let Some(id) = id {
                self.tell_client(reply.message(&id)).await;
            }
            return;
        }
        let number = CallNumber(self.next_number());
        self.pending.open(number, id);
        let session = Arc::clone(self);
        self.calls.spawn(async move {
            let line = match (session.covers(&call).await, session.has_key(&call)) {
                (false, _) => line,
                (true, false) => call.message(),
                (true, true) => return session.answer(number, call).await,
            };
            if session.pending.close(number).is_some() {
                session.tell_server(line).await;
            }
        });
    }

    /// Answers a call, if the client still waits for it by then.
    async fn answer(self: &Arc<Self>, number: CallNumber, call: ToolCall) {
        let reply = self.once(call).await;
        if let Some(Some(id)) = self.pending.close(number) {
            self.tell_client(reply.message(&id)).await;
        }
    }

    fn has_key(&self, call: &ToolCall) -> bool {
        match call.key {
            SentKey::Text(_) | SentKey::NotText => true,
            SentKey::Nothing | SentKey::Null => self.rules.derive.is_some(),
        }
    }

    /// A client that cancels a call of ours stops waiting for it. The call goes on: its result is
    /// there for a retry. Returns whether it was a call of ours.
    fn stops_waiting(&self, params: Option<&RawValue>) -> bool {
        let params = params.and_then(Members::of);
        let id = params.and_then(|params| params.get("requestId").map(Id::of));
        id.is_some_and(|id| self.pending.cancel(&id))
    }

    fn next_id(&self) -> Id {
        self.ids.make(self.next_number())
    }

    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// A peer that is gone gets nothing; the proxy itself notices the end of either side.
    async fn tell_client(&self, line: String) {
        drop(self.to_client.send(line).await);
    }

    async fn tell_server(&self, line: String) {
        drop(self.to_server.send(line).await);
    }
}
