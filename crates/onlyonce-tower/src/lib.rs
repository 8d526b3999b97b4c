//! The layer that makes any `tower` HTTP service run each keyed request once.
//!
//! ```
//! use onlyonce_core::{Engine, MemoryStore};
//! use onlyonce_tower::IdempotencyLayer;
//! # use axum::{Router, routing::post};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let engine = Engine::open(MemoryStore::new()).await.unwrap();
//! let app: Router = Router::new()
//!     .route("/charge", post(async || "charged"))
//!     .layer(IdempotencyLayer::new(engine));
//! # let _ = app;
//! # }
//! ```
//!
//! Only covered requests with a key are buffered, within the policy's bounds; everything else
//! streams straight through. The inner service's error type stays what it is.

mod allowance;
mod answer;
mod body;
mod buffer;
mod envelope;
mod future;
mod grpc;
mod headers;
mod hosts;
mod layer;
mod linger;
mod marks;
pub mod observe;
mod origin;
mod params;
mod reconcile;
mod request;
pub mod scope;
mod service;
mod status;

pub use allowance::{Allowance, AllowanceRule};
pub use answer::{BrokenOff, Replayed};
pub use body::{RequestBody, ResponseBody};
pub use buffer::{BufferLimit, NotBuffered, Room};
pub use envelope::Refused;
pub use future::ResponseFuture;
pub use hosts::{Foreign, KnownHosts, same_origin};
pub use layer::{ClassifyError, ErrorsAreUnknown, IdempotencyLayer, RouteError};
pub use linger::{Linger, waits_for_leave};
pub use marks::{with_member, without_body_marks};
#[cfg(feature = "axum")]
pub use onlyonce_core::NoExecution;
pub use onlyonce_core::{Execution, Finding};
pub use params::PathParams;
pub use reconcile::{Question, Reconciler, happened};
pub use scope::{ClientAddress, Principal, ScopePart};
pub use service::Idempotent;
pub use status::ToldState;
