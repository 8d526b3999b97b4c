//! The stores against the real thing, and the wrappers around a store that misbehaves on command.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, in its support too"
)]

mod cached;
#[cfg(feature = "file")]
mod file;
mod guarded;
#[cfg(all(
    feature = "file",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite"
))]
mod history;
mod metered;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod outlasting;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod rough;
#[cfg(feature = "sealed")]
mod sealed;
#[cfg(feature = "file")]
mod sealed_file;
mod simulated;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sealed")]
mod stacked;
