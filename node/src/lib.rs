//! The native part of the Node package `onlyonce`: the engine and its layer as steps that JavaScript
//! takes, see `onlyonce_bridge`. Our threads only ring a bell; JavaScript polls.

pub mod engine;
mod errors;
pub mod exchange;
pub mod execution;
pub mod log;
pub mod run;
pub mod signal;
