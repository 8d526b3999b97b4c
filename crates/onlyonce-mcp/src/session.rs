//! One client and one server. Everything passes as it came, but for three things: lists of tools
//! get the key, calls with a key go through the engine, and one that is cancelled is cancelled under
//! the id that it has at the server, which may still say how it ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use onlyonce_core::{Engine, Entropy as _, OsEntropy, Policy};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::answer::{busy, undelivered};
use crate::background::{Ask, Settling};
use crate::call::ToolCall;
use crate::catalog::Catalog;
use crate::decide::{Decision, decide};
use crate::exchange::Unanswered;
use crate::keys::{self, KeyOrigin};
use crate::message::{Id, Ids, Message, Reply, cancelled, cancels, is_initialized};
use crate::pending::{CallNumber, Heard, Pending, lock};
use crate::rules::{OnCancel, Rules};

mod run;

/// Calls that are running or waiting.
const CALLS_MAX: usize = 1000;

/// Names a caller: a digest of its credential, or anything else that is its own.
pub type Caller = Arc<str>;

pub(crate) struct Session {
    engine: Engine,
    rules: Arc<Rules>,
    policy: Arc<Policy>,
    /// Who is at the other end, where that is known: keys of different callers never meet.
    caller: Option<Caller>,
    to_client: mpsc::Sender<String>,
    to_server: mpsc::Sender<String>,
    pending: Pending,
    catalog: Mutex<Catalog>,
    /// Cancelled once the client has said that the session has begun.
    begun: CancellationToken,
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
        caller: Option<Caller>,
        to_client: mpsc::Sender<String>,
        to_server: mpsc::Sender<String>,
    ) -> Arc<Self> {
        let mut random = [0; 8];
        OsEntropy::new().fill(&mut random);
        Arc::new(Self {
            engine,
            rules,
            policy,
            caller,
            to_client,
            to_server,
            pending: Pending::default(),
            catalog: Mutex::default(),
            begun: CancellationToken::new(),
            listing: tokio::sync::Mutex::default(),
            ids: Ids::new(random),
            numbers: AtomicU64::default(),
            calls: TaskTracker::new(),
        })
    }

    /// Takes a message of a client that cancels in words alone.
    pub(crate) async fn client_wrote(self: &Arc<Self>, line: String) {
        if let Some(id) = cancels(&Message::read(&line))
            && self.client_stopped(&id).await
        {
            return;
        }
        self.client_said(line, None).await;
    }

    /// Takes a message of the client. `header` is a key that came beside it. One that cancels a call of ours says
    /// that nobody waits for it any more.
    pub(crate) async fn client_said(self: &Arc<Self>, line: String, header: Option<&str>) {
        match decide(&line, &self.rules, header) {
            Decision::Call { id, call } => return self.take(id, line, *call).await,
            Decision::Refuse(answer) => return self.tell_client(answer).await,
            Decision::List(id) => self.pending.list(id),
            Decision::Cancel(id) if !self.pending.cancel(&id).is_empty() => return,
            Decision::Cancel(_) | Decision::Pass => {}
        }
        let has_begun = !self.begun.is_cancelled() && is_initialized(&line);
        self.tell_server(line).await;
        if has_begun {
            self.begun.cancel();
        }
    }

    /// Cancelled when client and server have begun their session.
    pub(crate) fn begun(&self) -> CancellationToken {
        self.begun.clone()
    }

    /// What is to be settled in the background of this session, if it asks like this.
    pub(crate) fn settling(&self, ask: &Ask) -> Option<Settling> {
        Settling::of(&self.engine, &self.rules, &self.policy, ask)
    }

    /// The client wants its request of this id to stop, and does not only stop waiting for it: a call of
    /// ours is cancelled too, under the id that it has at the server. Returns whether it was one.
    pub(crate) async fn client_stopped(&self, id: &Id) -> bool {
        let calls = self.pending.cancel(id);
        let stopped = match self.rules.on_cancel {
            OnCancel::Stop => &calls[..],
            OnCancel::Leave => &[],
        };
        for number in stopped {
            if let Some(at_server) = self.pending.stop(*number) {
                self.tell_server(cancelled(&at_server)).await;
            }
        }
        !calls.is_empty()
    }

    pub(crate) async fn server_said(&self, line: String) {
        match Message::read(&line) {
            Message::Response { id, reply } if self.ids.made(&id) => {
                // The caller may have stopped waiting, or has been answered before.
                if let Some(us) = self.pending.asked(&id) {
                    drop(us.send(Heard::Reply(reply)));
                }
                return;
            }
            Message::Response { id, reply } => {
                if let (true, Reply::Result(list)) = (self.pending.is_list(&id), reply) {
                    let list = lock(&self.catalog).learn(list, &self.rules.tools);
                    return self.tell_client(Reply::Result(list).message(&id)).await;
                }
            }
            Message::Notification { .. } => lock(&self.catalog).hear(&line),
            Message::Request { .. } | Message::Other | Message::Unreadable => {}
        }
        self.tell_client(line).await;
    }

    /// A message of ours or of the client was not answered, and will not be.
    pub(crate) async fn undelivered(&self, line: &str, unanswered: &Unanswered) {
        let Message::Request { id, .. } = Message::read(line) else {
            return;
        };
        if !self.ids.made(&id) {
            self.pending.is_list(&id);
            return self
                .tell_client(undelivered(&id, &unanswered.to_string()))
                .await;
        }
        let Some(us) = self.pending.asked(&id) else {
            return;
        };
        match unanswered {
            Unanswered::NotSent(_) => drop(us.send(Heard::NotSent)),
            // Without a word: the waiting caller takes it for lost.
            Unanswered::Lost(_) => drop(us),
        }
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The headers that a call's arguments are to be repeated in.
    pub(crate) fn headers_of(&self, tool: &str) -> Vec<(String, String)> {
        lock(&self.catalog).headers_of(tool)
    }

    pub(crate) fn server_gone(&self) {
        self.pending.server_gone();
    }

    /// Calls that are running or waiting.
    pub(crate) fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Returns when every call has its answer.
    pub(crate) async fn settled(&self) {
        self.calls.close();
        self.calls.wait().await;
    }

    /// Answers a call in a task of its own, for other messages must not wait for it.
    async fn take(self: &Arc<Self>, id: Option<Id>, line: String, call: ToolCall) {
        if self.calls.len() >= CALLS_MAX {
            let reply = busy(CALLS_MAX, &self.audience(&call, KeyOrigin::Sent));
            if let Some(id) = id {
                self.tell_client(reply.message(&id)).await;
            }
            return;
        }
        let number = CallNumber(self.next_number());
        self.pending.open(number, id);
        let session = Arc::clone(self);
        self.calls.spawn(async move {
            let line = match (
                session.covers(&call).await,
                keys::has_key(&call, &session.rules),
            ) {
                (false, _) => line,
                (true, false) => call.message(),
                (true, true) => {
                    session.answer(number, call).await;
                    return session.pending.forget(number);
                }
            };
            if session.pending.close(number).is_some() {
                session.tell_server(line).await;
            }
            session.pending.forget(number);
        });
    }

    /// Answers a call, if the client still waits for it by then.
    async fn answer(self: &Arc<Self>, number: CallNumber, call: ToolCall) {
        let reply = self.once(number, call).await;
        if let Some(Some(id)) = self.pending.close(number) {
            self.tell_client(reply.message(&id)).await;
        }
    }

    fn next_id(&self) -> Id {
        self.ids.make(self.next_number())
    }

    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Answers a request of the server in the client's place.
    pub(crate) async fn answer_server(&self, answer: String) {
        self.tell_server(answer).await;
    }

    /// A peer that is gone gets nothing; the proxy itself notices the end of either side.
    async fn tell_client(&self, line: String) {
        drop(self.to_client.send(line).await);
    }

    async fn tell_server(&self, line: String) {
        drop(self.to_server.send(line).await);
    }
}
