//! How a duplicate waits: subscribe, let the server acknowledge it, look, and sleep until somebody
//! says that the claim is over, or its lease is.

use std::time::Duration;

use ::redis::{Cmd, Value};
use onlyonce_core::{Entropy, Slot, StoreError, Token};

use super::RedisStore;
use super::ear::Listening;
use super::fleet::Ask;
use super::node::Want;
use super::trouble::{Trouble, refusal};
use super::value::{HEAD_BYTES, Head, Standing};

/// Who listens looks now and then all the same: a message is sent once, and may be lost.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Who cannot listen looks more often, at first.
const POLL_MIN: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(2);

impl RedisStore {
    /// Returns when the claim `seen` is over, or may be.
    pub(super) async fn wait_for(&self, slot: &Slot, seen: &Token) -> Result<(), StoreError> {
        let key = self.key(slot);
        let mut listening = self.listen(&key).await;
        let mut poll = POLL_MIN;
        while let Some(lease_left) = self.lease_left(&key, seen).await? {
            match &mut listening {
                Some(listening) => {
                    let pause = lease_left.min(LOOK_EVERY);
                    if tokio::time::timeout(pause, listening.rung()).await.is_ok() {
                        return Ok(());
                    }
                }
                None => {
                    tokio::time::sleep(lease_left.min(self.jittered(poll))).await;
                    poll = (poll * 2).min(POLL_MAX);
                }
            }
        }
        Ok(())
    }

    /// Listens to the slot, if that can be had.
    async fn listen(&self, key: &[u8]) -> Option<Listening> {
        let node = self.fleet.node_of(key).await.ok()?;
        match node.ear.listen(key.to_owned(), self.sharded).await {
            Ok(listening) => Some(listening),
            Err(trouble) => {
                tracing::debug!(%trouble, "cannot listen for the end of a claim; polling");
                if let Trouble::Elsewhere { .. } = trouble {
                    self.fleet.look_again().await;
                }
                None
            }
        }
    }

    /// What is left of the lease of the claim `seen`, if it still holds its slot.
    async fn lease_left(&self, key: &[u8], seen: &Token) -> Result<Option<Duration>, StoreError> {
        let mut head = Cmd::new();
        head.arg("GETRANGE").arg(key).arg(0).arg(HEAD_BYTES - 1);
        let mut pttl = Cmd::new();
        pttl.arg("PTTL").arg(key);
        let answers = self
            .fleet
            .ask(key, &Ask::new([head, pttl], Want::Plain))
            .await?;
        match &answers[..] {
            [Value::BulkString(head), Value::Int(pttl)] => {
                // What cannot be read is for a claim to tell.
                let Ok(head) = Head::read(head) else {
                    return Ok(None);
                };
                let held = head.standing == Standing::Pending && head.token == *seen;
                let keep_left = head.keep_left(*pttl).filter(|_| held && *pttl != -2);
                let lease_left = keep_left.map(|left| head.lease_left(left));
                Ok(lease_left.filter(|left| !left.is_zero()))
            }
            [head, _] => match refusal(head) {
                Some(trouble) if trouble.is_refusal_with("WRONGTYPE") => Ok(None),
                Some(trouble) => Err(trouble.into()),
                None => Err(Trouble::Odd.into()),
            },
            _ => Err(Trouble::Odd.into()),
        }
    }

    /// Between half of it and all of it, so that many who wait do not look all at once.
    fn jittered(&self, pause: Duration) -> Duration {
        let mut byte = [0];
        self.entropy.fill(&mut byte);
        pause / 2 + pause / 2 * u32::from(byte[0]) / 255
    }
}
