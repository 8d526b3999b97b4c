//! How a duplicate waits: listen to a majority, look, and sleep until a server says that the claim is
//! over, or its lease is. Whoever changes the claim reaches a majority, and the two have one server
//! in common.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{join_all, select_all};
use futures_util::stream::FuturesUnordered;
use onlyonce_core::{Slot, StoreError, Token};

use crate::acceptor::Bell;
use crate::store::{QuorumStore, name};

/// Who listens looks now and then all the same: a message is sent once, and may be lost.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Who cannot listen looks more often, at first.
const POLL_MIN: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(2);
/// The first server rings before a majority has accepted: so long is it given to.
const SETTLE_MAX: Duration = Duration::from_millis(100);
const SETTLE_PAUSE: Duration = Duration::from_millis(3);

impl QuorumStore {
    /// Returns when the claim `seen` is over, or may be.
    pub(crate) async fn wait_for(&self, slot: &Slot, seen: &Token) -> Result<(), StoreError> {
        if self.lease_left(slot, seen).await?.is_none() {
            return Ok(());
        }
        let key = name(slot);
        let mut bells = self.listen(&key).await;
        let mut poll = POLL_MIN;
        while let Some(lease_left) = self.lease_left(slot, seen).await? {
            match &mut bells {
                Some(bells) => {
                    let pause = lease_left.min(LOOK_EVERY);
                    let rung = select_all(bells.iter_mut().map(|bell| bell.rung()));
                    if tokio::time::timeout(pause, rung).await.is_ok() {
                        self.let_settle(&key).await;
                        return Ok(());
                    }
                }
                None => {
                    let pause = self.proposer.jittered(poll);
                    tokio::time::sleep(lease_left.min(pause)).await;
                    poll = (poll * 2).min(POLL_MAX);
                }
            }
        }
        Ok(())
    }

    /// Listens to a majority of the servers, if that can be had.
    async fn listen(&self, key: &Arc<[u8]>) -> Option<Vec<Box<dyn Bell>>> {
        let majority = self.proposer.majority();
        let asked = self.proposer.acceptors().iter();
        let mut asked: FuturesUnordered<_> = asked.map(|acceptor| acceptor.listen(key)).collect();
        let mut bells = Vec::with_capacity(majority);
        while let Some(heard) = asked.next().await {
            match heard {
                Ok(bell) => bells.push(bell),
                Err(fault) => tracing::debug!(%fault, "a server cannot be listened to"),
            }
            if bells.len() >= majority {
                return Some(bells);
            }
        }
        None
    }

    /// Waits until a majority agrees, but not for long: then who asks next makes it agree.
    async fn let_settle(&self, key: &Arc<[u8]>) {
        let agree = async {
            while let Ok(None) = self.proposer.look(key).await {
                tokio::time::sleep(SETTLE_PAUSE).await;
            }
        };
        drop(tokio::time::timeout(SETTLE_MAX, agree).await);
    }

    /// What is left of the lease of the claim `seen`, if it still holds its slot.
    async fn lease_left(&self, slot: &Slot, seen: &Token) -> Result<Option<Duration>, StoreError> {
        self.read(slot, |register, now| {
            register.entry.lease_left_of(seen, now)
        })
        .await
    }

    /// Whether so many servers answer that something can be decided.
    pub(crate) async fn answers(&self) -> Result<(), StoreError> {
        let asked = self.proposer.acceptors().iter().map(|it| it.ping());
        let faults: Vec<_> = join_all(asked)
            .await
            .into_iter()
            .filter_map(Result::err)
            .collect();
        self.proposer.is_enough(faults)
    }
}
