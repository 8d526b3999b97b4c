//! What wrappers share: the way to the operators' side of the store inside, and the one macro that
//! forwards verbs. Every wrapper denies `clippy::missing_trait_methods` on both of its impls, so that
//! a verb that is neither written nor forwarded is an error, also one that is added later.

use std::sync::{Mutex, MutexGuard, PoisonError};

use onlyonce_core::{Operate, Store, StoreError, StoreErrorKind};

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

/// Forwards verbs to the field `inner` of a wrapper, inside of its impl of `Store` or `Operate`.
///
/// `forward!(straight: renew, settled)` passes them on as they are. `forward!(around: claim, renew)`
/// calls `self.around(verb, call)`, which may call `call` more than once, for the one verb that waits
/// `self.around_wait(at_most, call)`, and for what is at hand `self.around_recall(recall)`. The
/// wrapper's module has a constant `NAME`.
macro_rules! forward {
    ($how:ident: $($verb:ident),+ $(,)?) => { $($crate::wrap::verb!($how $verb);)+ };
}

/// One forwarded verb: first what the kinds of them do, then the table of all there are. The futures
/// are what `async_trait` makes of the trait's methods, so that none is boxed twice.
macro_rules! verb {
    (@call store straight $this:ident $verb:ident $name:ident ($($arg:ident),*)) => {
        $this.inner.$name($($arg),*)
    };
    (@call store around $this:ident $verb:ident $name:ident ($($arg:ident),*)) => {
        Box::pin($this.around(::onlyonce_core::Verb::$verb, move || $this.inner.$name($($arg),*)))
    };
    (@call operate straight $this:ident $verb:ident $name:ident ($($arg:ident),*)) => {
        Box::pin(async move {
            $crate::wrap::operators(&*$this.inner, NAME)?.$name($($arg),*).await
        })
    };
    (@call operate around $this:ident $verb:ident $name:ident ($($arg:ident),*)) => {
        Box::pin(async move {
            let inside = $crate::wrap::operators(&*$this.inner, NAME)?;
            $this.around(::onlyonce_core::Verb::$verb, || inside.$name($($arg),*)).await
        })
    };

    ($how:ident claim) => { $crate::wrap::verb!(@store $how Claim claim ['life1]
        (claim: &'life1 ::onlyonce_core::Claim) -> ::onlyonce_core::Claimed); };
    ($how:ident renew) => { $crate::wrap::verb!(@store $how Renew renew ['life1]
        (lease: &'life1 ::onlyonce_core::Lease, lease_for: ::std::time::Duration)
        -> ::onlyonce_core::Renewed); };
    ($how:ident complete) => { $crate::wrap::verb!(@store $how Complete complete ['life1 'life2]
        (lease: &'life1 ::onlyonce_core::Lease,
         response: &'life2 ::std::sync::Arc<::onlyonce_core::Response>,
         keep_for: ::std::time::Duration)
        -> ::onlyonce_core::Completed); };
    ($how:ident release) => { $crate::wrap::verb!(@store $how Release release ['life1]
        (lease: &'life1 ::onlyonce_core::Lease, why: ::onlyonce_core::Release)
        -> ::onlyonce_core::Released); };
    (straight settled) => { $crate::wrap::verb!(@store straight Settled settled ['life1 'life2]
        (slot: &'life1 ::onlyonce_core::Slot, seen: &'life2 ::onlyonce_core::Token,
         at_most: ::std::time::Duration) -> ()); };
    (around settled) => {
        fn settled<'life0, 'life1, 'life2, 'async_trait>(
            &'life0 self,
            slot: &'life1 ::onlyonce_core::Slot,
            seen: &'life2 ::onlyonce_core::Token,
            at_most: ::std::time::Duration,
        ) -> ::futures_util::future::BoxFuture<'async_trait, Result<(), ::onlyonce_core::StoreError>>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            'life2: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(self.around_wait(at_most, move || self.inner.settled(slot, seen, at_most)))
        }
    };
    ($how:ident recall) => {
        fn recall(
            &self,
            slot: &::onlyonce_core::Slot,
            fingerprint: &::onlyonce_core::Fingerprint,
        ) -> Option<::onlyonce_core::Replay> {
            $crate::wrap::verb!(@recall $how self slot fingerprint)
        }
    };
    (@recall straight $this:ident $slot:ident $fingerprint:ident) => {
        $this.inner.recall($slot, $fingerprint)
    };
    (@recall around $this:ident $slot:ident $fingerprint:ident) => {
        $this.around_recall(|| $this.inner.recall($slot, $fingerprint))
    };
    ($how:ident response_bytes_max) => {
        fn response_bytes_max(&self) -> Option<usize> {
            self.inner.response_bytes_max()
        }
    };
    ($how:ident check) => {
        fn check(&self) -> Result<(), ::onlyonce_core::StoreError> {
            self.inner.check()
        }
    };
    ($how:ident operate) => {
        fn operate(&self) -> Option<&dyn ::onlyonce_core::Operate> {
            self.inner.operate().map(|_| self as &dyn ::onlyonce_core::Operate)
        }
    };

    ($how:ident get) => { $crate::wrap::verb!(@operate $how Get get ['life1]
        (slot: &'life1 ::onlyonce_core::Slot) -> Option<::onlyonce_core::Record>); };
    ($how:ident get_durable) => { $crate::wrap::verb!(@operate $how Get get_durable ['life1]
        (slot: &'life1 ::onlyonce_core::Slot) -> Option<::onlyonce_core::Record>); };
    ($how:ident list) => { $crate::wrap::verb!(@operate $how List list ['life1 'life2]
        (filter: &'life1 ::onlyonce_core::operate::Filter, page: &'life2 ::onlyonce_core::operate::Page)
        -> Vec<(::onlyonce_core::Slot, ::onlyonce_core::Record)>); };
    ($how:ident newest) => { $crate::wrap::verb!(@operate $how List newest ['life1 'life2]
        (filter: &'life1 ::onlyonce_core::operate::Filter, page: &'life2 ::onlyonce_core::operate::Newest)
        -> Vec<(::onlyonce_core::Slot, ::onlyonce_core::Record)>); };
    ($how:ident forget) => { $crate::wrap::verb!(@operate $how Forget forget ['life1]
        (slot: &'life1 ::onlyonce_core::Slot) -> bool); };
    ($how:ident extend) => { $crate::wrap::verb!(@operate $how Extend extend ['life1]
        (slot: &'life1 ::onlyonce_core::Slot, extra: ::std::time::Duration) -> bool); };
    ($how:ident resolve) => { $crate::wrap::verb!(@operate $how Resolve resolve ['life1 'life2]
        (slot: &'life1 ::onlyonce_core::Slot,
         response: &'life2 ::std::sync::Arc<::onlyonce_core::Response>,
         keep_for: ::std::time::Duration)
        -> ::onlyonce_core::operate::Resolved); };
    ($how:ident discard) => { $crate::wrap::verb!(@operate $how Resolve discard ['life1]
        (slot: &'life1 ::onlyonce_core::Slot) -> ::onlyonce_core::operate::Resolved); };
    ($how:ident sweep) => { $crate::wrap::verb!(@operate $how Sweep sweep []
        (records_max: usize) -> usize); };
    ($how:ident sweep_ended) => { $crate::wrap::verb!(@operate $how Sweep sweep_ended []
        (records_max: usize) -> ::onlyonce_core::operate::Swept); };
    ($how:ident stats) => { $crate::wrap::verb!(@operate $how Stats stats []
        () -> ::onlyonce_core::operate::Stats); };
    ($how:ident ping) => { $crate::wrap::verb!(@operate $how Ping ping [] () -> ()); };
    ($how:ident recheck) => { $crate::wrap::verb!(@operate $how Recheck recheck [] () -> ()); };
    ($how:ident count_replays) => {
        $crate::wrap::verb!(@operate $how CountReplays count_replays ['life1]
            (replays: &'life1 [(::onlyonce_core::Slot, u64)]) -> ());
    };
    ($how:ident number_replays) => {
        $crate::wrap::verb!(@operate $how CountReplays number_replays ['life1]
            (replays: &'life1 [(::onlyonce_core::Slot, u64)]) -> Vec<(::onlyonce_core::Slot, u64)>);
    };
    ($how:ident agree) => { $crate::wrap::verb!(@operate $how Agree agree ['life1 'life2]
        (name: &'life1 str, offer: &'life2 [u8]) -> Vec<u8>); };
    ($how:ident agreed) => { $crate::wrap::verb!(@operate $how Agree agreed ['life1]
        (name: &'life1 str) -> Option<Vec<u8>>); };
    ($how:ident connected) => {
        fn connected(&self) -> u64 {
            self.inner.operate().map_or(0, ::onlyonce_core::Operate::connected)
        }
    };
    ($how:ident hands_over_ended) => {
        fn hands_over_ended(&self) -> bool {
            self.inner.operate().is_some_and(::onlyonce_core::Operate::hands_over_ended)
        }
    };
    ($how:ident is_on_a_server) => {
        fn is_on_a_server(&self) -> bool {
            self.inner.operate().is_some_and(::onlyonce_core::Operate::is_on_a_server)
        }
    };
    ($how:ident connections) => {
        fn connections(&self) -> Option<::onlyonce_core::operate::Connections> {
            self.inner.operate()?.connections()
        }
    };

    (@$side:ident $how:ident $verb:ident $name:ident [$($life:lifetime)*]
        ($($arg:ident: $type:ty),*) -> $answer:ty) => {
        fn $name<'life0, $($life,)* 'async_trait>(
            &'life0 self,
            $($arg: $type),*
        ) -> ::futures_util::future::BoxFuture<'async_trait, Result<$answer, ::onlyonce_core::StoreError>>
        where
            'life0: 'async_trait,
            $($life: 'async_trait,)*
            Self: 'async_trait,
        {
            $crate::wrap::verb!(@call $side $how self $verb $name ($($arg),*))
        }
    };
}

pub(crate) use {forward, verb};
