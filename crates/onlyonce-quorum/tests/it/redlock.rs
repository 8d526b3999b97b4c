//! Plain Redlock as a store, as it is usually built: a lock with an end on a majority, and the answer
//! written over it. Planted to be found out.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::StatusCode;
use onlyonce_core::store::Receipt;
use onlyonce_core::{
    Claim, Claimed, Completed, Lease, Record, Release, Released, Renewed, Response, Slot, State,
    Store, StoreError, StoreErrorKind, Timestamp, Token, async_trait,
};
use onlyonce_quorum::Fault;

use super::server::{Shelf, Wire, passes};

pub(super) struct Redlock {
    wires: Vec<Arc<Wire>>,
}

/// What a key holds: whose lock it is, and the answer once there is one.
const LOCKED: u8 = b'l';
const ANSWERED: u8 = b'a';

impl Redlock {
    pub(super) fn new(wires: Vec<Arc<Wire>>) -> Self {
        Self { wires }
    }

    async fn all<R: Send + 'static>(
        &self,
        step: impl Fn(&mut Shelf, Duration) -> R + Clone + Send + 'static,
    ) -> Vec<R> {
        let sent = self.wires.iter().map(|wire| {
            let step = step.clone();
            wire.send(passes, move |shelf, now| Ok::<_, Fault>(step(shelf, now)))
        });
        join_all(sent).await.into_iter().flatten().collect()
    }

    fn majority(&self) -> usize {
        self.wires.len() / 2 + 1
    }

    fn unavailable() -> StoreError {
        StoreError::new("redlock", StoreErrorKind::Unavailable)
    }

    fn record(claim: &Claim, value: &Bytes) -> Record {
        let mut token = [0; Token::BYTES];
        token.copy_from_slice(&value[1..=Token::BYTES]);
        let state = match value[0] {
            ANSWERED => {
                let body = value.slice(1 + Token::BYTES..);
                State::Done(Arc::new(Response::new(StatusCode::OK, body)))
            }
            _ => State::Pending {
                lease_left: claim.lease_for,
            },
        };
        Record {
            token: Token::from_bytes(token),
            fingerprint: claim.fingerprint,
            on_lapse: claim.on_lapse,
            attempt: 1,
            meta: Arc::clone(&claim.meta),
            created_at: Timestamp::from_millis(0),
            completed_at: None,
            expires_at: Timestamp::from_millis(0),
            keep_left: claim.keep_for,
            replays: 0,
            state,
        }
    }
}

fn value(kind: u8, token: &Token, rest: &[u8]) -> Bytes {
    [&[kind], &token.as_bytes()[..], rest].concat().into()
}

#[async_trait]
impl Store for Redlock {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let key = claim.slot.as_bytes().to_vec();
        let (lock, lease) = (value(LOCKED, &claim.token, b""), claim.lease_for);
        let told = self
            .all(move |shelf, now| {
                let found = shelf.plain.get(&key).filter(|(_, until)| *until > now);
                if let Some((found, _)) = found {
                    return Some(found.clone());
                }
                shelf.plain.insert(key.clone(), (lock.clone(), now + lease));
                None
            })
            .await;
        let free = told.iter().filter(|it| it.is_none()).count();
        if free >= self.majority() {
            let lease = claim.lease();
            return Ok(Claimed::Granted {
                lease,
                overtook: None,
            });
        }
        drop(self.release(&claim.lease(), Release::NotRun).await);
        if told.len() < self.majority() {
            return Err(Self::unavailable());
        }
        let mut found: Vec<Bytes> = told.into_iter().flatten().collect();
        found.sort_unstable();
        match found.first() {
            Some(value) => Ok(Claimed::Taken(Self::record(claim, value))),
            None => Err(Self::unavailable()),
        }
    }

    async fn renew(&self, _: &Lease, _: Duration) -> Result<Renewed, StoreError> {
        Ok(Renewed::Kept)
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let (key, token) = (lease.slot.as_bytes().to_vec(), lease.token);
        let answer = value(ANSWERED, &token, &response.body);
        let told = self
            .all(move |shelf, now| {
                let ours = |(found, _): &&(Bytes, _)| &found[1..=Token::BYTES] == token.as_bytes();
                let is_ours = shelf.plain.get(&key).filter(ours).is_some();
                if is_ours {
                    let until = now + keep_for;
                    shelf.plain.insert(key.clone(), (answer.clone(), until));
                }
                is_ours
            })
            .await;
        match told.into_iter().filter(|it| *it).count() >= self.majority() {
            true => Ok(Completed::Stored(Receipt {
                created_at: Timestamp::from_millis(0),
                completed_at: Timestamp::from_millis(0),
                expires_at: Timestamp::from_millis(0),
            })),
            false => Err(Self::unavailable()),
        }
    }

    async fn release(&self, lease: &Lease, _: Release) -> Result<Released, StoreError> {
        let (key, lock) = (
            lease.slot.as_bytes().to_vec(),
            value(LOCKED, &lease.token, b""),
        );
        self.all(move |shelf, _| {
            if shelf
                .plain
                .get(&key)
                .is_some_and(|(found, _)| *found == lock)
            {
                shelf.plain.remove(&key);
            }
        })
        .await;
        Ok(Released::Ended)
    }

    async fn settled(&self, _: &Slot, _: &Token, at_most: Duration) -> Result<(), StoreError> {
        tokio::time::sleep(at_most).await;
        Ok(())
    }
}
