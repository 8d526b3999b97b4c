//! What the Python and the Node package have in common: an engine with a runtime of its own, and
//! requests and functions as steps that a host language takes one at a time.
//!
//! A host cannot be called from our threads: an interpreter has a lock, and may be about to exit. So
//! nothing here calls a host. It polls an [`Exchange`] or a [`Run`] on its own thread, does what the
//! [`Step`] says (read more of the request, call the handler, send this) and polls again when its
//! waker was woken. What decides is the tower layer and the engine, the same as in a Rust service.

mod client;
mod deadline;
mod exchange;
mod execution;
mod forks;
mod host;
mod joined;
mod log;
mod pending;
mod pipe;
mod run;
mod site;
mod threads;
mod value;

pub use self::client::{
    Client, ClientFailure, ClientSettings, Credentials, Outbox, OutboxFailure, Wanted, WantedError,
    headers, key, name,
};
pub use self::exchange::{Exchange, Handover, Lost, Reply, Step};
pub use self::execution::HostExecution;
pub use self::forks::OpenInParent;
pub use self::host::{Host, OpenFailure, Settings};
pub use self::joined::HeaderLines;
pub use self::log::{LogLine, LogQueue, Severity, log_to};
pub use self::pending::Pending;
pub use self::pipe::{Pipe, PipeBody, Writer};
pub use self::run::{Job, JobSettings, Run, RunFailure, RunStep, Work};
pub use self::site::{Site, SiteError, SiteSettings};
pub use self::threads::CloseError;
