//! The models within small bounds: no rule is broken, and every planted bug is found.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its support too"
)]

mod exploring;
mod names;
mod planted;
