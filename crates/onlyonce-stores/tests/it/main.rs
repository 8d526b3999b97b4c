//! The stores against the real thing.
