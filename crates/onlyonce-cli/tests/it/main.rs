//! The program that people call; and `onlyonce verify` against our own layer under every profile
//! and against a foreign server with one flaw after the other.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its support too"
)]

mod demo;
mod flaws;
mod gateways;
mod https;
mod indistinct;
mod operators;
mod profiles;
mod program;
mod secrets;
mod support;
mod usage;
mod variations;
