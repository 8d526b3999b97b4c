//! The gateway in front of real services.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod callers;
mod limits;
mod once;
mod passing;
mod support;
mod tls;
