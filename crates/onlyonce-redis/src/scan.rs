//! Which slots there are: a walk over the names of all keys.

use std::sync::Arc;

use ::redis::{Cmd, Pipeline, Value};
use onlyonce_core::{Slot, StoreError};

use super::node::{Node, Want};
use super::trouble::{Trouble, refusal};

/// How many keys a server looks at before it answers.
const KEYS_AT_ONCE: usize = 256;

/// All slots that have a key on one server.
pub(super) struct Scan {
    node: Arc<Node>,
    prefix: Vec<u8>,
    /// Where to go on; nothing once all were seen.
    cursor: Option<Vec<u8>>,
}

impl Scan {
    pub(super) fn of(prefix: &[u8], node: Arc<Node>) -> Self {
        Self {
            node,
            prefix: prefix.to_owned(),
            cursor: Some(b"0".to_vec()),
        }
    }

    /// Some more of them; nothing once all were seen.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Slot>>, StoreError> {
        let Some(cursor) = self.cursor.take() else {
            return Ok(None);
        };
        let mut command = Cmd::new();
        command
            .arg("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(pattern(&self.prefix));
        command.arg("COUNT").arg(KEYS_AT_ONCE);
        let mut commands = Pipeline::new();
        commands.add_command(command);
        let answers = self.node.ask(&Arc::new(commands), Want::Plain).await?;
        if let Some(trouble) = answers.iter().find_map(refusal) {
            return Err(trouble.into());
        }
        let [Value::Array(page)] = &answers[..] else {
            return Err(Trouble::Odd.into());
        };
        let [Value::BulkString(cursor), Value::Array(keys)] = &page[..] else {
            return Err(Trouble::Odd.into());
        };
        self.cursor = Some(cursor.clone()).filter(|cursor| cursor != b"0");
        Ok(Some(keys.iter().filter_map(|key| self.slot(key)).collect()))
    }

    fn slot(&self, key: &Value) -> Option<Slot> {
        let Value::BulkString(key) = key else {
            return None;
        };
        let digits = key.strip_prefix(&self.prefix[..])?;
        Slot::from_hex(str::from_utf8(digits).ok()?)
    }
}

/// The prefix taken literally, then the digits of a slot.
fn pattern(prefix: &[u8]) -> Vec<u8> {
    literal(prefix, &[b'?'; 2 * Slot::BYTES])
}

/// A pattern for keys that begin with this prefix, taken literally, and go on like `rest`.
pub(super) fn literal(prefix: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + rest.len());
    for byte in prefix {
        if b"*?[]\\^-".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern.extend_from_slice(rest);
    pattern
}
