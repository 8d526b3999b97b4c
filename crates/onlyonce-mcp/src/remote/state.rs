//! What is known of a session at a server.

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::task::AbortHandle;

use crate::members::Members;
use crate::message::{INITIALIZE, Message, Reply};

pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

#[derive(Clone, Default)]
pub(super) struct State {
    /// What the server calls the session, if it keeps one.
    pub(super) session: Option<HeaderValue>,
    /// The version of the protocol that was agreed on.
    pub(super) version: Option<HeaderValue>,
    /// How the client began: to begin again, should the server forget.
    pub(super) initialize: Option<String>,
    pub(super) initialized: Option<String>,
    /// Hears what the server says on its own.
    pub(super) listener: Option<AbortHandle>,
}

impl State {
    /// Learns from the answer to the client's first request.
    pub(super) fn learn(&mut self, line: &str, answer: &str, headers: &HeaderMap) {
        let is_initialize = matches!(
            Message::read(line),
            Message::Request { method, .. } if method == INITIALIZE
        );
        let Some(Reply::Result(result)) = Reply::of(answer).filter(|_| is_initialize) else {
            return;
        };
        let version = Members::of(&result).and_then(|it| it.text("protocolVersion"));
        self.version = version.and_then(|version| HeaderValue::from_str(&version).ok());
        self.session = headers.get(SESSION).cloned();
        self.initialize = Some(line.to_owned());
    }

    /// Says which session a request belongs to, in which version of the protocol.
    pub(super) fn name_session(&self, headers: &mut HeaderMap) {
        if let Some(session) = &self.session {
            headers.insert(SESSION, session.clone());
        }
        if let Some(version) = &self.version {
            headers.insert(VERSION, version.clone());
        }
    }
}
