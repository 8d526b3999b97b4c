//! The testkit's own tests.

mod conformance;
mod sim;
