//! Effects as lines of a file. Each is one write: a process that dies wrote all of it, or nothing.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Order;
use crate::failure::Failure;

/// A line.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) reference: String,
    pub(crate) what: String,
    operation: String,
    /// The number of the effect that was recognised by its key, instead of another effect.
    pub(crate) repeats: Option<u64>,
}

pub(super) struct Book {
    file: File,
    entries: Vec<Entry>,
}

impl Book {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::options().create(true).append(true).open(path);
        Ok(Self {
            file: file.map_err(Failure::doing("open a ledger's book"))?,
            entries: read(path)?,
        })
    }

    /// Writes an effect down, which is the effect. Returns its number.
    pub(super) fn charge(
        &mut self,
        order: &Order,
        operation: &str,
        takes_keys: bool,
    ) -> io::Result<u64> {
        let known = takes_keys.then(|| self.find(operation)).flatten();
        let entry = Entry {
            number: self.entries.len() as u64,
            reference: order.reference.clone(),
            what: order.what.clone(),
            operation: operation.to_owned(),
            repeats: known,
        };
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()?;
        let number = known.unwrap_or(entry.number);
        self.entries.push(entry);
        Ok(number)
    }

    /// The effect of an operation.
    pub(super) fn find(&self, operation: &str) -> Option<u64> {
        let mut effects = self.entries.iter().filter(|it| it.repeats.is_none());
        effects
            .find(|entry| entry.operation == operation)
            .map(|entry| entry.number)
    }
}

/// All that is written in a book.
pub(crate) fn read(path: &Path) -> Result<Vec<Entry>, Failure> {
    let text = fs::read_to_string(path).map_err(Failure::doing("read a ledger's book"))?;
    text.lines()
        .map(|line| serde_json::from_str(line).map_err(Failure::doing("read a line of a ledger")))
        .collect()
}
