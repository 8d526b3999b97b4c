//! What the tests of every store and of the engine share: the store conformance suite, and a
//! deterministic simulator that runs production code through faults drawn from a seed.

pub mod conformance;
pub mod sim;
