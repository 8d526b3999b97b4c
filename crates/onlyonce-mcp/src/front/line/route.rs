//! Where a message of a server goes: to the stream of the request that it belongs to, or to the one that its
//! client reads.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Kind, Line, State};
use crate::front::stream::Outlet;
use crate::front::{rename, words};
use crate::message::{Id, Message, Reply};
use crate::pending::lock;

impl Line {
    pub(super) async fn route_all(
        self: Arc<Self>,
        mut said: mpsc::Receiver<String>,
        is_over: CancellationToken,
    ) {
        loop {
            let message = tokio::select! {
                biased;
                message = said.recv() => message,
                () = is_over.cancelled() => None,
            };
            let Some(message) = message else { break };
            self.route(message).await;
        }
        self.end_exchanges();
    }

    /// Every request that is still open gets an answer: its server is gone.
    pub(super) fn end_exchanges(&self) {
        let mut state = lock(&self.state);
        for exchange in std::mem::take(&mut state.exchanges).into_values() {
            let answer = words::server_gone(&exchange.id);
            exchange.outlet.answer(&exchange.id, &answer);
        }
        state.standing.finish();
    }

    async fn route(&self, message: String) {
        match Message::read(&message) {
            Message::Response { id, reply } => self.answered(&message, &id, &reply),
            Message::Notification { params, .. } => self.notify(&message, params),
            Message::Request { id, .. } => match self.kind {
                Kind::Session => self.tell(&message),
                Kind::Stateless => self.core.answer_server(rename::no_client(&id)).await,
            },
            // A line that a careless server printed is no message.
            Message::Other | Message::Unreadable => {}
        }
    }

    fn answered(&self, message: &str, ours: &Id, reply: &Reply) {
        let mut state = lock(&self.state);
        if let Some(exchange) = state.exchanges.remove(ours) {
            let answer = rename::response(message, reply, &exchange.id);
            exchange.outlet.answer(&exchange.id, &answer);
            state.prune(self.held.share());
        }
    }

    fn notify(&self, message: &str, params: Option<&RawValue>) {
        let named = params.and_then(rename::named);
        let Some(ours) = named.filter(|named| self.ids.made(named)) else {
            return self.tell(message);
        };
        let state = lock(&self.state);
        // One of a request that was answered already is of no use to anybody.
        if let Some(exchange) = state.exchanges.get(&ours) {
            let token = exchange.token.as_deref();
            if let Some(message) = rename::notification(message, token, &exchange.id) {
                exchange.outlet.tell(&message);
            }
        }
    }

    /// Says what belongs to no request that we know of, on one stream. Between requests that know nothing
    /// of each other, it is said only if there is no doubt whose it is.
    fn tell(&self, message: &str) {
        let state = lock(&self.state);
        let outlet = match self.kind {
            Kind::Session => Some(state.open_stream()),
            Kind::Stateless => match &state.exchanges.values().collect::<Vec<_>>()[..] {
                [only] => Some(Arc::clone(&only.outlet)),
                [] | [_, ..] => None,
            },
        };
        if let Some(outlet) = outlet {
            outlet.tell(message);
        }
    }
}

impl State {
    /// A stream that its client reads; or the one that it may yet read.
    fn open_stream(&self) -> Arc<Outlet> {
        let is_open = |it: &&Arc<Outlet>| it.is_stream && it.is_read() && !it.is_done();
        let latest = self.outlets.values().rev().find(is_open);
        let outlet = match latest {
            Some(latest) if !self.standing.is_read() => latest,
            Some(_) | None => &self.standing,
        };
        Arc::clone(outlet)
    }
}
