//! Looking before a request runs again: what is asked about, and how to ask.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{request, response};
use onlyonce_core::{self as core, Execution, Finding, Policy, Reconcile};

use crate::body::Whole;
use crate::params::PathParams;
use crate::service::storable;

/// A keyed request of which an earlier attempt may have taken effect.
#[derive(Clone)]
pub struct Question {
    asked: Arc<Asked>,
    execution: Execution,
}

struct Asked {
    parts: request::Parts,
    body: Bytes,
    params: PathParams,
    policy: Arc<Policy>,
}

impl Question {
    /// The request's head, as its caller sent it.
    pub fn parts(&self) -> &request::Parts {
        &self.asked.parts
    }

    /// The request's body.
    pub fn body(&self) -> &Bytes {
        &self.asked.body
    }

    /// The value of a parameter of the layer's route, as it is in the path.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.asked.params.get(name)
    }

    /// The key, the operation's id and the attempt that asks.
    pub fn execution(&self) -> &Execution {
        &self.execution
    }

    /// The finding that it happened and was answered like this. What is not worth storing is left
    /// out; an answer over the policy's bounds ends as the marker that it ran.
    pub fn happened(&self, parts: &response::Parts, body: Bytes) -> Finding {
        happened(parts, body, &self.asked.policy)
    }
}

/// The finding that an operation under this policy happened and was answered like this: as
/// [`Question::happened`], where nobody asks.
pub fn happened(parts: &response::Parts, body: Bytes, policy: &Policy) -> Finding {
    if body.len() > policy.limits.response_bytes_max {
        return Finding::happened(core::Response::too_large());
    }
    let whole = Whole {
        data: body,
        trailers: None,
    };
    Finding::happened(storable(parts, &whole, policy))
}

/// A request's body and headers may hold secrets: only its method is shown.
impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question")
            .field("method", &self.asked.parts.method)
            .finish_non_exhaustive()
    }
}

type Look = dyn Fn(Question) -> Pin<Box<dyn Future<Output = Finding> + Send>> + Send + Sync;

/// How a layer finds out whether an earlier attempt at a request happened.
#[derive(Clone)]
pub struct Reconciler {
    look: Arc<Look>,
    within: Option<Duration>,
    after: Option<Duration>,
}

impl Reconciler {
    /// Looks like this, at most 10 seconds, and a second after an attempt was lost.
    pub fn new<L, F>(look: L) -> Self
    where
        L: Fn(Question) -> F + Send + Sync + 'static,
        F: Future<Output = Finding> + Send + 'static,
    {
        Self {
            look: Arc::new(move |question| Box::pin(look(question))),
            within: None,
            after: None,
        }
    }

    /// Takes at most this long; then it cannot tell.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.within = Some(within);
        self
    }

    /// Waits this long after an attempt was lost, because it may still be on its way.
    #[must_use]
    pub fn after(mut self, after: Duration) -> Self {
        self.after = Some(after);
        self
    }

    /// The same for one request.
    pub(crate) fn about(
        &self,
        parts: &request::Parts,
        body: &Bytes,
        params: &PathParams,
        policy: &Arc<Policy>,
    ) -> Reconcile {
        let asked = Arc::new(Asked {
            parts: parts.clone(),
            body: body.clone(),
            params: params.clone(),
            policy: Arc::clone(policy),
        });
        let look = Arc::clone(&self.look);
        let mut reconcile = Reconcile::new(move |execution| {
            let asked = Arc::clone(&asked);
            look(Question { asked, execution })
        });
        if let Some(within) = self.within {
            reconcile = reconcile.within(within);
        }
        if let Some(after) = self.after {
            reconcile = reconcile.after(after);
        }
        reconcile
    }
}
