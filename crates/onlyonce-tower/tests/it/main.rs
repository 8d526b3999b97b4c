//! The layer over HTTP: what each profile promises, how others failed, and what happens to bad
//! input, to other callers and to secrets.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its support too"
)]

mod allowance;
mod bad_input;
mod derived_keys;
mod details;
mod duplicates;
mod encoded;
mod extension;
mod extractor;
mod grpc;
mod hold;
mod identity;
mod known_failures;
mod profiles;
mod refused_bodies;
mod secrets;
mod streaming;
mod support;
mod unreadable;
