//! How our threads wake JavaScript: a function that may be called from any thread, which drains the
//! numbers that were woken. It does not keep the process alive.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use napi::Status;
use napi::bindgen_prelude::*;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;

type Bell = ThreadsafeFunction<(), (), (), Status, false, true>;

/// Rings when something was woken. Each waker has a number.
#[napi]
pub struct Signal(Arc<Shared>);

struct Shared {
    woken: Mutex<Vec<u32>>,
    bell: Bell,
}

struct Numbered {
    shared: Arc<Shared>,
    number: u32,
}

impl Wake for Numbered {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_first = {
            let woken = self.shared.woken.lock();
            let mut woken = woken.unwrap_or_else(PoisonError::into_inner);
            if !woken.contains(&self.number) {
                woken.push(self.number);
            }
            woken.len() == 1
        };
        if is_first {
            self.shared
                .bell
                .call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }
}

#[napi]
impl Signal {
    /// `ring` is called when numbers can be drained.
    #[napi(constructor)]
    pub fn new(ring: Function<'_, (), ()>) -> Result<Self> {
        let bell = ring
            .build_threadsafe_function::<()>()
            .callee_handled::<false>()
            .weak::<true>()
            .build()?;
        let woken = Mutex::default();
        Ok(Self(Arc::new(Shared { woken, bell })))
    }

    /// The numbers that were woken since the last time.
    #[napi]
    pub fn drain(&self) -> Vec<u32> {
        let mut woken = self.0.woken.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut woken)
    }
}

impl Signal {
    pub(crate) fn waker(&self, number: u32) -> Waker {
        let shared = Arc::clone(&self.0);
        Waker::from(Arc::new(Numbered { shared, number }))
    }
}
