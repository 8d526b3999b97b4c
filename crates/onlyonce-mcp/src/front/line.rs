//! One server on pipes, and the session core before it: what clients say over HTTP goes in, and what comes
//! out goes to the stream of the request that it belongs to.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::{Clock as _, Entropy as _, OsEntropy, SystemClock};
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::budget::Budget;
use super::stream::{Outlet, Reader};
use super::{Bounds, Started, rename};
use crate::decide::{Decision, decide};
use crate::message::{Id, Ids, Message, cancelled};
use crate::pending::lock;
use crate::proxy::{Ended, Proxy, QUEUE_MAX, between, writer};
use crate::session::{Caller, Session};

mod route;

/// Streams that have ended and are kept for clients that come back.
const FINISHED_MAX: usize = 64;
/// Requests that were not answered yet.
const REQUESTS_MAX: usize = 1000;

/// For whom a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One session of one client.
    Session,
    /// Every request of one caller: none knows of another.
    Stateless,
}

pub(super) struct Line {
    kind: Kind,
    pub(super) caller: Option<Caller>,
    core: Arc<Session>,
    ids: Ids,
    numbers: AtomicU64,
    clock: SystemClock,
    state: Mutex<State>,
    /// What clients have not read yet.
    held: Arc<Budget>,
    /// What the server has not read yet, beside what its pipe and its queue hold.
    unsaid: Arc<Budget>,
    /// It is told to end, or has ended: nothing more is said to it.
    closed: CancellationToken,
}

struct State {
    exchanges: BTreeMap<Id, Exchange>,
    outlets: BTreeMap<u64, Arc<Outlet>>,
    /// What belongs to no request.
    standing: Arc<Outlet>,
    /// The revision that client and server agreed on.
    version: Option<String>,
    /// When it was last of use, by its clock.
    touched: Duration,
}

/// A request that was not answered yet.
struct Exchange {
    id: Id,
    token: Option<Box<RawValue>>,
    outlet: Arc<Outlet>,
}

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    Unreadable,
    /// It is JSON, and no message.
    Invalid,
    TooMany,
}

impl Line {
    /// A line to a server, and what runs it until its end.
    pub(super) fn start(
        proxy: &Proxy,
        kind: Kind,
        caller: Option<Caller>,
        server: Started,
        bounds: Bounds,
        stop: CancellationToken,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + use<>) {
        let (to_client, from_core) = mpsc::channel(QUEUE_MAX);
        let (to_server, server_writer) = writer(server.input);
        let core = proxy.session(caller.clone(), to_client, to_server);
        let mut random = [0; 8];
        OsEntropy::new().fill(&mut random);
        let held = Budget::new(bounds.held_bytes_max);
        let line = Arc::new(Self {
            kind,
            caller,
            core: Arc::clone(&core),
            ids: Ids::new(random),
            numbers: AtomicU64::new(1),
            clock: SystemClock::new(),
            state: Mutex::new(State {
                exchanges: BTreeMap::new(),
                outlets: BTreeMap::new(),
                standing: Outlet::new(0, 0, true, &held),
                version: None,
                touched: Duration::ZERO,
            }),
            held,
            unsaid: Budget::new(bounds.held_bytes_max),
            closed: CancellationToken::new(),
        });
        let driven = Arc::clone(&line);
        let drive = async move {
            let is_over = CancellationToken::new();
            let routing = {
                let (line, is_over) = (Arc::clone(&driven), is_over.clone());
                tokio::spawn(async move { line.route_all(from_core, is_over).await })
            };
            let from_client = async {
                driven.until_unused(bounds.idle).await;
                driven.close();
                io::Result::Ok(())
            };
            let pipes = (server.output, server_writer);
            let ended = between(&core, from_client, pipes, stop.cancelled_owned()).await;
            driven.close();
            is_over.cancel();
            // It does not panic, and ends now.
            drop(routing.await);
            // A message that is too long ends it too.
            (server.end)(ended.unwrap_or(Ended::Server)).await;
        };
        (line, drive)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Nothing more is said to it; calls with a key still come to their end.
    pub(super) fn close(&self) {
        self.closed.cancel();
        lock(&self.state).standing.finish();
    }

    pub(super) fn version(&self) -> Option<String> {
        lock(&self.state).version.clone()
    }

    pub(super) fn agreed(&self, version: Option<String>) {
        lock(&self.state).version = version;
    }

    /// Whether somebody reads, or a call with a key runs.
    pub(super) fn is_busy(&self) -> bool {
        let state = lock(&self.state);
        let is_read = state.standing.is_read() || state.outlets.values().any(|it| it.is_read());
        is_read || self.core.calls() > 0
    }

    /// For how long it was of no use.
    pub(super) fn unused_for(&self) -> Duration {
        let touched = lock(&self.state).touched;
        self.clock.now().saturating_sub(touched)
    }

    fn touch(&self) {
        lock(&self.state).touched = self.clock.now();
    }

    pub(super) fn core(&self) -> &Session {
        &self.core
    }

    /// Takes messages of a client. Reads the stream of their answers, if there will be any.
    pub(super) async fn say(
        self: &Arc<Self>,
        messages: Vec<String>,
        header: Option<String>,
        is_stream: bool,
    ) -> Result<Option<Reader>, NotTaken> {
        self.touch();
        let mut requests = Vec::new();
        let mut lines = Vec::new();
        for message in messages {
            let id = match Message::read(&message) {
                Message::Request { id, .. } => Some(id),
                Message::Notification { .. } | Message::Response { .. } => None,
                Message::Other => return Err(NotTaken::Invalid),
                Message::Unreadable => return Err(NotTaken::Unreadable),
            };
            let Some(id) = id else {
                lines.push(message);
                continue;
            };
            let ours = self.ids.make(self.next_number());
            let renamed = rename::request(&message, &ours).ok_or(NotTaken::Unreadable)?;
            lines.push(renamed.line);
            requests.push((ours, id, renamed.token));
        }
        let waiting = self.unsaid.wait(&lines).ok_or(NotTaken::TooMany)?;
        // Before anything is passed on: a client that does not want the answer any more is noticed.
        let outlet = self.expect(requests, is_stream)?;
        let reader = outlet.map(|outlet| self.read(&outlet, None));
        let line = Arc::clone(self);
        // A client that hangs up meanwhile has said it all the same.
        let saying = tokio::spawn(async move {
            for message in lines {
                line.pass(message, header.as_deref()).await;
            }
            drop(waiting);
        });
        drop(saying.await);
        if self.is_closed() {
            // It may have ended before these came into the table.
            self.end_exchanges();
        }
        Ok(reader)
    }

    /// Notes which answers are to come.
    fn expect(
        &self,
        requests: Vec<(Id, Id, Option<Box<RawValue>>)>,
        is_stream: bool,
    ) -> Result<Option<Arc<Outlet>>, NotTaken> {
        if requests.is_empty() {
            return Ok(None);
        }
        let number = self.next_number();
        let mut state = lock(&self.state);
        if state.exchanges.len() + requests.len() > REQUESTS_MAX {
            return Err(NotTaken::TooMany);
        }
        let outlet = Outlet::new(number, requests.len(), is_stream, &self.held);
        for (ours, id, token) in requests {
            let outlet = Arc::clone(&outlet);
            state.exchanges.insert(ours, Exchange { id, token, outlet });
        }
        state.outlets.insert(number, Arc::clone(&outlet));
        Ok(Some(outlet))
    }

    async fn pass(self: &Arc<Self>, message: String, header: Option<&str>) {
        match decide(&message, self.core.rules(), header) {
            Decision::Cancel(id) => self.stop(&message, &id).await,
            Decision::Pass | Decision::List(_) | Decision::Call { .. } | Decision::Refuse(_) => {
                self.core.client_said(message, header).await;
            }
        }
    }

    /// The client wants its requests of this id to stop.
    async fn stop(self: &Arc<Self>, message: &str, id: &Id) {
        for ours in self.take(|exchange| exchange.id == *id) {
            if !self.core.client_stopped(&ours).await
                && let Some(message) = rename::cancellation(message, &ours)
            {
                self.core.client_said(message, None).await;
            }
        }
    }

    /// Nobody reads a stream any more, which since 2026-07-28 cancels its request; a call with a key goes
    /// on, for its retry gets the result.
    pub(super) fn left(self: &Arc<Self>, outlet: &Arc<Outlet>) {
        self.touch();
        if self.kind == Kind::Session || outlet.is_done() {
            return;
        }
        let left = self.take(|exchange| Arc::ptr_eq(&exchange.outlet, outlet));
        // Outside of a runtime nothing is left that could be cancelled.
        let (Ok(runtime), false) = (Handle::try_current(), left.is_empty()) else {
            return;
        };
        let line = Arc::clone(self);
        runtime.spawn(async move {
            for ours in left {
                line.core.client_said(cancelled(&ours), None).await;
            }
        });
    }

    /// Takes requests out of the table: their answers will not be passed on.
    fn take(&self, is_it: impl Fn(&Exchange) -> bool) -> Vec<Id> {
        let mut state = lock(&self.state);
        let found = state.exchanges.iter().filter(|(_, it)| is_it(it));
        let found: Vec<Id> = found.map(|(ours, _)| ours.clone()).collect();
        for ours in &found {
            if let Some(exchange) = state.exchanges.remove(ours) {
                exchange.outlet.give_up();
            }
        }
        state.prune(self.held.share());
        found
    }

    /// Reads a stream from its start, or from where it was left.
    fn read(self: &Arc<Self>, outlet: &Arc<Outlet>, after: Option<u64>) -> Reader {
        let (line, left) = (Arc::clone(self), Arc::clone(outlet));
        outlet.read(after, move || line.left(&left))
    }

    /// Reads on after an event of a stream; nothing if that is not kept.
    pub(super) fn resume(self: &Arc<Self>, stream: u64, after: u64) -> Option<Reader> {
        self.touch();
        let outlet = lock(&self.state).outlets.get(&stream).cloned();
        let outlet = outlet.or_else(|| (stream == 0).then(|| self.standing()))?;
        Some(self.read(&outlet, Some(after)))
    }

    /// Reads what belongs to no request.
    pub(super) fn listen(self: &Arc<Self>) -> Reader {
        self.touch();
        self.read(&self.standing(), None)
    }

    fn standing(&self) -> Arc<Outlet> {
        Arc::clone(&lock(&self.state).standing)
    }

    /// Returns when nobody has used it for `idle`, or it is closed.
    async fn until_unused(&self, idle: Duration) {
        loop {
            let left = idle.saturating_sub(self.unused_for());
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = self.closed.cancelled() => return,
            }
            if self.is_busy() {
                self.touch();
            } else if self.unused_for() >= idle {
                return;
            }
        }
    }

    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

impl State {
    /// Forgets the oldest streams that have ended, beyond the bounds.
    fn prune(&mut self, bytes_max: usize) {
        let done = self.outlets.values().filter(|it| it.is_done());
        let done: Vec<(u64, usize)> = done.map(|it| (it.number, it.bytes())).collect();
        let (mut count, mut bytes) = (
            done.len(),
            done.iter().map(|(_, bytes)| bytes).sum::<usize>(),
        );
        for (number, freed) in done {
            if count <= FINISHED_MAX && bytes <= bytes_max {
                return;
            }
            self.outlets.remove(&number);
            count -= 1;
            bytes -= freed;
        }
    }
}
