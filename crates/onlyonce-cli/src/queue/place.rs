//! Where the queue is, and how it is opened.

use std::path::{Path, PathBuf};

use onlyonce_client::{Https, Queue, QueueOptions, Sender};

use super::CommandError;
use crate::mcp::default_store;

/// The folder that was named, or this user's own.
pub(super) fn folder(named: Option<&Path>) -> Result<PathBuf, CommandError> {
    if let Some(folder) = named {
        return Ok(folder.to_owned());
    }
    let state = default_store::folder().ok_or_else(|| {
        let why =
            "there is no place for the queue: neither XDG_STATE_HOME nor HOME is set; give --queue";
        CommandError::Wrong(why.to_owned())
    })?;
    Ok(state.join("queue"))
}

/// The queue, for a command that does not send.
pub(super) async fn open(folder: &Path) -> Result<Queue, CommandError> {
    let sender = Sender::new(Https::new());
    Ok(Queue::open_shared(folder, sender, QueueOptions::default()).await?)
}
