//! What the tests of every store and of the engine share: the store conformance suite, a
//! deterministic simulator that runs production code through faults drawn from a seed, and
//! recorded histories of real processes on real stores.
//!
//! With the feature `servers`: real servers that tests start, break and start again, and a proxy
//! that counts round trips and loses replies.

pub use onlyonce_conformance::{self as conformance, conformance_suite};

#[cfg(unix)]
pub mod history;
#[cfg(feature = "servers")]
pub mod proxy;
#[cfg(feature = "servers")]
pub mod servers;
pub mod sim;
