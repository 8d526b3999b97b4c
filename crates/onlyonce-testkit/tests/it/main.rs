//! The testkit's own tests.

mod conformance;
#[cfg(unix)]
mod history;
#[cfg(feature = "servers")]
mod servers;
mod settling;
mod sim;
