//! The work itself: it takes its time, and succeeds, fails, panics, does nothing or does not know.
//! No two runs say the same, so that every answer can be traced to the run that made it.

use std::panic::resume_unwind;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use onlyonce_core::policy::StoredRule;
use onlyonce_core::{Execution, Outcome, Response};

use super::log::{CallId, Ending, LogWriter, Short, What};
use super::plan::{Gives, Order, Work};

pub(crate) struct Handler {
    log: Arc<LogWriter>,
    call: CallId,
    said: String,
    work: Work,
    stored: StoredRule,
    by_hand: bool,
}

impl Handler {
    pub(crate) fn new(log: Arc<LogWriter>, call: CallId, order: &Order) -> Self {
        Self {
            log,
            call,
            said: word(order.key, order.payload, call),
            work: order.work,
            stored: order.stored(),
            by_hand: order.by_hand,
        }
    }

    pub(crate) async fn run(self, execution: Execution) -> Outcome {
        self.log.note(What::Started {
            call: self.call,
            token: execution.lease().map(|lease| Short::of(&lease.token)),
            attempt: execution.attempt(),
        });
        let mut running = Running {
            log: &self.log,
            call: self.call,
            ended: false,
        };
        tokio::time::sleep(self.work.takes).await;
        if self.work.opts_out {
            execution.do_not_store();
        }
        let (ending, outcome) = self.outcome();
        running.end(ending);
        match outcome {
            Some(outcome) => outcome,
            // Unwinds like a panic, but does not call the panic hook, which would print.
            None => resume_unwind(Box::new("the handler panicked, as planned")),
        }
    }

    /// How it ends and what it says; nothing said is a panic.
    fn outcome(&self) -> (Ending, Option<Outcome>) {
        let storable = |status| !self.work.opts_out && self.stored.stores(status);
        match self.work.gives {
            Gives::Status(status) => {
                let code = StatusCode::from_u16(status).expect("a planned status is a status");
                let response = Response::new(code, Bytes::from(self.said.clone()));
                let ending = Ending::Finished {
                    said: self.said.clone(),
                    storable: storable(status),
                };
                (ending, Some(response.into()))
            }
            Gives::NotRun => (Ending::NotRun, Some(Outcome::NotRun)),
            Gives::Panic if !self.by_hand => {
                let storable = storable(500);
                (Ending::Panicked { storable }, None)
            }
            // By hand there is nobody to catch a panic: the outcome is just as unknown.
            Gives::Unknown | Gives::Panic => (Ending::Unknown, Some(Outcome::Unknown)),
        }
    }
}

/// What the run for `call` says.
pub(crate) fn word(key: u32, payload: u8, call: CallId) -> String {
    format!("{key}/{payload}/{call}")
}

/// A handler under way.
struct Running<'a> {
    log: &'a LogWriter,
    call: CallId,
    ended: bool,
}

impl Running<'_> {
    fn end(&mut self, ending: Ending) {
        self.ended = true;
        let call = self.call;
        self.log.note(What::Ended { call, ending });
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.log.note(What::Dropped { call: self.call });
        }
    }
}
