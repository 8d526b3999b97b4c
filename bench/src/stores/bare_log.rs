//! The least a durable store must do: append what waits to a file, one fsync, answer.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use onlyonce_core::Slot;
use tokio::sync::{mpsc, oneshot};

use crate::failure::Failure;

const BATCH_MAX: usize = 1024;
/// What stands before a body: its length, its checksum, its slot.
const HEAD_BYTES: usize = 8 + Slot::BYTES;

pub(super) struct BareLog {
    queue: mpsc::UnboundedSender<Appended>,
}

struct Appended {
    slot: Slot,
    body: Vec<u8>,
    done: oneshot::Sender<()>,
}

impl BareLog {
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let mut file = File::create(path).map_err(Failure::doing("make a log"))?;
        let (queue, mut waiting) = mpsc::unbounded_channel::<Appended>();
        std::thread::spawn(move || {
            let (mut batch, mut bytes) = (Vec::new(), Vec::new());
            while waiting.blocking_recv_many(&mut batch, BATCH_MAX) > 0 {
                bytes.clear();
                for it in &batch {
                    let length = u32::try_from(it.body.len()).unwrap_or(u32::MAX);
                    bytes.extend_from_slice(&length.to_le_bytes());
                    bytes.extend_from_slice(&crc32fast::hash(&it.body).to_le_bytes());
                    bytes.extend_from_slice(it.slot.as_bytes());
                    bytes.extend_from_slice(&it.body);
                }
                file.write_all(&bytes).expect("the disk takes it");
                file.sync_data().expect("the disk keeps it");
                for it in batch.drain(..) {
                    // Whoever asked may have gone away.
                    it.done.send(()).unwrap_or_default();
                }
            }
        });
        Ok(Self { queue })
    }

    /// Appends an entry of this many bytes in all.
    pub(super) async fn append(&self, slot: &Slot, bytes: usize) {
        let (done, appended) = oneshot::channel();
        let appending = Appended {
            slot: *slot,
            body: vec![7; bytes.saturating_sub(HEAD_BYTES)],
            done,
        };
        drop(self.queue.send(appending));
        appended.await.expect("the log answers");
    }
}
