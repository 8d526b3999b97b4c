//! MCP tools that run once: a [`Proxy`] between any MCP client and any MCP server.
//!
//! It adds an optional `idempotencyKey` to every tool that is not read-only, and tells the model how
//! to use it. A call with a key runs once; a retry gets the first result, also after a restart. The
//! key is taken from the arguments or from `_meta`, and never reaches the server. Everything else
//! passes as it came: resources, prompts, sampling, progress, and what the protocol does not know yet.

mod answer;
mod call;
mod catalog;
mod lines;
mod members;
mod message;
mod pending;
mod proxy;
mod rules;
mod session;

pub use globset::Error as PatternError;

pub use catalog::key_schema;
pub use proxy::{Ended, Proxy};
pub use rules::{Derive, Errors, Rules, Tools};
