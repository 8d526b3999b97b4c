//! An MCP server behind the gateway, as the code that speaks the protocol sees it.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use onlyonce_core::Release;
use onlyonce_mcp::{AnswerBody, Http, Unanswered};
use onlyonce_tower::{Execution, RequestBody, Room};
use tower_service::Service as _;

use crate::forward::Peer;
use crate::identify::Identified;

/// Sends requests of one caller.
pub(super) struct Wire {
    pub(super) server: Identified,
    pub(super) peer: Option<Peer>,
    /// Whose identity they carry, where they are an attempt at a call.
    pub(super) execution: Option<Execution>,
    /// That of the message that they are made of.
    pub(super) room: Option<Arc<Room>>,
}

impl Wire {
    pub(super) fn to(server: &Identified, peer: Option<&Peer>) -> Arc<Self> {
        Arc::new(Self {
            server: server.clone(),
            peer: peer.cloned(),
            execution: None,
            room: None,
        })
    }
}

impl Http for Wire {
    fn send(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, Unanswered>> {
        let mut request = request.map(|message| match &self.room {
            Some(room) => RequestBody::whole_within(message, Arc::clone(room)),
            None => RequestBody::whole(message),
        });
        if let Some(peer) = &self.peer {
            request.extensions_mut().insert(peer.clone());
        }
        if let Some(execution) = &self.execution {
            request.extensions_mut().insert(execution.clone());
        }
        let sent = self.server.clone().call(request);
        async move {
            match sent.await {
                Ok(response) => Ok(response.map(|body| AnswerBody::new(body.map_err(Into::into)))),
                Err(failure) => Err(match failure.release() {
                    Release::NotRun => Unanswered::NotSent(failure.to_string()),
                    Release::Unknown => Unanswered::Lost(failure.to_string()),
                }),
            }
        }
        .boxed()
    }
}
