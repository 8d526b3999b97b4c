//! The program that people call; and `onlyonce verify` against our own layer under every profile
//! and against a foreign server with one flaw after the other.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its support too"
)]

mod alerts;
mod audit;
mod compose;
mod config;
mod demo;
mod documents;
mod drill;
mod ended;
mod flaws;
mod gateways;
mod guide;
mod https;
mod indistinct;
mod init;
mod live;
mod log;
mod mcp;
mod mcp_http;
mod mcp_listen;
mod mcp_settled;
mod observe;
mod operators;
mod ops;
mod profiles;
mod program;
mod queue;
mod reports;
mod secrets;
mod stepped;
mod store_urls;
mod support;
mod traces;
mod unit;
mod usage;
mod variations;
