//! Writing a log: one `write` to the end of a file for each event, which outlives the process from
//! then on, however that ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Entry, What};
use crate::history::clock::now;

/// A log that is being written.
pub(crate) struct LogWriter {
    file: File,
    closed: AtomicBool,
    failure: Mutex<Option<io::Error>>,
}

impl LogWriter {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self {
            file,
            closed: AtomicBool::new(false),
            failure: Mutex::default(),
        })
    }

    /// Writes `what` down.
    pub(crate) fn note(&self, what: What) {
        if self.closed.load(Ordering::SeqCst) {
            return;
        }
        let entry = Entry { at: now(), what };
        let written = serde_json::to_vec(&entry)
            .map_err(io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                (&self.file).write_all(&line)
            });
        if let Err(error) = written {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert(error);
        }
    }

    /// Writes nothing more: its process counts as dead.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// A log with a gap proves nothing: whether it has one.
    pub(crate) fn end(&self) -> io::Result<()> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take().map_or(Ok(()), Err)
    }
}
