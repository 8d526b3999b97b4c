//! How our threads wake an event loop without the interpreter's lock: one end of a socket pair that
//! the loop watches.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// What an event loop watches. Each waker has a number; those that were woken are drained.
#[pyclass(frozen)]
pub(crate) struct Signal {
    shared: Arc<Shared>,
    watched: UnixStream,
}

struct Shared {
    woken: Mutex<Vec<u64>>,
    bell: UnixStream,
}

struct Numbered {
    shared: Arc<Shared>,
    number: u64,
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
            // A full socket wakes the loop as well; a closed one has no loop.
            drop((&self.shared.bell).write(&[1]));
        }
    }
}

#[pymethods]
impl Signal {
    #[new]
    fn new() -> PyResult<Self> {
        let open = || {
            let (bell, watched) = UnixStream::pair()?;
            bell.set_nonblocking(true)?;
            watched.set_nonblocking(true)?;
            Ok((bell, watched))
        };
        let (bell, watched) = open().map_err(|error: std::io::Error| PyOSError::new_err(error))?;
        let woken = Mutex::default();
        Ok(Self {
            shared: Arc::new(Shared { woken, bell }),
            watched,
        })
    }

    fn fileno(&self) -> i32 {
        self.watched.as_raw_fd()
    }

    /// The numbers that were woken since the last time.
    fn drain(&self) -> Vec<u64> {
        let mut bytes = [0; 64];
        // Before the numbers are taken: a call after that rings again.
        loop {
            match (&self.watched).read(&mut bytes) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
        let mut woken = self
            .shared
            .woken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut woken)
    }
}

impl Signal {
    pub(crate) fn waker(&self, number: u64) -> Waker {
        let shared = Arc::clone(&self.shared);
        Waker::from(Arc::new(Numbered { shared, number }))
    }
}
