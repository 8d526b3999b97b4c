//! `onlyonce verify` against our own layer under every profile, against a foreign server with one
//! flaw after the other, and as the program that people call.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its support too"
)]

mod flaws;
mod https;
mod indistinct;
mod profiles;
mod program;
mod secrets;
mod support;
mod usage;
mod variations;
