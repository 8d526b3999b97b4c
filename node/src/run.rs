//! One function under a key, as JavaScript sees it.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use napi::bindgen_prelude::*;
use napi_derive::napi;
use onlyonce_bridge::RunStep;

use crate::errors::{self, told};
use crate::execution::Execution;
use crate::signal::Signal;

/// A named kind of function.
#[napi]
pub struct Job(pub(crate) onlyonce_bridge::Job);

#[napi]
impl Job {
    /// Starts a call.
    #[napi]
    pub fn run(&self, key: String, input: String, signal: &Signal, number: u32) -> Result<Run> {
        Run::start(self.0.run(key, input), signal, number)
    }
}

/// One call.
#[napi]
pub struct Run {
    inner: Mutex<onlyonce_bridge::Run>,
    waker: Waker,
}

/// What to do next, by its `kind`: `work`, `done`, or `failed` if the call's own function threw.
#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct RunTold {
    /// Which step it is.
    pub kind: &'static str,
    /// Of `work`.
    pub work: Option<Work>,
    /// Of `work`.
    pub execution: Option<Execution>,
    /// Of `done`: JSON.
    pub value: Option<String>,
    /// Of `done`.
    pub replayed: Option<bool>,
}

impl Run {
    pub(crate) fn start(
        run: std::result::Result<onlyonce_bridge::Run, impl Display>,
        signal: &Signal,
        number: u32,
    ) -> Result<Self> {
        let run = run.map_err(|error| told("json", format!("the input: {error}")))?;
        Ok(Self {
            inner: Mutex::new(run),
            waker: signal.waker(number),
        })
    }
}

#[napi]
impl Run {
    fn lock(&self) -> MutexGuard<'_, onlyonce_bridge::Run> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next step; nothing until the number is signalled.
    #[napi]
    pub fn poll(&self) -> Result<Option<RunTold>> {
        let Poll::Ready(step) = self.lock().poll(&mut Context::from_waker(&self.waker)) else {
            return Ok(None);
        };
        let told = match step {
            RunStep::Work(work) => RunTold {
                kind: "work",
                execution: Some(Execution(work.execution().clone())),
                work: Some(Work(Mutex::new(work))),
                ..RunTold::default()
            },
            RunStep::Done(Ok(ran)) => RunTold {
                kind: "done",
                value: Some(ran.value.get().to_owned()),
                replayed: Some(ran.replayed),
                ..RunTold::default()
            },
            RunStep::Done(Err(failure)) => match errors::running(&failure) {
                Some(error) => return Err(error),
                None => RunTold {
                    kind: "failed",
                    ..RunTold::default()
                },
            },
        };
        Ok(Some(told))
    }
}

/// Takes what a function returned.
#[napi]
pub struct Work(Mutex<onlyonce_bridge::Work>);

#[napi]
impl Work {
    fn lock(&self) -> MutexGuard<'_, onlyonce_bridge::Work> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The function returned this JSON.
    #[napi]
    pub fn returned(&self, json: String) -> Result<()> {
        let taken = self.lock().returned(json);
        taken.map_err(|error| told("json", format!("the value: {error}")))
    }

    /// The function returned what JSON has no form for.
    #[napi]
    pub fn unwritable(&self, why: String) {
        self.lock().unwritable(why);
    }

    /// The function threw.
    #[napi]
    pub fn raised(&self, why: String) {
        self.lock().raised(why);
    }

    /// Signals the number when the function is past its deadline.
    #[napi]
    pub fn when_abandoned(&self, signal: &Signal, number: u32) {
        self.lock().when_abandoned(signal.waker(number));
    }
}
