//! The native part of the Python package `onlyonce`: the engine and its layer as steps that Python
//! code takes, see `onlyonce_bridge`. No thread of ours ever calls into the interpreter.

use pyo3::prelude::*;

mod client;
mod engine;
mod errors;
mod exchange;
mod execution;
mod log;
mod pending;
mod queue;
mod run;
mod signal;

#[pymodule]
#[pyo3(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::client::{Client, new_key};
    #[pymodule_export]
    use crate::engine::{Engine, Site};
    #[pymodule_export]
    use crate::errors::{
        FailedElsewhere, Forked, InProgress, KeyInvalid, Mismatch, NotKept, OnlyonceError,
        OpenError, OutcomeUnknown, QueueFailed, Refused, SendFailed, Unavailable,
    };
    #[pymodule_export]
    use crate::exchange::{Exchange, Reply, Writer};
    #[pymodule_export]
    use crate::execution::Execution;
    #[pymodule_export]
    use crate::log::{LogQueue, log_to};
    #[pymodule_export]
    use crate::pending::Pending;
    #[pymodule_export]
    use crate::queue::Queue;
    #[pymodule_export]
    use crate::run::{Job, Run, Work};
    #[pymodule_export]
    use crate::signal::Signal;
}
