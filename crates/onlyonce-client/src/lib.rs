#![doc = include_str!("../README.md")]

mod ask;
mod cause;
mod counters;
mod evidence;
#[cfg(feature = "https")]
mod https;
mod keys;
mod operation;
mod queue;
mod redirect;
mod reply;
mod retry;
mod sender;
mod transport;

pub use cause::{Cause, Failure};
pub use counters::Counts;
pub use evidence::Evidence;
#[cfg(feature = "https")]
pub use https::Https;
pub use keys::{KeyNotSendable, Keys, job_key, key_header, workflow_key};
pub use onlyonce_core::Key;
pub use operation::{BODY_BYTES_MAX, Operation, OperationError};
pub use queue::{
    AttemptOutcome, Attempted, Edited, Enqueued, Entries, Entry, FailedOperation, Group, GroupId,
    GroupStatus, OperationId, Queue, QueueError, QueueOptions, State, Stats, Status,
};
pub use reply::Reply;
pub use retry::Retry;
pub use sender::{Sender, Sent};
pub use transport::{Http, REPLY_BYTES_MAX, Transport, TransportError};

/// The guide's code, run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../tests/guides/offline-queue.md")]
struct Guide;
