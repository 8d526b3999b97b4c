//! An engine as it is run in production: its store measured and guarded by a circuit breaker, and
//! everything it does told to metrics, log, audit trail, hot keys and watchers. The gateway and the
//! services of `onlyonce demo` are built by [`Setup`]; a service with the library can be as well.
//!
//! ```
//! use std::sync::Arc;
//! use onlyonce_core::MemoryStore;
//! use onlyonce_observe::Setup;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let setup = Setup::new("memory", Arc::new(MemoryStore::new()));
//! let observed = setup.open(|engine| engine.instance("web-1")).await.unwrap();
//!
//! let pay = observed.engine.job("pay");
//! pay.run("order-7", "7 EUR", async || Ok::<_, String>(7)).await.unwrap();
//!
//! let page = observed.observers.metrics().page();
//! assert!(page.contains("idempotency_lock_acquired_total"));
//! # }
//! ```

pub mod audit;
mod ends;
mod feed;
mod hot;
mod observers;
mod resume;
mod setup;
#[cfg(feature = "traces")]
pub mod traces;

pub use self::feed::{EventLine, Feed, Missed, Watcher};
pub use self::hot::{BusyCaller, HotKey, HotKeys};
pub use self::observers::Observers;
pub use self::setup::{Observed, OpenError, Setup};
pub use onlyonce_stores::guarded::BreakerState;
