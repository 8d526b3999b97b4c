//! Stores by their URLs, recorded histories on each of them, and the wrappers around a store that
//! misbehaves on command.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, in its support too"
)]

mod cached;
#[cfg(all(
    feature = "file",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite"
))]
mod composed;
mod compressed;
#[cfg(all(feature = "file", feature = "sealed"))]
mod ended;
#[cfg(feature = "sealed")]
mod forwarding;
#[cfg(feature = "mysql")]
mod galera;
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
mod rough;
#[cfg(feature = "sealed")]
mod sealed;
#[cfg(feature = "file")]
mod sealed_file;
mod simulated;
#[cfg(feature = "sealed")]
mod stacked;
mod tiered;
