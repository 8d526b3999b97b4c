//! One request on an observed route: its body is read along, its answer measured, and both together
//! say what enforcing would have done.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, request, response};
use onlyonce_core::policy::{Fate, Policy};
use onlyonce_core::{Clock as _, OnLapse, Reason, Release};

use super::ledger::{End, Meaning, Run};
use super::{ObservedRoute, Sight, locked};
use crate::body::Pieces;
use crate::buffer::Room;
use crate::layer::Settings;
use crate::request::{self as reading, Covered, Sighted};
use crate::service::is_opt_out;
use crate::{grpc, headers};

/// One request and its answer.
pub(crate) struct Exchange {
    route: ObservedRoute,
    settings: Arc<Settings>,
    state: Mutex<State>,
}

struct State {
    request: Request,
    answer: Option<Answer>,
    /// How it ended, as soon as that is known.
    end: Option<Ending>,
}

/// What is known of the request.
enum Request {
    Reading(Box<Read>),
    Seen(Seen),
    /// There is nothing more to find out.
    Done,
}

/// A request whose body is still on its way.
struct Read {
    parts: request::Parts,
    covered: Covered,
    copy: Pieces,
    room: Room,
}

/// A request whose end matters.
struct Seen {
    sight: Sight,
    run: Option<Run>,
    keep_for: Duration,
    key: String,
}

/// What is known of the answer.
struct Answer {
    /// As HTTP says it, before gRPC is heard.
    code: StatusCode,
    headers: HeaderMap,
    status: u16,
    bytes: usize,
    trailer_bytes: usize,
}

/// How an exchange ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    NotRun,
    Ran(End),
}

impl Exchange {
    /// A covered request, before anything of its body was read.
    pub(crate) fn begin(
        route: &ObservedRoute,
        settings: &Arc<Settings>,
        parts: &request::Parts,
        covered: Covered,
    ) -> Arc<Self> {
        let read = Box::new(Read {
            parts: parts.clone(),
            covered,
            copy: Pieces::default(),
            room: Room::within(Some(route.copies())),
        });
        Arc::new(Self {
            route: route.clone(),
            settings: Arc::clone(settings),
            state: Mutex::new(State {
                request: Request::Reading(read),
                answer: None,
                end: None,
            }),
        })
    }

    fn policy(&self) -> &Policy {
        &self.settings.policy
    }

    /// The request's body has at least so many bytes.
    pub(super) fn expects(&self, bytes: u64) {
        if bytes > self.policy().limits.request_bytes_max as u64 {
            self.too_large();
        }
    }

    /// Some of the request's body passes.
    pub(super) fn requested(&self, data: &Bytes) {
        let mut state = locked(&self.state);
        let Request::Reading(read) = &mut state.request else {
            return;
        };
        let has_room = read.room.take(data.len());
        let bytes = read.copy.len().saturating_add(data.len());
        if bytes > self.policy().limits.request_bytes_max {
            drop(state);
            self.too_large();
        } else if has_room {
            read.copy.push(data.clone());
        } else {
            drop(state);
            self.request_left();
        }
    }

    /// All of the request's body has passed.
    pub(super) fn request_ended(&self) {
        let mut state = locked(&self.state);
        if let Some(read) = state.take_read() {
            if let Some(seen) = self.look(*read) {
                state.request = Request::Seen(seen);
            }
            self.settle(&mut state);
        }
    }

    fn too_large(&self) {
        let bound = format!("at most {} bytes", self.policy().limits.request_bytes_max);
        self.would_refuse(Reason::RequestTooLarge, Some(&bound));
    }

    /// The request's body broke off.
    pub(super) fn request_broke(&self) {
        self.would_refuse(Reason::RequestUnreadable, None);
    }

    fn would_refuse(&self, reason: Reason, detail: Option<&str>) {
        if locked(&self.state).take_read().is_some() {
            self.route.saw(Sight::Refused(reason), None, detail);
        }
    }

    /// Nobody reads on.
    pub(super) fn request_left(&self) {
        if locked(&self.state).take_read().is_some() {
            self.route.saw(Sight::Unseen, None, None);
        }
    }

    /// What enforcing would have made of a request; more of it, if its end matters.
    fn look(&self, read: Read) -> Option<Seen> {
        let body = read.copy.into_bytes();
        let sighted = reading::sighted(&read.parts, &read.covered, &body, &self.settings);
        let key = match sighted {
            Sighted::Keyed(key) => key,
            Sighted::Unkeyed => {
                self.route.saw(Sight::Unkeyed, None, None);
                return None;
            }
            Sighted::Refused(refusal) => {
                let sight = Sight::Refused(refusal.reason);
                self.route.saw(sight, None, Some(&refusal.detail));
                return None;
            }
        };
        let meaning = Meaning {
            fingerprint: key.fingerprint,
            credential: key.credential,
        };
        let now = self.route.clock().now();
        let duplicate = self.policy().duplicate;
        let (sight, run) = self.route.ledger().see(key.slot, meaning, duplicate, now);
        self.route.saw(sight, Some(&key.label), None);
        if key.is_weak {
            self.route.saw(Sight::WeakKey, Some(&key.label), None);
        }
        Some(Seen {
            sight,
            run,
            keep_for: key.keep_for,
            key: key.label,
        })
    }

    /// The head of the answer is here.
    pub(crate) fn answered(&self, head: &response::Parts) {
        let answer = Answer {
            status: grpc::effective_status(head.status, &head.headers, None),
            code: head.status,
            headers: head.headers.clone(),
            bytes: 0,
            trailer_bytes: 0,
        };
        locked(&self.state).answer = Some(answer);
    }

    /// The answer's body has at least so many bytes, or so many more.
    pub(super) fn answers(&self, bytes: u64) {
        let mut state = locked(&self.state);
        if let Some(answer) = &mut state.answer
            && bytes > self.bytes_max() as u64
        {
            answer.bytes = usize::MAX;
        }
    }

    /// Some of the answer's body passes.
    pub(super) fn answered_bytes(&self, bytes: usize) {
        if let Some(answer) = &mut locked(&self.state).answer {
            answer.bytes = answer.bytes.saturating_add(bytes);
        }
    }

    /// The answer's trailers pass.
    pub(super) fn answered_trailers(&self, trailers: &HeaderMap) {
        if let Some(answer) = &mut locked(&self.state).answer {
            answer.status = grpc::effective_status(answer.code, &answer.headers, Some(trailers));
            answer.trailer_bytes += headers::bytes(trailers);
        }
    }

    /// All of the answer has passed, or as much as its caller wanted.
    pub(super) fn answer_ended(&self) {
        let mut state = locked(&self.state);
        if let Some(answer) = &state.answer {
            let end = self.end_of(answer);
            self.ended(&mut state, Ending::Ran(end));
        }
    }

    /// The answer broke off.
    pub(super) fn answer_broke(&self) {
        self.ended(&mut locked(&self.state), Ending::Ran(self.doubt()));
    }

    /// There is no answer but an error.
    pub(crate) fn failed(&self, release: Release) {
        let ending = match release {
            Release::NotRun => Ending::NotRun,
            Release::Unknown => Ending::Ran(self.doubt()),
        };
        self.ended(&mut locked(&self.state), ending);
    }

    /// The caller left before there was an answer. Enforcing would have let the request run to its
    /// end, and kept its answer.
    pub(crate) fn left(&self) {
        let mut state = locked(&self.state);
        if state.answer.is_none() {
            self.ended(&mut state, Ending::Ran(End::Stored));
        }
    }

    fn ended(&self, state: &mut State, ending: Ending) {
        if state.end.is_none() {
            state.end = Some(ending);
            self.settle(state);
        }
    }

    /// What an unknown outcome leaves.
    fn doubt(&self) -> End {
        match self.policy().on_lapse {
            OnLapse::Hold => End::InDoubt,
            OnLapse::Rerun => End::Lapsed,
        }
    }

    fn bytes_max(&self) -> usize {
        let of_store = self.settings.engine.store().response_bytes_max();
        let own = self.policy().limits.response_bytes_max;
        of_store.map_or(own, |of_store| own.min(of_store))
    }

    fn end_of(&self, answer: &Answer) -> End {
        let policy = self.policy();
        if is_opt_out(&answer.headers, policy) {
            return End::Released;
        }
        match policy.stored.fate(answer.status, policy.on_lapse) {
            Fate::Released => End::Released,
            Fate::InDoubt => End::InDoubt,
            Fate::Stored => {
                let bytes = headers::bytes(&headers::storable(&answer.headers, &policy.http));
                let head_bytes = bytes + answer.trailer_bytes;
                let is_over =
                    answer.bytes > self.bytes_max() || head_bytes > policy.limits.header_bytes_max;
                if is_over { End::TooLarge } else { End::Stored }
            }
        }
    }

    /// Notes what came of the request, once both that and what it asked for are known.
    fn settle(&self, state: &mut State) {
        let (Request::Seen(seen), Some(ending)) = (&state.request, state.end) else {
            return;
        };
        if let Some(run) = seen.run {
            let end = match ending {
                Ending::NotRun => End::Released,
                Ending::Ran(end) => end,
            };
            let until = self.route.clock().now().saturating_add(seen.keep_for);
            self.route.ledger().end(run, end, until);
            if end == End::TooLarge {
                self.route.saw(Sight::AnswerTooLarge, Some(&seen.key), None);
            }
        } else if seen.sight.is_kept_from_running() && ending != Ending::NotRun {
            self.route.saw(Sight::RanAgain, Some(&seen.key), None);
        }
        state.request = Request::Done;
    }
}

impl State {
    /// The request as far as it was read, unless that is over.
    fn take_read(&mut self) -> Option<Box<Read>> {
        match std::mem::replace(&mut self.request, Request::Done) {
            Request::Reading(read) => Some(read),
            other @ (Request::Seen(_) | Request::Done) => {
                self.request = other;
                None
            }
        }
    }
}
