//! Run each keyed operation once, and give every retry the same answer.
//!
//! A client that loses an answer sends its request again. With the same `Idempotency-Key`, the second
//! request gets the first one's stored answer instead of a second charge. Four things are enough to
//! know:
//!
//! | | |
//! |---|---|
//! | a **store** | keeps claims and answers: [`MemoryStore`], or one of [`stores`] by its URL |
//! | an [`Engine`] | claims a key in the store, runs the handler, stores its answer |
//! | a **layer** | [`IdempotencyLayer`]: the engine around an axum, hyper or tonic service |
//! | a [`Job`] | the engine around a function, for queues, webhooks and schedules |
//!
//! # A service
//!
//! With the feature `axum`:
//!
#![cfg_attr(feature = "axum", doc = "```")]
#![cfg_attr(not(feature = "axum"), doc = "```text")]
//! use axum::{Router, routing::post};
//! use onlyonce::{Engine, Execution, IdempotencyLayer, MemoryStore};
//!
//! async fn charge(execution: Execution) -> String {
//!     format!("charged, at attempt {}", execution.attempt())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::open(MemoryStore::new()).await?;
//! let app: Router = Router::new()
//!     .route("/charges", post(charge))
//!     .layer(IdempotencyLayer::new(engine));
//! # use tower::ServiceExt;
//! # for replayed in [false, true] {
//! #     let request = axum::http::Request::post("/charges").header("idempotency-key", "key-1");
//! #     let answer = app.clone().oneshot(request.body(axum::body::Body::empty())?).await?;
//! #     assert_eq!(answer.headers().contains_key("idempotent-replayed"), replayed);
//! # }
//! # Ok(()) }
//! ```
//!
//! A handler that wants to know its key, its attempt or its lease takes an [`Execution`] as an
//! argument; one that also serves requests without a key takes an `Option<Execution>`.
//!
//! # A function
//!
//! ```
//! use onlyonce::{Engine, MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::open(MemoryStore::new()).await?;
//! let mail = engine.job("send-welcome-mail");
//!
//! let first = mail.run("user-17", "a@example.org", async || Ok::<_, String>(250)).await?;
//! let again = mail.run("user-17", "a@example.org", async || Ok::<_, String>(550)).await?;
//!
//! assert_eq!((first.value, first.replayed), (250, false));
//! assert_eq!((again.value, again.replayed), (250, true));
//! # Ok(()) }
//! ```
//!
//! # A store that survives
//!
//! [`MemoryStore`] forgets with its process. The features `file`, `sqlite`, `redis`, `postgres` and
//! `mysql` each add a store that `open_store` opens by its URL, for example
//! `open_store("file:./onlyonce-data")` or `open_store("postgres://localhost/shop")`.
//!
//! # Other rules
//!
//! Everything that differs between users is data. A [`Profile`] names a set of rules (`standard`,
//! `stripe`, `ietf` and more); a [`Policy`] is the rules themselves, and any of them can be changed:
//! what to do after a crash ([`OnLapse`]), how long answers are kept, which answers are stored, how a
//! refusal looks.
//!
//! # What a caller can get instead of an answer
//!
//! A [`Refusal`] with its [`Reason`]: the key is still in use, was used for another request, or its
//! outcome is unknown. The layer turns it into an HTTP response; a job returns it in its
//! [`RunError`].
//!
//! # Where the rest is
//!
//! - [`job`], [`policy`], [`profile`], [`event`], [`store`]: the types behind the names above.
//! - [`core`]: all of the engine's crate, for those who write a store, a subscriber or another front
//!   end. It may change more often than this page.
//! - With a feature: [`tower`] (the layer's other types), [`stores`] (each store, and wrappers around
//!   any of them), [`sqlx`] (version 0.9, as the SQL stores use it).
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use onlyonce_core as core;
#[doc(inline)]
pub use onlyonce_core::engine::job::{Job, Ran, RunError};
#[doc(inline)]
pub use onlyonce_core::{
    Engine, Execution, Key, MemoryStore, OnLapse, Policy, Profile, Reason, Refusal, Response, Step,
    StepError, Store, StoreError, engine::job, event, policy, profile, store,
};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use onlyonce_stores::sql::sqlx;
#[cfg(feature = "stores")]
pub use onlyonce_stores::{self as stores, open as open_store};
#[cfg(feature = "tower")]
pub use onlyonce_tower as tower;
#[cfg(feature = "tower")]
#[doc(inline)]
pub use onlyonce_tower::{IdempotencyLayer, Principal, ScopePart};

/// The README's examples, run with the tests.
#[cfg(all(doctest, feature = "axum", feature = "file"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The guides' examples, run with the tests.
#[cfg(all(doctest, feature = "axum", feature = "file"))]
#[doc = include_str!("../tests/guides/axum.md")]
struct AxumGuide;

/// The same.
#[cfg(all(doctest, feature = "axum", feature = "file"))]
#[doc = include_str!("../tests/guides/consumers.md")]
struct ConsumersGuide;

/// The same.
#[cfg(all(doctest, feature = "axum", feature = "file"))]
#[doc = include_str!("../tests/guides/crashes.md")]
struct CrashesGuide;
