//! The slot secret is agreed on for as long as the store lives. A store that lost its data has lost
//! the agreement too, and the next process to start would make a secret of its own: every key would run
//! once under each. So a running engine looks again: every second, with each sweep, and before it
//! runs anything that was claimed after a reconnect, a failure of the store, or longer than
//! [`VALID_FOR`] after it last looked. It writes back what is missing, and serves nobody while another
//! secret is there. A process that starts waits longer than that before it makes a secret.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::operate::Operate;
use crate::store::{Store, StoreError, StoreErrorKind};

use super::secret::{self, Agreed, Digest, Mark};
use super::{Inner, OpenError};

/// How often an engine looks unless told otherwise.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(1);

/// How long after a look at a server's agreement an engine still runs what it claims. Shorter than
/// [`secret::OFFER_DELAY`], by enough for clocks that run differently fast.
pub(super) const VALID_FOR: Duration = Duration::from_millis(1_250);

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
    /// When the last check that found all well was begun, in milliseconds on the engine's clock.
    looked: AtomicU64,
    clock: Arc<dyn Clock>,
    /// One check at a time, so that an old finding never replaces a newer one.
    checking: tokio::sync::Mutex<()>,
}

impl Agreement {
    /// What `agreed` says, as it was found when the store had opened so many connections.
    pub(super) async fn new(
        store: &dyn Store,
        agreed: &Agreed,
        connected: u64,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        // A moment without any look, until one has found it in its place.
        let mut looked = 0;
        let began = millis(clock.now());
        let mut is_readable = false;
        if let (Some(operate), Some((name, _))) = (store.operate(), agreed.marks.first()) {
            is_readable = operate.agreed(name).await?.is_some();
            looked = if is_readable { began } else { 0 };
        }
        Ok(Self {
            own: secret::digest(&agreed.secret),
            marks: agreed.marks.clone(),
            is_readable,
            is_broken: AtomicBool::new(false),
            doubts: AtomicU64::new(0),
            settled: AtomicU64::new(connected),
            looked: AtomicU64::new(looked),
            clock,
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

    /// Returns at once if all was well when last checked, that is not long ago, and nothing
    /// happened since; else checks. For a claim that was just granted.
    pub(super) async fn confirm(&self, store: &dyn Store) -> Result<(), StoreError> {
        match store.operate() {
            Some(operate) if !self.is_settled(operate) => {
                // Boxed: it is rare, and its state would weigh on every claim.
                Box::pin(self.look(operate, false)).await
            }
            Some(_) | None => Ok(()),
        }
    }

    fn is_settled(&self, operate: &dyn Operate) -> bool {
        self.seen(operate) == self.settled.load(Ordering::Acquire)
            && (!operate.is_on_a_server() || self.is_recent())
    }

    fn is_recent(&self) -> bool {
        let age = millis(self.clock.now()).saturating_sub(self.looked.load(Ordering::Acquire));
        age < millis(VALID_FOR)
    }

    /// Checks in any case.
    pub(super) async fn check(&self, operate: &dyn Operate) -> Result<(), StoreError> {
        self.look(operate, true).await
    }

    async fn look(&self, operate: &dyn Operate, in_any_case: bool) -> Result<(), StoreError> {
        let _checking = self.checking.lock().await;
        if !in_any_case && self.is_settled(operate) {
            // Somebody else has just looked.
            return self.refusal();
        }
        let (seen, began) = (self.seen(operate), millis(self.clock.now()));
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
        self.looked.store(began, Ordering::Release);
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

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
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
