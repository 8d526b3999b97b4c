//! What wrappers share: the names of a store's operations, the way to the operators' side of the
//! store inside, and the shape of a wrapper that does the same around every call.

use std::sync::{Mutex, MutexGuard, PoisonError};

use onlyonce_core::{Operate, Store, StoreError, StoreErrorKind};

/// What can be asked of a store: its five verbs, and what operators do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// [`Store::claim`]
    Claim,
    /// [`Store::renew`]
    Renew,
    /// [`Store::complete`]
    Complete,
    /// [`Store::release`]
    Release,
    /// [`Store::settled`]; its time is mostly waiting.
    Settled,
    /// [`Operate::get`]
    Get,
    /// [`Operate::list`]
    List,
    /// [`Operate::forget`]
    Forget,
    /// [`Operate::extend`]
    Extend,
    /// [`Operate::resolve`]
    Resolve,
    /// [`Operate::sweep`]
    Sweep,
    /// [`Operate::stats`]
    Stats,
    /// [`Operate::ping`]
    Ping,
    /// [`Operate::recheck`]
    Recheck,
    /// [`Operate::count_replays`]
    CountReplays,
    /// [`Operate::agree`]
    Agree,
}

impl Operation {
    /// Every operation, in the order of their numbers.
    pub const ALL: [Self; 16] = [
        Self::Claim,
        Self::Renew,
        Self::Complete,
        Self::Release,
        Self::Settled,
        Self::Get,
        Self::List,
        Self::Forget,
        Self::Extend,
        Self::Resolve,
        Self::Sweep,
        Self::Stats,
        Self::Ping,
        Self::Recheck,
        Self::CountReplays,
        Self::Agree,
    ];

    /// Its name, as a metric's label has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::Complete => "complete",
            Self::Release => "release",
            Self::Settled => "settled",
            Self::Get => "get",
            Self::List => "list",
            Self::Forget => "forget",
            Self::Extend => "extend",
            Self::Resolve => "resolve",
            Self::Sweep => "sweep",
            Self::Stats => "stats",
            Self::Ping => "ping",
            Self::Recheck => "recheck",
            Self::CountReplays => "count_replays",
            Self::Agree => "agree",
        }
    }
}

/// The operators' side of the store inside `wrapper`. A wrapper shows its own side only if there
/// is one inside, so that the error is for who asks regardless.
pub(crate) fn operators<'a>(
    inner: &'a dyn Store,
    wrapper: &'static str,
) -> Result<&'a dyn Operate, StoreError> {
    inner.operate().ok_or_else(|| {
        StoreError::new(wrapper, StoreErrorKind::Unavailable)
            .caused_by("the store inside has no operators' side")
    })
}

/// Locks, also after a panic elsewhere: every critical section leaves its data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a store of a wrapper that does the same around every call to its field `inner`, by its
/// methods `around(operation, call)`, for the one verb that waits `around_wait(at_most, call)`, and
/// for what is at hand `around_recall(recall)`.
/// `call` may be called again.
macro_rules! around_every_call {
    ($wrapper:ident, $name:expr) => {
        const _: () = {
            use std::sync::Arc;
            use std::time::Duration;

            use onlyonce_core::operate::{Filter, Page, Resolved, Stats};
            use onlyonce_core::{
                Claim, Claimed, Completed, Fingerprint, Lease, Operate, Record, Release, Released,
                Renewed, Replay, Response, Slot, Store, StoreError, Token, async_trait,
            };

            use $crate::wrap::{Operation, operators};

            #[async_trait]
            impl Store for $wrapper {
                async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
                    let call = || self.inner.claim(claim);
                    self.around(Operation::Claim, call).await
                }

                async fn renew(
                    &self,
                    lease: &Lease,
                    lease_for: Duration,
                ) -> Result<Renewed, StoreError> {
                    let call = || self.inner.renew(lease, lease_for);
                    self.around(Operation::Renew, call).await
                }

                async fn complete(
                    &self,
                    lease: &Lease,
                    response: &Arc<Response>,
                    keep_for: Duration,
                ) -> Result<Completed, StoreError> {
                    let call = || self.inner.complete(lease, response, keep_for);
                    self.around(Operation::Complete, call).await
                }

                async fn release(
                    &self,
                    lease: &Lease,
                    why: Release,
                ) -> Result<Released, StoreError> {
                    let call = || self.inner.release(lease, why);
                    self.around(Operation::Release, call).await
                }

                async fn settled(
                    &self,
                    slot: &Slot,
                    seen: &Token,
                    at_most: Duration,
                ) -> Result<(), StoreError> {
                    let call = || self.inner.settled(slot, seen, at_most);
                    self.around_wait(at_most, call).await
                }

                fn recall(&self, slot: &Slot, fingerprint: &Fingerprint) -> Option<Replay> {
                    self.around_recall(|| self.inner.recall(slot, fingerprint))
                }

                fn response_bytes_max(&self) -> Option<usize> {
                    self.inner.response_bytes_max()
                }

                fn operate(&self) -> Option<&dyn Operate> {
                    self.inner.operate().map(|_| self as &dyn Operate)
                }
            }

            #[async_trait]
            impl Operate for $wrapper {
                async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
                    let inside = operators(&*self.inner, $name)?;
                    self.around(Operation::Get, || inside.get(slot)).await
                }

                async fn list(
                    &self,
                    filter: &Filter,
                    page: &Page,
                ) -> Result<Vec<(Slot, Record)>, StoreError> {
                    let inside = operators(&*self.inner, $name)?;
                    let call = || inside.list(filter, page);
                    self.around(Operation::List, call).await
                }

                async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
                    let inside = operators(&*self.inner, $name)?;
                    self.around(Operation::Forget, || inside.forget(slot)).await
                }

                async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
                    let inside = operators(&*self.inner, $name)?;
                    let call = || inside.extend(slot, extra);
                    self.around(Operation::Extend, call).await
                }

                async fn resolve(
                    &self,
                    slot: &Slot,
                    response: &Arc<Response>,
                    keep_for: Duration,
                ) -> Result<Resolved, StoreError> {
                    let inside = operators(&*self.inner, $name)?;
                    let call = || inside.resolve(slot, response, keep_for);
                    self.around(Operation::Resolve, call).await
                }

                async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
                    let inside = operators(&*self.inner, $name)?;
                    let call = || inside.sweep(records_max);
                    self.around(Operation::Sweep, call).await
                }

                async fn stats(&self) -> Result<Stats, StoreError> {
                    let inside = operators(&*self.inner, $name)?;
                    self.around(Operation::Stats, || inside.stats()).await
                }

                async fn ping(&self) -> Result<(), StoreError> {
                    let inside = operators(&*self.inner, $name)?;
                    self.around(Operation::Ping, || inside.ping()).await
                }

                async fn recheck(&self) -> Result<(), StoreError> {
                    let inside = operators(&*self.inner, $name)?;
                    self.around(Operation::Recheck, || inside.recheck()).await
                }

                fn connected(&self) -> u64 {
                    self.inner.operate().map_or(0, Operate::connected)
                }

                async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
                    let inside = operators(&*self.inner, $name)?;
                    let call = || inside.count_replays(replays);
                    self.around(Operation::CountReplays, call).await
                }

                async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
                    let inside = operators(&*self.inner, $name)?;
                    let call = || inside.agree(name, offer);
                    self.around(Operation::Agree, call).await
                }

                async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
                    let inside = operators(&*self.inner, $name)?;
                    let call = || inside.agreed(name);
                    self.around(Operation::Agree, call).await
                }
            }
        };
    };
}

pub(crate) use around_every_call;
