//! The program that people call; and `onlyonce verify` against our own layer under every profile
//! and against a foreign server with one flaw after the other.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its support too"
)]

mod alerts;
mod audit;
mod config;
mod demo;
mod documents;
mod flaws;
mod gateways;
mod guide;
mod https;
mod indistinct;
mod live;
mod log;
mod mcp;
mod operators;
mod ops;
mod profiles;
mod program;
mod secrets;
mod support;
mod traces;
mod usage;
mod variations;
