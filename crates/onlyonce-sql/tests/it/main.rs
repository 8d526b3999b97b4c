//! The SQL stores against real servers, which the tests start.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, in its support too"
)]

mod arguments;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod outlasting;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
