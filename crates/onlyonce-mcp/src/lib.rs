//! MCP tools that run once: a [`Proxy`] between any MCP client and any MCP server.
//!
//! It adds an optional `idempotencyKey` to every tool that is not read-only, and tells the model how
//! to use it. A call with a key runs once; a retry gets the first result, also after a restart. The
//! key is taken from the arguments or from `_meta`, and never reaches the server. Everything else
//! passes as it came: resources, prompts, sampling, progress, and what the protocol does not know yet.

mod answer;
mod background;
mod call;
mod catalog;
mod decide;
mod exchange;
mod front;
mod keys;
mod lines;
mod members;
mod message;
mod pending;
mod proxy;
mod remote;
mod rules;
mod session;
mod sse;
mod verify;

pub use globset::Error as PatternError;

/// The decisions and the words, without a transport: for a proxy that has its own.
pub mod parts {
    pub use crate::answer::{Audience, is_failure, not_verifiable, outcome_of, refused, repeated};
    pub use crate::call::ToolCall;
    pub use crate::catalog::Catalog;
    pub use crate::decide::{Decision, decide};
    pub use crate::exchange::{Exchanged, exchange, is_before_the_tool};
    pub use crate::keys::{KeyOrigin, has_key, text as key_text};
    pub use crate::message::{Id, Reply, each};
    pub use crate::sse::{Event, Events, TooLarge, event};
    pub use crate::verify::About;
}

pub use catalog::key_schema;
pub use exchange::{AnswerBody, Http, Unanswered};
pub use front::{Bounds, End, Front, FrontBody, Servers, Started};
pub use proxy::{Ended, Proxy};
pub use remote::Remote;
pub use rules::{Background, Derive, Errors, NO_CALL_ID, OnCancel, Rules, Tools};
pub use session::Caller;
pub use verify::{Verify, VerifyError};
