//! The proxy between a client and a server: both ends of the wire in the test's hands, or the
//! official SDK on either side.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its support too"
)]

mod called;
mod derived;
mod errors;
mod front;
mod hostile;
mod keys;
mod listing;
mod lost;
mod passing;
mod random;
mod remote;
mod sdk;
mod settled;
mod support;
mod verified;
