//! Every register is written to a majority, so that it can do without a server that lost its data.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_core::StoreError;
use onlyonce_core::entry::Change;

use crate::finding::Found;
use crate::operate::{AGREED_NAME, REGISTERS_AT_ONCE, forever};
use crate::proposer::Manner;
use crate::register::SlotRegister;
use crate::store::QuorumStore;
use crate::trouble::unreadable;

/// Registers that could not be written back are tried again, as long as it helps: so often in vain.
const WRITE_BACK_TRIES_MAX: usize = 5;
/// The pause before that.
const WRITE_BACK_PAUSE: Duration = Duration::from_millis(500);

impl QuorumStore {
    /// Writes every register that any server has to a majority of those that vote, as it is: what a
    /// server that lost its data had decided with one of them is then safe without it.
    pub async fn write_all_back(&self) -> Result<usize, StoreError> {
        let mut left: Vec<Vec<u8>> = self.names().await?.into_iter().collect();
        let all = left.len();
        let mut in_vain = 0;
        loop {
            let (failed, error) = self.write_some_back(&left).await;
            let Some(error) = error else {
                return Ok(all);
            };
            in_vain = if failed.len() < left.len() {
                0
            } else {
                in_vain + 1
            };
            if in_vain >= WRITE_BACK_TRIES_MAX {
                return Err(error);
            }
            left = failed;
            tokio::time::sleep(self.proposer.jittered(WRITE_BACK_PAUSE)).await;
        }
    }

    /// Those that could not be written back, and why one of them could not.
    async fn write_some_back(&self, names: &[Vec<u8>]) -> (Vec<Vec<u8>>, Option<StoreError>) {
        let (mut failed, mut error) = (Vec::new(), None);
        for some in names.chunks(REGISTERS_AT_ONCE) {
            let written = join_all(some.iter().map(|name| self.write_back(name)));
            for (name, written) in some.iter().zip(written.await) {
                if let Err(why) = written {
                    failed.push(name.clone());
                    error = Some(why);
                }
            }
        }
        (failed, error)
    }

    async fn write_back(&self, name: &[u8]) -> Result<(), StoreError> {
        let key: Arc<[u8]> = Arc::from(name);
        if self.proposer.look(&key).await?.is_some() {
            return Ok(());
        }
        let same = |found: &Found| match name.starts_with(AGREED_NAME) {
            true => Ok(forever((), None)),
            false => SlotRegister::step(found, |_, _| ((), Change::Nothing)).map_err(unreadable),
        };
        self.proposer.run(&key, Manner::Plain, same).await
    }
}
