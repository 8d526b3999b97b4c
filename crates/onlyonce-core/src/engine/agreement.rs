//! The slot secret is agreed on for as long as the store lives. A store that lost its data has lost
//! the agreement too, and the next process to start would make a secret of its own: every key would run
//! once under each. So a running engine looks again: every second, with each sweep, and before it
//! runs anything that was claimed after a reconnect or a failure of the store. It writes back what
//! is missing, and serves nobody while another secret is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::operate::Operate;
use crate::store::{Store, StoreError, StoreErrorKind};

use super::secret::{self, Agreed, Digest, Mark};
use super::{Inner, OpenError};

/// How often an engine looks unless told otherwise.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(1);

/// What an engine has agreed on with all others on its store, and whether that still holds. Shared
/// with the engine under the former secret.
pub(super) struct Agreement {
    own: Digest,
    marks: Vec<Mark>,
    /// The store can say what was agreed on; else it can only be offered again.
    is_readable: bool,
    /// Another secret is in force.
    is_broken: AtomicBool,
    /// How often something happened after which the store may be another one, reconnects aside.
    doubts: AtomicU64,
    /// The doubts and connections that were there before the last check that found all well.
    settled: AtomicU64,
    /// One check at a time, so that an old finding never replaces a newer one.
    checking: tokio::sync::Mutex<()>,
}

impl Agreement {
    /// What `agreed` says, as it was found when the store had opened so many connections.
    pub(super) async fn new(
        store: &dyn Store,
        agreed: &Agreed,
        connected: u64,
    ) -> Result<Self, OpenError> {
        let mut is_readable = false;
        if let (Some(operate), Some((name, _))) = (store.operate(), agreed.marks.first()) {
            is_readable = operate.agreed(name).await?.is_some();
        }
        Ok(Self {
            own: secret::digest(&agreed.secret),
            marks: agreed.marks.clone(),
            is_readable,
            is_broken: AtomicBool::new(false),
            doubts: AtomicU64::new(0),
            settled: AtomicU64::new(connected),
            checking: tokio::sync::Mutex::default(),
        })
    }

    /// Whether another secret was in force when the engine last looked.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Why nobody is served, if another secret is in force.
    pub(super) fn refusal(&self) -> Result<(), StoreError> {
        if self.is_broken() {
            return Err(broken().unsent());
        }
        Ok(())
    }

    /// The store may be another one than before: look again before anything runs.
    pub(super) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns at once unless something happened since the last check that found all well; else
    /// checks. For a claim that was just granted.
    pub(super) async fn confirm(&self, store: &dyn Store) -> Result<(), StoreError> {
        match store.operate() {
            Some(operate) if self.seen(operate) != self.settled.load(Ordering::Acquire) => {
                // Boxed: it is rare, and its state would weigh on every claim.
                Box::pin(self.look(operate, false)).await
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Checks in any case.
    pub(super) async fn check(&self, operate: &dyn Operate) -> Result<(), StoreError> {
        self.look(operate, true).await
    }

    async fn look(&self, operate: &dyn Operate, in_any_case: bool) -> Result<(), StoreError> {
        let _checking = self.checking.lock().await;
        let seen = self.seen(operate);
        if !in_any_case && seen == self.settled.load(Ordering::Acquire) {
            // Somebody else has just looked.
            return self.refusal();
        }
        let found = match self.holds(operate).await {
            Ok(()) => Ok(()),
            Err(OpenError::Store(error)) => {
                self.doubt();
                return Err(error);
            }
            Err(
                error @ (OpenError::SecretMismatch
                | OpenError::SecretUnreadable
                | OpenError::SecretRotated
                | OpenError::SecretMissing),
            ) => Err(error),
        };
        self.note(found.as_ref().err());
        if let Err(error) = found {
            return Err(broken().caused_by(error));
        }
        operate.recheck().await?;
        self.settled.store(seen, Ordering::Release);
        Ok(())
    }

    /// Whether every process on this store still finds the others' records.
    async fn holds(&self, operate: &dyn Operate) -> Result<(), OpenError> {
        let Some((first, others)) = self.marks.split_first() else {
            return Ok(());
        };
        let kept = self.put_back(operate, first).await?;
        if kept == first.1 {
            for mark in others {
                if self.put_back(operate, mark).await? != mark.1 {
                    return Err(OpenError::SecretMismatch);
                }
            }
        } else {
            // Begun anew by others, perhaps with the very secret that is ours.
            secret::find(operate, secret::read(&kept)?.0, &self.own).await?;
        }
        secret::in_force(operate, &self.own).await
    }

    /// What the store keeps under this name: ours again, if nothing was there.
    async fn put_back(
        &self,
        operate: &dyn Operate,
        (name, value): &Mark,
    ) -> Result<Vec<u8>, StoreError> {
        if let Some(kept) = operate.agreed(name).await? {
            return Ok(kept);
        }
        let kept = operate.agree(name, value).await?;
        if self.is_readable && kept == *value {
            tracing::warn!(
                target: "onlyonce",
                event = "idempotency.slot_secret.written_back",
                name,
                "the store had lost what processes agreed on, and probably records with it: it was written back"
            );
        }
        Ok(kept)
    }

    /// Notes what was found; a change is logged once.
    fn note(&self, trouble: Option<&OpenError>) {
        let was_broken = self.is_broken.swap(trouble.is_some(), Ordering::AcqRel);
        match trouble {
            Some(error) if !was_broken => tracing::error!(
                target: "onlyonce",
                event = "idempotency.slot_secret.mismatch",
                %error,
                "another slot secret is in force in the store, so that keys would run twice: nobody is served until it is ours again; restart this process to use the other one"
            ),
            None if was_broken => tracing::warn!(
                target: "onlyonce",
                event = "idempotency.slot_secret.restored",
                "the slot secret in the store is ours again: callers are served"
            ),
            Some(_) | None => {}
        }
    }

    fn seen(&self, operate: &dyn Operate) -> u64 {
        let doubts = self.doubts.load(Ordering::Acquire);
        doubts.wrapping_add(operate.connected())
    }
}

fn broken() -> StoreError {
    StoreError::new("engine", StoreErrorKind::Unsafe)
}

/// Starts looking every so often. Ends with the engine.
pub(super) fn start(inner: &Arc<Inner>, every: Duration) {
    if inner.store.operate().is_none() {
        return;
    }
    let engine = Arc::downgrade(inner);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(every).await;
            let Some(inner) = engine.upgrade() else {
                return;
            };
            if let Some(operate) = inner.store.operate()
                && let Err(error) = inner.agreement.check(operate).await
            {
                tracing::debug!(target: "onlyonce", %error, "what the store depends on was not confirmed");
            }
        }
    });
}
