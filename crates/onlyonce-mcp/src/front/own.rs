//! A server of our own, for questions about calls in doubt whose session is gone. It is started when there is
//! one to ask about, and ended after that.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use onlyonce_core::Finding;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::rename;
use super::table::Table;
use crate::background::{Ask, until};
use crate::message::Message;
use crate::pending::lock;
use crate::proxy::{Ended, QUEUE_MAX, between, writer};
use crate::session::Session;

/// How long a question may take, with the start of the server that is asked.
const ASK_MAX: Duration = Duration::from_secs(60);

/// A server that has begun a session with us. Dropped, it is ended.
struct Own {
    session: Arc<Session>,
    _end: DropGuard,
}

/// Settles calls in doubt until `stop`. The table is not kept for that: without it nothing is asked.
pub(super) fn start(table: &Arc<Table>, stop: CancellationToken) {
    let running = Arc::<Mutex<Option<Own>>>::default();
    let ask: Ask = {
        let (table, running, stop) = (Arc::downgrade(table), Arc::clone(&running), stop.clone());
        Arc::new(move |verify, operation| {
            let (table, running, stop) = (Weak::clone(&table), Arc::clone(&running), stop.clone());
            Box::pin(async move {
                until(&stop, async {
                    match begun(&table, &running).await {
                        Some(session) => session.look_at(&operation, &verify).await,
                        None => Finding::CannotTell,
                    }
                })
                .await
            })
        })
    };
    let Some(settling) = table.settling(&ask) else {
        return;
    };
    let settling = settling.within(ASK_MAX);
    table.track(async move {
        settling.run(&stop, || drop(lock(&running).take())).await;
    });
}

/// The session with the server of our own, which is started if there is none.
async fn begun(table: &Weak<Table>, running: &Mutex<Option<Own>>) -> Option<Arc<Session>> {
    let session = lock(running).as_ref().map(|own| Arc::clone(&own.session));
    if session.is_some() {
        return session;
    }
    let table = table.upgrade()?;
    let own = begin(&table).await?;
    let session = Arc::clone(&own.session);
    *lock(running) = Some(own);
    Some(session)
}

async fn begin(table: &Table) -> Option<Own> {
    let (place, server, stop) = table.own_server()?;
    let (to_client, mut said) = mpsc::channel(QUEUE_MAX);
    let (to_server, server_writer) = writer(server.input);
    let session = table.own_session(to_client, to_server);
    let closed = CancellationToken::new();
    let own = Own {
        session: Arc::clone(&session),
        _end: closed.clone().drop_guard(),
    };
    let driven = Arc::clone(&session);
    table.track(async move {
        let answering = async {
            while let Some(message) = said.recv().await {
                if let Message::Request { id, .. } = Message::read(&message) {
                    driven.answer_server(rename::no_client(&id)).await;
                }
            }
        };
        let from_client = async {
            closed.cancelled().await;
            Ok(())
        };
        let pipes = (server.output, server_writer);
        let serving = between(&driven, from_client, pipes, stop.cancelled_owned());
        let ended = tokio::select! {
            ended = serving => ended,
            // The session holds the other end for as long as it is served.
            () = answering => Ok(Ended::Client),
        };
        (server.end)(ended.unwrap_or(Ended::Server)).await;
        drop(place);
    });
    session.begin().await?;
    Some(own)
}
