//! The whole life of a call. A flight is polled by whoever called, and what is not over when the
//! caller goes away goes on in a task of its own: who hangs up only stops waiting, and who does not
//! costs no task. Duplicates in this process wait for the same flight.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tracing::Instrument;

use crate::event::Event;
use crate::record::{OnLapse, Replay};
use crate::refusal::{Reason, Refusal};
use crate::response::Response;
use crate::store::Lease;

use super::Engine;
use super::begin::{Claiming, Followed};
use super::call::{Answer, Call, Outcome, Verdict};
use super::execution::Execution;
use super::finish::{Held, not_stored};
use super::flight::{Flight, FlightGuard, Joined, Phase};
use super::follow::Patience;

impl Engine {
    /// Runs `work` once for this call's key, and answers every duplicate with its result.
    ///
    /// Dropping the returned future does not stop the work: what is left of it goes on in a task of
    /// its own.
    pub async fn once<W, F>(&self, call: impl Into<Arc<Call>>, work: W) -> Answer
    where
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        let work = move |execution| async move { (work(execution).await, ()) };
        self.once_returning(call, work).await.0
    }

    /// The same for work that has a value of its own beside its outcome, which is never stored: what
    /// this very caller's work returned, if it ran for this call and the store has taken its end.
    pub async fn once_returning<W, F, T>(
        &self,
        call: impl Into<Arc<Call>>,
        work: W,
    ) -> (Answer, Option<T>)
    where
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = (Outcome, T)> + Send + 'static,
        T: Send + 'static,
    {
        let call = call.into();
        match self.rotating(&call) {
            None => match self.recall(&call) {
                Some(answer) => (answer, None),
                None => self.once_here(call, work).await,
            },
            Some(before) => Box::pin(self.once_in_both(before, call, boxed(work))).await,
        }
    }

    /// The answer of a call that ran before, if the store has it at hand: most retries need no more.
    fn recall(&self, call: &Call) -> Option<Answer> {
        if self.is_closing() || !self.agrees() {
            return None;
        }
        let replay = self.inner.store.recall(&call.slot, &call.fingerprint)?;
        let answer = Answer::Replayed(replay);
        self.report(call, &answer, false);
        Some(answer)
    }

    pub(super) async fn once_here<W, F, T>(&self, call: Arc<Call>, work: W) -> (Answer, Option<T>)
    where
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = (Outcome, T)> + Send + 'static,
        T: Send + 'static,
    {
        let mut caller = Caller::new(self, &call);
        let mut patience = Patience::default();
        let guard = loop {
            match self.inner.flights.join(&call, self.clone()) {
                Joined::Lead(guard) => break (guard, None),
                Joined::Attach(flight) => {
                    // Boxed: its state would weigh on every call that leads.
                    match Box::pin(self.follow(&flight, &call, &mut patience)).await {
                        Followed::Answer(answer) => {
                            caller.answered(&answer, true);
                            return (answer, None);
                        }
                        Followed::Again => {}
                        Followed::Granted(lease, heard) => {
                            let guard = self.inner.flights.take(&call, self.clone());
                            break (guard, Some((lease, heard)));
                        }
                    }
                }
            }
        };
        let (guard, granted) = guard;
        let leading = LeaderFuture {
            flight: Arc::clone(&guard),
            call: &call,
            flying: Some(self.flight(guard, Arc::clone(&call), granted, work)),
            runtime: None,
        };
        let (answer, value) = leading.await;
        caller.answered(&answer, false);
        (answer, value)
    }

    /// Claims the slot for a caller who runs the work by hand.
    pub async fn begin(&self, call: impl Into<Arc<Call>>) -> Verdict {
        let call = call.into();
        match self.rotating(&call) {
            None => self.begin_here(call).await,
            Some(before) => Box::pin(self.begin_both(before, call)).await,
        }
    }

    pub(super) async fn begin_here(&self, call: Arc<Call>) -> Verdict {
        let mut patience = Patience::default();
        loop {
            match self.inner.flights.join(&call, self.clone()) {
                Joined::Lead(flight) => return self.begin_leading(flight, call).await,
                Joined::Attach(flight) => match self.follow(&flight, &call, &mut patience).await {
                    Followed::Answer(answer) => {
                        self.report(&call, &answer, true);
                        return verdict(answer);
                    }
                    Followed::Again => {}
                    Followed::Granted(lease, heard) => {
                        let flight = self.inner.flights.take(&call, self.clone());
                        return self.hold(flight, call, lease, heard).await;
                    }
                },
            }
        }
    }

    async fn hold(
        &self,
        flight: FlightGuard,
        call: Arc<Call>,
        lease: Lease,
        heard: Duration,
    ) -> Verdict {
        let execution = self.take_off(&call, &flight, lease, heard);
        let mut held = Held {
            engine: self.clone(),
            call,
            execution,
            flight: Some(flight),
            handed_out: false,
            within: None,
        };
        if held.looks_first()
            && let Some(flight) = &held.flight
            && let Some(answer) =
                Box::pin(self.look_first(&held.call, flight, &held.execution)).await
            && let Some(flight) = held.flight.take()
        {
            let answer = flight.end(answer);
            self.report(&held.call, &answer, false);
            return verdict(answer);
        }
        held.handed_out = true;
        Verdict::Execute(held)
    }

    async fn begin_leading(&self, flight: FlightGuard, call: Arc<Call>) -> Verdict {
        let answer = match self.claim(&call, &flight).await {
            Claiming::Granted(lease, heard) => {
                return self.hold(flight, call, lease, heard).await;
            }
            Claiming::Unprotected => {
                self.emit(&call, &Event::Unprotected);
                flight.end(Answer::Refused(Refusal::new(Reason::StoreDown)));
                return Verdict::PassThrough(Execution::unprotected(&call));
            }
            Claiming::Replay(replay) => Answer::Replayed(replay),
            Claiming::Refuse(refusal) => Answer::Refused(refusal),
        };
        let answer = flight.end(answer);
        self.report(&call, &answer, false);
        verdict(answer)
    }

    /// The whole flight: the claim, the work, what is stored of it. One allocation, whatever happens.
    fn flight<W, F, T>(
        &self,
        flight: FlightGuard,
        call: Arc<Call>,
        granted: Option<(Lease, Duration)>,
        work: W,
    ) -> BoxFuture<'static, (Answer, Option<T>)>
    where
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = (Outcome, T)> + Send + 'static,
        T: Send + 'static,
    {
        let engine = self.clone();
        let flying = async move {
            let claiming = match granted {
                Some((lease, heard)) => Claiming::Granted(lease, heard),
                None => engine.claim(&call, &flight).await,
            };
            let (execution, started) = match claiming {
                Claiming::Granted(lease, heard) => {
                    (engine.take_off(&call, &flight, lease, heard), heard)
                }
                Claiming::Unprotected => {
                    engine.emit(&call, &Event::Unprotected);
                    flight.enter(Phase::Running);
                    (Execution::unprotected(&call), engine.now())
                }
                Claiming::Replay(replay) => return (flight.end(Answer::Replayed(replay)), None),
                Claiming::Refuse(refusal) => return (flight.end(Answer::Refused(refusal)), None),
            };
            if call.looks_first(&execution) {
                let looking = Box::pin(engine.look_first(&call, &flight, &execution));
                if let Some(answer) = looking.await {
                    return (flight.end(answer), None);
                }
            }
            let running = engine.run_to_end(&call, &flight, &execution, started, work);
            let (answer, value) = running.await;
            (flight.end(answer), value)
        };
        Box::pin(flying.in_current_span())
    }

    /// Runs the work, and stores or releases what came of it.
    async fn run_to_end<W, F, T>(
        &self,
        call: &Call,
        flight: &Arc<Flight>,
        execution: &Execution,
        started: Duration,
        work: W,
    ) -> (Answer, Option<T>)
    where
        W: FnOnce(Execution) -> F,
        F: Future<Output = (Outcome, T)>,
    {
        let ended = match self.execute(call, execution, started, work).await {
            Ok((outcome, value)) => {
                let ending = self.end(call, flight, execution, outcome);
                with_value(value, flight, ending).await
            }
            Err(TimedOut) => {
                execution.may_go_on();
                match self.end(call, flight, execution, Outcome::Unknown).await {
                    Answer::Refused(_) => (Answer::Refused(timed_out(call, execution)), None),
                    overtaken @ (Answer::Ran { .. } | Answer::Replayed(_)) => (overtaken, None),
                }
            }
        };
        self.emit_ended(call, execution);
        ended
    }

    /// The claim is granted: from now on its lease is kept alive, and duplicates wait for us.
    pub(super) fn take_off(
        &self,
        call: &Arc<Call>,
        flight: &Arc<Flight>,
        lease: Lease,
        now: Duration,
    ) -> Execution {
        self.keep_alive(flight, lease.clone(), now);
        if flight.is_aside() {
            self.inner.flights.put_first(flight);
        }
        flight.enter(Phase::Running);
        Execution::new(self, call, lease, flight, now, &self.inner.clock)
    }

    /// Runs the work to its end, its panic or its deadline. After a panic it has no value.
    async fn execute<W, F, T>(
        &self,
        call: &Call,
        execution: &Execution,
        started: Duration,
        work: W,
    ) -> Result<(Outcome, Option<T>), TimedOut>
    where
        W: FnOnce(Execution) -> F,
        F: Future<Output = (Outcome, T)>,
    {
        let after = call.policy.execution_max;
        let execution = execution.clone();
        // In a block of its own, so that a panic before the first await is caught as well.
        let running = AssertUnwindSafe(async move { work(execution).await });
        let ended = tokio::time::timeout(after, running.catch_unwind()).await;
        let took = self.now().saturating_sub(started);
        match ended {
            Ok(Ok((Outcome::Finished(mut response), value))) => {
                Arc::make_mut(&mut response).took = took;
                Ok((Outcome::Finished(response), Some(value)))
            }
            Ok(Ok((outcome, value))) => Ok((outcome, Some(value))),
            Ok(Err(_panic)) => {
                self.emit(call, &Event::Panicked);
                let panicked = Response {
                    took,
                    ..Response::panicked()
                };
                Ok((Outcome::from(panicked), None))
            }
            Err(_elapsed) => {
                // Dropped half-way: what it did until then is unknown.
                self.emit(call, &Event::TimedOut { after });
                Err(TimedOut)
            }
        }
    }

    /// Says once, for each caller, what it got.
    pub(super) fn report(&self, call: &Call, answer: &Answer, attached: bool) {
        let took = self.now().saturating_sub(call.began);
        match answer {
            Answer::Ran { .. } => self.emit(call, &Event::Ran { took }),
            Answer::Replayed(replay) => {
                self.emit(call, &replayed(replay, attached, took));
                self.count_replay(call, replay, attached, took);
            }
            Answer::Refused(refusal) => {
                let (reason, original) = (refusal.reason, refusal.original.clone());
                self.emit(
                    call,
                    &Event::Refused {
                        reason,
                        original,
                        took,
                    },
                );
            }
        }
    }
}

/// A replay as it is told.
pub(super) fn replayed(replay: &Replay, attached: bool, took: Duration) -> Event {
    Event::Replayed {
        status: replay.response.status.as_u16(),
        original_at: replay.original_at.unwrap_or_default(),
        original_trace: replay.original_trace.clone(),
        attached,
        resource: replay.response.resource.as_deref().map(Into::into),
        asked: replay.asked,
        took,
    }
}

/// Whoever waits for a call's answer: told of once, also if it goes away before that.
struct Caller<'a> {
    engine: &'a Engine,
    call: &'a Call,
    is_answered: bool,
}

impl<'a> Caller<'a> {
    fn new(engine: &'a Engine, call: &'a Call) -> Self {
        Self {
            engine,
            call,
            is_answered: false,
        }
    }

    fn answered(&mut self, answer: &Answer, attached: bool) {
        self.is_answered = true;
        self.engine.report(self.call, answer, attached);
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.engine.emit(self.call, &Event::HungUp);
        }
    }
}

/// The answer, with the value of the work. A caller that was told that storing takes long gets no
/// value any more, and what goes on in the background does not keep it.
async fn with_value<T>(
    mut value: Option<T>,
    flight: &Flight,
    ending: impl Future<Output = Answer>,
) -> (Answer, Option<T>) {
    let mut ending = pin!(ending);
    let answer = poll_fn(|cx| {
        let answer = ending.as_mut().poll(cx);
        if answer.is_pending() && flight.is_stalled() {
            value = None;
        }
        answer
    });
    let answer = answer.await;
    (answer, value)
}

/// The handler passed its deadline.
struct TimedOut;

/// What is told of that. Without protection nothing is recorded, whatever the policy says.
fn timed_out(call: &Call, execution: &Execution) -> Refusal {
    let on_lapse = match execution.lease() {
        Some(_) => call.policy.on_lapse,
        None => OnLapse::Rerun,
    };
    if execution.is_reconciled() {
        let refusal = Refusal::to_be_reconciled(Reason::TimedOut);
        return refusal.retry_after(call.policy.retry_after);
    }
    let refusal = Refusal::in_doubt(Reason::TimedOut, on_lapse);
    match on_lapse {
        OnLapse::Rerun => refusal.retry_after(call.policy.retry_after),
        OnLapse::Hold => refusal,
    }
}

/// The work, boxed: flights of any work are one type, and small to move.
pub(super) type Work<T> = Box<dyn FnOnce(Execution) -> BoxFuture<'static, (Outcome, T)> + Send>;

fn boxed<W, F, T>(work: W) -> Work<T>
where
    W: FnOnce(Execution) -> F + Send + 'static,
    F: Future<Output = (Outcome, T)> + Send + 'static,
{
    Box::new(|execution| Box::pin(work(execution)))
}

/// The caller of a flight: what waits is polled along with it, and costs no task and no wake-up of
/// its own. If the caller goes away first, or is told that storing takes long, the flight goes on
/// in a task.
struct LeaderFuture<'a, T: Send + 'static> {
    flight: Arc<Flight>,
    call: &'a Call,
    flying: Option<BoxFuture<'static, (Answer, Option<T>)>>,
    /// Where that task will run; known once there is something to wait for.
    runtime: Option<Handle>,
}

impl<T: Send + 'static> Future for LeaderFuture<'_, T> {
    type Output = (Answer, Option<T>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let flying = self.flying.as_mut().expect("not polled after its end");
        if let Poll::Ready(ended) = flying.as_mut().poll(cx) {
            self.flying = None;
            return Poll::Ready(ended);
        }
        self.runtime.get_or_insert_with(Handle::current);
        if self.flight.is_stalled() {
            return Poll::Ready((Answer::Refused(not_stored(self.call)), None));
        }
        Poll::Pending
    }
}

impl<T: Send + 'static> Drop for LeaderFuture<'_, T> {
    fn drop(&mut self) {
        if let (Some(flying), Some(runtime)) = (self.flying.take(), &self.runtime) {
            runtime.spawn(flying);
        }
    }
}

fn verdict(answer: Answer) -> Verdict {
    match answer {
        Answer::Replayed(replay) => Verdict::Replay(replay),
        Answer::Refused(refusal) => Verdict::Refuse(refusal),
        Answer::Ran {
            response, receipt, ..
        } => Verdict::Replay(Replay {
            original_at: receipt.map(|receipt| receipt.created_at),
            expires_at: receipt.map(|receipt| receipt.expires_at),
            response,
            original_trace: None,
            replays: 0,
            asked: None,
        }),
    }
}
