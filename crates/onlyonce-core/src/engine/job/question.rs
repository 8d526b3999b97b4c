//! Looking before a job or a step runs again.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::execution::Execution;
use crate::engine::reconcile::{Finding, Reconcile};
use crate::response::Response;

/// A run of a job or a step of which an earlier attempt may have taken effect.
#[derive(Clone)]
pub struct Question {
    input: Bytes,
    execution: Execution,
}

impl Question {
    /// The input of the run.
    pub fn input<I: DeserializeOwned>(&self) -> Result<I, serde_json::Error> {
        serde_json::from_slice(&self.input)
    }

    /// The key, the operation's id and the attempt that asks.
    pub fn execution(&self) -> &Execution {
        &self.execution
    }

    /// The finding that it happened, and gave this value: of the type that the job or step gives, and writable
    /// as JSON. Otherwise it cannot tell.
    pub fn happened<T: Serialize + ?Sized>(&self, value: &T) -> Finding {
        match serde_json::to_vec(value) {
            Ok(body) => Finding::happened(Response::new(StatusCode::OK, body)),
            Err(_) => Finding::CannotTell,
        }
    }
}

/// An input may hold secrets.
impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question")
            .field("input_bytes", &self.input.len())
            .finish_non_exhaustive()
    }
}

/// How a job or a step finds out.
#[derive(Clone)]
pub(in crate::engine) struct Look(
    Arc<dyn Fn(Question) -> BoxFuture<'static, Finding> + Send + Sync>,
);

impl Look {
    pub(in crate::engine) fn new<L, F>(look: L) -> Self
    where
        L: Fn(Question) -> F + Send + Sync + 'static,
        F: Future<Output = Finding> + Send + 'static,
    {
        Self(Arc::new(move |question| Box::pin(look(question))))
    }

    /// The same for one run.
    pub(in crate::engine) fn about(&self, input: &[u8]) -> Reconcile {
        let look = Arc::clone(&self.0);
        let input = Bytes::copy_from_slice(input);
        Reconcile::new(move |execution| {
            let input = input.clone();
            look(Question { input, execution })
        })
    }
}
