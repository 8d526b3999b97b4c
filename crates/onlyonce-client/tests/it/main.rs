//! The client's behaviour, against real services and against scripts of what a network does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ask;
mod chaos;
mod documents;
mod durability;
mod evidence;
mod groups;
mod portals;
mod profiles;
mod queue;
mod rates;
mod sender;
mod shared;
mod support;
