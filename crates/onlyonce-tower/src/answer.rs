//! From the engine's answer to the caller's response: the handler's own, a replay, or a refusal.

use std::sync::Arc;

use http::{HeaderValue, Response, StatusCode, response};
use http_body::Body;
use onlyonce_core::policy::{Policy, ReplayStatus};
use onlyonce_core::store::Receipt;
use onlyonce_core::{self as core, Answer, Execution, Origin, Reason, Refusal, Replay};

use crate::body::{ResponseBody, Resumed, Whole};
use crate::envelope;
use crate::marks::{Told, mark, mark_body};

/// In the extensions of every response that is a stored or shared one, or one that was found when it
/// was looked whether an earlier attempt happened: it is not what the inner service answered to this
/// request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The trace of the request that ran: the trace's id, a dash, and the id of the span that the
    /// request came with.
    pub original_trace: Option<Arc<str>>,
}

/// In the extensions of a response whose body broke off while it was read to be stored: what follows
/// in the body is what came of it, then the error. Whether the operation took effect is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokenOff {
    /// Whether a retry with the same key may run it again.
    pub may_run_again: bool,
    /// Whether such a retry finds out first whether it happened.
    pub is_reconciled: bool,
    /// Whether its key could be recorded. Without that, a retry knows nothing of it.
    pub is_recorded: bool,
}

impl BrokenOff {
    /// Of this execution, before it is settled.
    pub(crate) fn of(execution: &Execution) -> Self {
        Self {
            may_run_again: false,
            is_reconciled: execution.is_reconciled(),
            is_recorded: execution.lease().is_some(),
        }
    }
}

/// What the inner service itself said to this very request.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly always a response, and moved twice at most"
)]
pub(crate) enum Own<B: Body, E> {
    /// A response, as far as it was read.
    Response(response::Parts, OwnBody<B>),
    /// An error, which stays untouched.
    Error(E),
}

/// The body of the inner service's own response.
pub(crate) enum OwnBody<B: Body> {
    /// All of it.
    Whole(Whole),
    /// Its start, and the rest as it comes: too large to store, or broken off.
    Resumed(Resumed<B>),
}

/// How to answer one request.
pub(crate) struct Answering<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) echo: Option<HeaderValue>,
    pub(crate) is_grpc: bool,
}

impl Answering<'_> {
    /// The response to send. An error of the inner service goes before a refusal, but what is
    /// stored, because another process took over, before the error.
    pub(crate) fn answer<B: Body, E>(
        self,
        answer: Answer,
        own: Option<Own<B, E>>,
    ) -> Result<Response<ResponseBody<B>>, E> {
        let own = match (own, &answer) {
            (Some(Own::Error(error)), Answer::Refused(_)) => return Err(error),
            (Some(Own::Error(_)) | None, _) => None,
            (Some(Own::Response(parts, body)), _) => Some((parts, body)),
        };
        Ok(match (answer, own) {
            (
                Answer::Ran {
                    response,
                    receipt,
                    as_returned,
                    ..
                },
                own,
            ) => {
                let is_found = own.is_none() && !as_returned;
                let mut response = self.ran(response, receipt, own.filter(|_| as_returned));
                if is_found {
                    let original_trace = None;
                    response
                        .extensions_mut()
                        .insert(Replayed { original_trace });
                }
                response
            }
            (Answer::Replayed(replay), _) => self.replayed(replay).map(ResponseBody::whole),
            // It broke off while it was read: what there is of it is the best answer.
            (Answer::Refused(refusal), Some((parts, OwnBody::Resumed(resumed))))
                if resumed.is_broken() =>
            {
                let mut response = Response::from_parts(parts, ResponseBody::resumed(resumed));
                if let Some(broken) = response.extensions_mut().get_mut::<BrokenOff>() {
                    broken.may_run_again = refusal.retryable == Some(true);
                }
                response
            }
            (Answer::Refused(refusal), _) => self.refused(&refusal).map(ResponseBody::whole),
        })
    }

    pub(crate) fn refused(&self, refusal: &Refusal) -> Response<Whole> {
        let told = Told {
            key: self.echo.clone(),
            ..Told::default()
        };
        envelope::refuse(refusal, self.policy, &told, self.is_grpc)
    }

    /// The first answer: the handler's own, whole, with all its headers.
    fn ran<B: Body>(
        self,
        stored: Arc<core::Response>,
        receipt: Option<Receipt>,
        own: Option<(response::Parts, OwnBody<B>)>,
    ) -> Response<ResponseBody<B>> {
        let told = Told {
            key: self.echo.clone(),
            original_at: receipt.map(|receipt| receipt.created_at),
            expires_at: receipt.map(|receipt| receipt.expires_at),
        };
        let mut response = match own {
            Some((parts, OwnBody::Whole(whole))) => {
                Response::from_parts(parts, ResponseBody::whole(whole))
            }
            Some((parts, OwnBody::Resumed(resumed))) => {
                Response::from_parts(parts, ResponseBody::resumed(resumed))
            }
            // Completed by the handler itself, or it panicked: what is stored is the answer.
            None => self.restored(stored).map(ResponseBody::whole),
        };
        mark(response.headers_mut(), &self.policy.http.first_marks, &told);
        response
    }

    fn replayed(self, replay: Replay) -> Response<Whole> {
        let rules = &self.policy.http;
        let told = Told {
            key: self.echo.clone(),
            original_at: replay.original_at,
            expires_at: replay.expires_at,
        };
        let mut response = self.restored(replay.response);
        if rules.replay_status == ReplayStatus::Ok
            && response.status().is_success()
            && response.status() != StatusCode::NO_CONTENT
            && !self.is_grpc
        {
            *response.status_mut() = StatusCode::OK;
        }
        // What was shared but not stored was not "already processed".
        if let Some(marks) = rules
            .body_marks
            .as_ref()
            .filter(|_| replay.expires_at.is_some())
        {
            let body = response.body().data.clone();
            response.body_mut().data = mark_body(response.headers_mut(), &body, marks, &told);
        }
        mark(response.headers_mut(), &rules.replay_marks, &told);
        response.extensions_mut().insert(Replayed {
            original_trace: replay.original_trace,
        });
        response
    }

    /// A stored response as it was, or, for a marker, in the policy's words.
    fn restored(&self, stored: Arc<core::Response>) -> Response<Whole> {
        let reason = match stored.origin {
            Origin::Handler => {
                // Nobody else has it, unless duplicates share it.
                let stored = Arc::unwrap_or_clone(stored);
                let mut response = Response::new(Whole {
                    data: stored.body,
                    trailers: stored.trailers,
                });
                *response.status_mut() = stored.status;
                *response.headers_mut() = stored.headers;
                return response;
            }
            Origin::Panicked => Reason::Panicked,
            Origin::TooLarge => Reason::ResponseTooLarge,
        };
        self.refused(&Refusal::new(reason))
    }
}
