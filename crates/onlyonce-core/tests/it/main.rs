//! The engine through its public interface, on the memory store and on one that misbehaves.

mod attaching;
mod finishing;
mod identity;
mod jobs;
mod lapsing;
mod shutdown;
mod store_trouble;
mod support;
mod waiting;
