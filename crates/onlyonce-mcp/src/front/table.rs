//! The servers that run: one for each session, and one for each caller that has none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use onlyonce_core::{Entropy as _, KeyRule, OsEntropy};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::line::{Kind, Line};
use super::{Bounds, Servers, Started, own};
use crate::background::{Ask, Settling};
use crate::pending::lock;
use crate::proxy::Proxy;
use crate::session::{Caller, Session};

/// How long a caller waits for the place of a server of its own that is ended for it.
const PLACE_WAIT_MAX: Duration = Duration::from_secs(10);

pub(super) struct Table {
    proxy: Proxy,
    servers: Box<dyn Servers>,
    bounds: Bounds,
    places: Arc<Semaphore>,
    lines: Arc<Mutex<Lines>>,
    stop: CancellationToken,
    /// Calls in doubt are settled until it is cancelled, or dropped with all this.
    settling: CancellationToken,
    _settling: DropGuard,
    running: TaskTracker,
}

#[derive(Default)]
struct Lines {
    sessions: BTreeMap<String, Arc<Line>>,
    stateless: BTreeMap<Option<Caller>, Arc<Line>>,
}

/// Why there is no server for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum NoServer {
    #[error("as many servers run as may run; try again later")]
    TooMany,
    #[error("the server cannot be started")]
    NotStarted,
    #[error("this is shutting down")]
    Stopping,
}

impl Table {
    pub(super) fn new(proxy: Proxy, servers: Box<dyn Servers>, bounds: Bounds) -> Self {
        let settling = CancellationToken::new();
        Self {
            proxy,
            servers,
            bounds,
            places: Arc::new(Semaphore::new(bounds.servers_max)),
            lines: Arc::default(),
            stop: CancellationToken::new(),
            _settling: settling.clone().drop_guard(),
            settling,
            running: TaskTracker::new(),
        }
    }

    pub(super) fn key_rule(&self) -> &KeyRule {
        self.proxy.key_rule()
    }

    /// A session of this id, if it is this caller's.
    pub(super) fn session(&self, id: &str, caller: &Option<Caller>) -> Option<Arc<Line>> {
        let lines = lock(&self.lines);
        let line = lines.sessions.get(id)?;
        (line.caller == *caller && !line.is_closed()).then(|| Arc::clone(line))
    }

    /// Begins a session: its id, and its server.
    pub(super) async fn begin(
        &self,
        caller: Option<Caller>,
    ) -> Result<(String, Arc<Line>), NoServer> {
        let place = self.place(&caller).await?;
        let id = random();
        let line = self.start(Kind::Session, caller, &id, place)?;
        let mut lines = lock(&self.lines);
        // One that has ended already may be forgotten already.
        if !line.is_closed() {
            lines.sessions.insert(id.clone(), Arc::clone(&line));
        }
        drop(lines);
        Ok((id, line))
    }

    /// The server of a caller that has no session.
    pub(super) async fn stateless(&self, caller: &Option<Caller>) -> Result<Arc<Line>, NoServer> {
        let running = || {
            let lines = lock(&self.lines);
            let line = lines.stateless.get(caller).filter(|it| !it.is_closed());
            line.cloned()
        };
        if let Some(line) = running() {
            return Ok(line);
        }
        let place = self.place(caller).await?;
        // Another request of this caller may have started one meanwhile.
        if let Some(line) = running() {
            return Ok(line);
        }
        let line = self.start(Kind::Stateless, caller.clone(), &random(), place)?;
        let mut lines = lock(&self.lines);
        match lines.stateless.get(caller).filter(|it| !it.is_closed()) {
            Some(other) => {
                line.close();
                Ok(Arc::clone(other))
            }
            None => {
                if !line.is_closed() {
                    lines.stateless.insert(caller.clone(), Arc::clone(&line));
                }
                Ok(line)
            }
        }
    }

    /// Settles calls in doubt from now on, if the rules want it.
    pub(super) fn settle(self: &Arc<Self>) {
        own::start(self, self.settling.clone());
    }

    pub(super) fn settling(&self, ask: &Ask) -> Option<Settling> {
        self.proxy.settling(ask)
    }

    /// A server for nobody but us, its place, and when it is to end; nothing if there is no place left.
    pub(super) fn own_server(&self) -> Option<(OwnedSemaphorePermit, Started, CancellationToken)> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let server = self.servers.start().ok()?;
        Some((place, server, self.stop.clone()))
    }

    pub(super) fn own_session(
        &self,
        to_client: mpsc::Sender<String>,
        to_server: mpsc::Sender<String>,
    ) -> Arc<Session> {
        self.proxy.session(None, to_client, to_server)
    }

    /// Runs this in a task that a shutdown waits for.
    pub(super) fn track(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(task);
    }

    pub(super) async fn shutdown(&self) {
        self.settling.cancel();
        self.stop.cancel();
        self.running.close();
        self.running.wait().await;
    }

    fn start(
        &self,
        kind: Kind,
        caller: Option<Caller>,
        name: &str,
        place: OwnedSemaphorePermit,
    ) -> Result<Arc<Line>, NoServer> {
        let server = self.servers.start().map_err(|_| NoServer::NotStarted)?;
        let proxy = if self.bounds.is_one_conversation {
            self.proxy.clone()
        } else {
            self.proxy.conversing(name)
        };
        let stop = self.stop.clone();
        let (line, drive) = Line::start(&proxy, kind, caller, server, self.bounds, stop);
        let (lines, gone) = (Arc::clone(&self.lines), Arc::downgrade(&line));
        self.running.spawn(async move {
            drive.await;
            lock(&lines).forget(&gone);
            drop(place);
        });
        Ok(line)
    }

    /// A place for a server. If there is none, the caller's own server that was not used for the longest time
    /// makes room; nobody else's does.
    async fn place(&self, caller: &Option<Caller>) -> Result<OwnedSemaphorePermit, NoServer> {
        if self.stop.is_cancelled() {
            return Err(NoServer::Stopping);
        }
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let unused = lock(&self.lines).longest_unused(caller);
        unused.ok_or(NoServer::TooMany)?.close();
        let place = Arc::clone(&self.places).acquire_owned();
        match tokio::time::timeout(PLACE_WAIT_MAX, place).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(NoServer::TooMany),
        }
    }
}

impl Lines {
    fn longest_unused(&self, caller: &Option<Caller>) -> Option<Arc<Line>> {
        let all = self.sessions.values().chain(self.stateless.values());
        let own = all.filter(|it| it.caller == *caller && !it.is_closed() && !it.is_busy());
        own.max_by_key(|line| line.unused_for()).cloned()
    }

    fn forget(&mut self, gone: &Weak<Line>) {
        let is_other = |line: &Arc<Line>| !std::ptr::eq(Arc::as_ptr(line), gone.as_ptr());
        self.sessions.retain(|_, line| is_other(line));
        self.stateless.retain(|_, line| is_other(line));
    }
}

fn random() -> String {
    let mut bytes = [0; 16];
    OsEntropy::new().fill(&mut bytes);
    format!("{:032x}", u128::from_le_bytes(bytes))
}
