//! Reads both sides line by line, and ends when one of them does.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use onlyonce_core::{Engine, KeyRule, Policy};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::background::{Ask, OfSession, Settling};
use crate::lines::Lines;
use crate::message::each;
use crate::remote::{Peer, Remote};
use crate::rules::{Derive, Rules};
use crate::session::{Caller, Session};

/// One message. Files travel in messages.
pub(crate) const LINE_BYTES_MAX: u64 = 256 << 20;
/// Messages on their way to one side.
pub(crate) const QUEUE_MAX: usize = 64;
/// How long calls may go on once the proxy was told to stop.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// How long the remaining output may take once the input has ended.
const LAST_WORDS_MAX: Duration = Duration::from_secs(5);

/// A proxy in front of an MCP server: it makes the server's tools run once.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use onlyonce_core::{Engine, MemoryStore};
/// use onlyonce_mcp::{Ended, Proxy, Rules};
///
/// let engine = Engine::open(MemoryStore::new()).await.unwrap();
/// let proxy = Proxy::new(engine, Rules::new("filesystem"));
/// # let (mut client, near_client) = tokio::io::duplex(64);
/// # let (server, near_server) = tokio::io::duplex(64);
/// # drop((client, server));
///
/// let ended = proxy
///     .run(tokio::io::split(near_client), tokio::io::split(near_server), std::future::pending())
///     .await
///     .unwrap();
/// assert!(matches!(ended, Ended::Client | Ended::Server));
/// # }
/// ```
#[derive(Clone)]
pub struct Proxy {
    engine: Engine,
    rules: Arc<Rules>,
    policy: Arc<Policy>,
}

/// Who went first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client closed its side, or the proxy was told to stop.
    Client,
    /// The server closed its side.
    Server,
}

impl Proxy {
    /// A proxy that keeps its records in `engine`.
    pub fn new(engine: Engine, rules: Rules) -> Self {
        Self {
            engine,
            policy: Arc::new(rules.policy()),
            rules: Arc::new(rules),
        }
    }

    /// Passes messages between a client and a server, a line each, until one of them closes its side
    /// or `stop` returns.
    ///
    /// Calls with a key that are running then are waited for, and their results stored, before the
    /// server's side is closed; after `stop` for ten seconds at most. A server that goes leaves the
    /// outcome of its calls unknown.
    pub async fn run<CR, CW, SR, SW>(
        &self,
        client: (CR, CW),
        server: (SR, SW),
        stop: impl Future<Output = ()>,
    ) -> io::Result<Ended>
    where
        CR: AsyncRead + Unpin,
        CW: AsyncWrite + Unpin + Send + 'static,
        SR: AsyncRead + Unpin,
        SW: AsyncWrite + Unpin + Send + 'static,
    {
        let (to_client, client_writer) = writer(client.1);
        let (to_server, server_writer) = writer(server.1);
        let session = self.session(None, to_client, to_server);
        let background = OfSession::start(&session);
        let from_client = hear_client(client.0, &session);
        let server = (server.0, server_writer);
        let ended = between(&session, from_client, server, stop).await;
        if let Some(background) = background {
            background.end().await;
        }
        client_writer.close().await;
        ended
    }

    /// The same in a conversation of its own, where keys are derived.
    pub(crate) fn conversing(&self, conversation: &str) -> Self {
        let Some(derive) = &self.rules.derive else {
            return self.clone();
        };
        let derive = Some(Derive {
            conversation: conversation.to_owned(),
            ..derive.clone()
        });
        let rules = Rules::clone(&self.rules);
        Self {
            rules: Arc::new(Rules { derive, ..rules }),
            ..self.clone()
        }
    }

    /// What is to be settled without a session of a client, if it asks like this.
    pub(crate) fn settling(&self, ask: &Ask) -> Option<Settling> {
        Settling::of(&self.engine, &self.rules, &self.policy, ask)
    }

    /// A rule for keys that come in headers.
    pub(crate) fn key_rule(&self) -> &KeyRule {
        &self.policy.key
    }

    /// What happens between one client and one server.
    pub(crate) fn session(
        &self,
        caller: Option<Caller>,
        to_client: mpsc::Sender<String>,
        to_server: mpsc::Sender<String>,
    ) -> Arc<Session> {
        Session::new(
            self.engine.clone(),
            Arc::clone(&self.rules),
            Arc::clone(&self.policy),
            caller,
            to_client,
            to_server,
        )
    }

    /// The same for a server on the network, which a client on lines of text reaches by streamable HTTP.
    /// It ends with the client, or when `stop` returns; a server that cannot be reached does not end it.
    pub async fn run_remote<CR, CW>(
        &self,
        client: (CR, CW),
        server: Remote,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()>
    where
        CR: AsyncRead + Unpin,
        CW: AsyncWrite + Unpin + Send + 'static,
    {
        let (to_client, client_writer) = writer(client.1);
        let (to_server, said) = mpsc::channel(QUEUE_MAX);
        let session = self.session(None, to_client, to_server);
        let background = OfSession::start(&session);
        let peer = Peer::new(server, Arc::clone(&session));
        let mut stop = pin!(stop.fuse());
        let serving = peer.serve(said);
        let from_client = hear_client(client.0, &session);
        tokio::pin!(serving, from_client);
        let read = tokio::select! {
            () = &mut serving => Ok(()),
            read = &mut from_client => read,
            () = &mut stop => Ok(()),
        };
        let told_to_stop = async {
            if !stop.is_terminated() {
                stop.await;
            }
            tokio::time::sleep(DRAIN_MAX).await;
        };
        tokio::select! {
            () = session.settled() => {}
            () = told_to_stop => {}
            () = &mut serving => {}
        }
        session.server_gone();
        session.settled().await;
        if let Some(background) = background {
            background.end().await;
        }
        peer.close().await;
        client_writer.close().await;
        read
    }
}

/// Passes messages until one side ends: the client when `from_client` returns, or `stop`. The server's side
/// is closed then, and every call has its answer.
pub(crate) async fn between<SR: AsyncRead + Unpin>(
    session: &Arc<Session>,
    from_client: impl Future<Output = io::Result<()>>,
    (server, server_writer): (SR, Writer),
    stop: impl Future<Output = ()>,
) -> io::Result<Ended> {
    let from_server = hear_server(server, session);
    tokio::pin!(from_client, from_server);
    let mut stop = pin!(stop.fuse());
    let (first, read) = tokio::select! {
        read = &mut from_server => (Ended::Server, read),
        read = &mut from_client => (Ended::Client, read),
        () = &mut stop => (Ended::Client, Ok(())),
    };
    if first == Ended::Client {
        // Only the server can still say something: how the calls ended.
        let told_to_stop = async {
            if !stop.is_terminated() {
                stop.await;
            }
            tokio::time::sleep(DRAIN_MAX).await;
        };
        let is_there = tokio::select! {
            () = session.settled() => true,
            () = told_to_stop => true,
            _ = &mut from_server => false,
        };
        server_writer.close().await;
        if is_there {
            drop(tokio::time::timeout(LAST_WORDS_MAX, from_server).await);
        }
    }
    session.server_gone();
    session.settled().await;
    read.map(|()| first)
}

async fn hear_client(client: impl AsyncRead + Unpin, session: &Arc<Session>) -> io::Result<()> {
    let mut lines = Lines::new(client, LINE_BYTES_MAX);
    while let Some(line) = lines.next().await? {
        for message in each(line) {
            session.client_wrote(message).await;
        }
    }
    Ok(())
}

async fn hear_server(server: impl AsyncRead + Unpin, session: &Arc<Session>) -> io::Result<()> {
    let mut lines = Lines::new(server, LINE_BYTES_MAX);
    while let Some(line) = lines.next().await? {
        for message in each(line) {
            session.server_said(message).await;
        }
    }
    Ok(())
}

/// Writes lines in a task of its own.
pub(crate) struct Writer {
    close: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

pub(crate) fn writer(
    mut to: impl AsyncWrite + Unpin + Send + 'static,
) -> (mpsc::Sender<String>, Writer) {
    let (lines, mut queue) = mpsc::channel::<String>(QUEUE_MAX);
    let (close, mut closing) = oneshot::channel();
    let task = tokio::spawn(async move {
        let mut is_closing = false;
        loop {
            let line = tokio::select! {
                biased;
                line = queue.recv() => line,
                _ = &mut closing, if !is_closing => {
                    // What is queued already is still written.
                    is_closing = true;
                    queue.close();
                    continue;
                }
            };
            let Some(mut line) = line else { break };
            line.push('\n');
            let written = async {
                to.write_all(line.as_bytes()).await?;
                to.flush().await
            };
            // A side that does not listen any more has closed, or is about to.
            if written.await.is_err() {
                return;
            }
        }
        drop(to.shutdown().await);
    });
    (lines, Writer { close, task })
}

impl Writer {
    /// Writes what is queued, then closes the pipe.
    async fn close(mut self) {
        let _ = self.close.send(());
        let written = tokio::time::timeout(LAST_WORDS_MAX, &mut self.task).await;
        if written.is_err() {
            self.task.abort();
        }
    }
}
