//! The engine through its public interface, on the memory store and on one that misbehaves.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, and measures the virtual clock it moves"
)]

mod agreement;
mod attaching;
mod counting;
mod doubt;
mod finishing;
mod identity;
mod jobs;
mod lapsing;
mod outside;
mod recalling;
mod reconciling;
mod rotation;
mod running;
mod scopes;
mod settling;
mod shutdown;
mod steps;
mod store_trouble;
mod support;
mod values;
mod waiting;
