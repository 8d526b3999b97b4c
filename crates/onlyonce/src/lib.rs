//! Run each keyed operation once, and give every retry the same answer.
//!
//! This crate is the front door: it re-exports [`onlyonce_core`] (keys, policies, the engine, the
//! memory store, jobs) and, with the feature `tower`, the layer for axum, hyper and tonic. Use the
//! feature `axum` with axum. The features `file`, `sqlite`, `redis`, `postgres` and `mysql` each add
//! a store that `open_store` opens by its URL.
//!
//! ```
//! use onlyonce::{Engine, MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let engine = Engine::open(MemoryStore::new()).await.unwrap();
//! let sent = engine
//!     .job("send-mail")
//!     .run("mail-1", "a@example.org", async || Ok::<_, String>(true))
//!     .await
//!     .unwrap();
//! assert!(sent.value);
//! # }
//! ```

pub use onlyonce_core::*;
#[cfg(feature = "stores")]
pub use onlyonce_stores::{self as stores, open as open_store};
#[cfg(feature = "tower")]
pub use onlyonce_tower::{self as tower, IdempotencyLayer, Principal, ScopePart};

/// The README's examples, run with the tests.
#[cfg(all(doctest, feature = "axum", feature = "file"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The guides' examples, run with the tests.
#[cfg(all(doctest, feature = "axum", feature = "file"))]
#[doc = include_str!("../../../docs/guides/axum.md")]
struct AxumGuide;

/// The same.
#[cfg(all(doctest, feature = "axum", feature = "file"))]
#[doc = include_str!("../../../docs/guides/consumers.md")]
struct ConsumersGuide;
