//! The idea of onlyonce: run each keyed operation once, and give every retry the same answer.
//!
//! A [`Key`] within a [`Scope`] addresses a [`Slot`]; a [`Store`] grants at most one live
//! [`Lease`] for it; the [`Engine`] runs the handler under that lease and replays its stored
//! answer to every duplicate. What may differ is data in a [`Policy`].
//!
//! ```
//! use onlyonce_core::{Engine, MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let engine = Engine::open(MemoryStore::new()).await.unwrap();
//! let charge = engine.job("charge");
//!
//! let first = charge.run("order-7", &42, async || Ok::<_, String>(1)).await.unwrap();
//! let retry = charge.run("order-7", &42, async || Ok::<_, String>(2)).await.unwrap();
//!
//! assert_eq!((first.value, first.replayed), (1, false));
//! assert_eq!((retry.value, retry.replayed), (1, true));
//! # }
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod bounds;
mod capability;
pub mod clock;
pub mod codec;
pub mod derived;
pub mod engine;
pub mod entropy;
pub mod entry;
pub mod event;
#[cfg(feature = "axum")]
mod extract;
pub mod fingerprint;
pub mod key;
pub mod memory;
pub mod operate;
pub mod policy;
pub mod profile;
pub mod record;
pub mod refusal;
pub mod response;
pub mod slot;
pub mod store;

pub use async_trait::async_trait;

pub use capability::Capability;
pub use clock::{Clock, SystemClock, Timestamp};
pub use derived::DerivedId;
pub use engine::{
    Answer, Call, Engine, Execution, Finding, Held, Outcome, Reconcile, Step, StepError, Verdict,
};
pub use entropy::{Entropy, OsEntropy};
pub use event::{About, Deed, Event, Operated, Subscriber, Verb};
#[cfg(feature = "axum")]
pub use extract::NoExecution;
pub use fingerprint::{Fingerprint, FingerprintBuilder, FingerprintRule};
pub use key::{Key, KeyError, KeyRule};
pub use memory::MemoryStore;
pub use operate::Operate;
pub use policy::Policy;
pub use profile::Profile;
pub use record::{Meta, OnLapse, Record, Replay, State, Token};
pub use refusal::{Reason, Refusal};
pub use response::{Origin, Response};
pub use slot::{Scope, Slot, SlotSecret};
pub use store::{
    Claim, Claimed, Completed, Lease, Overtaken, Release, Released, Renewed, Store, StoreError,
    StoreErrorKind,
};

/// Locks, also after a panic elsewhere: every critical section leaves its data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
