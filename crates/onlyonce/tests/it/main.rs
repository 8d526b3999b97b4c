//! What depends on this crate from outside, as a test.

mod front_page;
