//! What can go wrong with a queue, and what to do about it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::keys::KeyNotSendable;

/// Why the queue could not do what it was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The folder cannot be used.
    #[error("the queue's folder {} cannot be used: it must be writable for this user", folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process, or another queue of this one, has it.
    #[error("the queue's folder {} is in use: one queue at a time can own it; stop the other, or name another folder", folder.display())]
    InUse {
        /// Which.
        folder: PathBuf,
    },
    /// Another process, or another queue of this one, is sending what is in it.
    #[error("the queue in {} is being sent by another process: one at a time can do that", folder.display())]
    Sending {
        /// Which.
        folder: PathBuf,
    },
    /// A file of the queue is not the one that was opened.
    #[error("the queue's file {} was deleted, moved or replaced while it was in use, and nothing more is written: put it back if you can, then open the queue again", file.display())]
    Replaced {
        /// Which.
        file: PathBuf,
    },
    /// The task that queues was stopped, with the runtime or by a panic.
    #[error(
        "the queue was stopped before it answered: whether the operation is on disk can be seen once it is opened again"
    )]
    Stopped,
    /// The database in the folder does not do what it should.
    #[error("the queue's database failed; what was queued before is still there")]
    Database(#[from] sqlx::Error),
    /// The database was made by another version.
    #[error(
        "the queue's database was made by another version, or is damaged: use that version, or name another folder"
    )]
    Version(#[from] sqlx::migrate::MigrateError),
    /// A row that is no operation.
    #[error("operation {id} cannot be read back ({what}): discard it, and queue it again")]
    Damaged {
        /// Which.
        id: i64,
        /// What is wrong with it.
        what: String,
    },
    /// No room for more.
    #[error(
        "the queue is full ({held} of {max} {unit}): wait until some are done, or discard failed ones"
    )]
    Full {
        /// How much it holds.
        held: u64,
        /// The bound.
        max: u64,
        /// Of what.
        unit: &'static str,
    },
    /// The key is another operation's.
    #[error("this key belongs to another operation of this queue: use a new one")]
    KeyInUse,
    /// Services would read the key as another one.
    #[error(transparent)]
    KeyNotSendable(#[from] KeyNotSendable),
    /// There is no such operation, or it is done.
    #[error("there is no such operation that is not done")]
    NotThere,
    /// A part of a group does not change on its own.
    #[error(
        "this operation is part of a group, which stands or falls as a whole: queue a new group"
    )]
    InGroup,
    /// A group without a step.
    #[error("a group needs at least one step")]
    EmptyGroup,
}

impl QueueError {
    /// Whether it is about what was asked for, and not about the queue.
    pub(super) fn is_about_the_wish(&self) -> bool {
        match self {
            Self::Full { .. } | Self::KeyInUse | Self::KeyNotSendable(_) | Self::EmptyGroup => true,
            Self::Folder { .. }
            | Self::InUse { .. }
            | Self::Sending { .. }
            | Self::Replaced { .. }
            | Self::Stopped
            | Self::Database(_)
            | Self::Version(_)
            | Self::Damaged { .. }
            | Self::NotThere
            | Self::InGroup => false,
        }
    }
}
