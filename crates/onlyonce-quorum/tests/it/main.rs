//! The quorum on simulated servers: the conformance suite, and seeded runs under faults whose
//! histories are checked, with bugs planted that must be found.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, in its support too"
)]

mod admitting;
mod conforming;
mod keeper;
mod ledger;
mod redlock;
mod rounds;
mod server;
mod simulated;
mod world;
