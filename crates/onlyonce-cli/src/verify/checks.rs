//! The checks, by what they look at. Each is a function named after its promise.

pub(crate) mod bodies;
pub(crate) mod hang_up;
pub(crate) mod headers;
pub(crate) mod keys;
pub(crate) mod payloads;
pub(crate) mod refusals;
pub(crate) mod replay;
pub(crate) mod running;
pub(crate) mod scope;
pub(crate) mod time;
