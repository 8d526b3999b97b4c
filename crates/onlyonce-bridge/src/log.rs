//! The log of the engine and its stores, for the host's own logging. Lines wait in a bounded queue
//! until a thread of the host takes them, or the host drains them: our threads never call the host.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::mem;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use arc_swap::ArcSwapOption;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// Lines that wait at most; what comes then is counted and dropped.
const LINES_MAX: usize = 4096;

/// Where lines go now. After a fork the child has a queue of its own: a lock that another thread
/// held while the process forked is never given back.
static QUEUE: LazyLock<ArcSwapOption<LogQueue>> = LazyLock::new(ArcSwapOption::empty);

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For debugging.
    Debug,
    /// Worth knowing.
    Info,
    /// Worth a look.
    Warning,
    /// Something is wrong.
    Error,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How bad it is.
    pub severity: Severity,
    /// What happened.
    pub text: String,
}

/// Lines on their way to the host.
pub struct LogQueue {
    state: Mutex<State>,
    changed: Condvar,
    at_least: Severity,
}

#[derive(Default)]
struct State {
    lines: VecDeque<LogLine>,
    dropped: usize,
    is_closed: bool,
    waker: Option<Waker>,
}

impl State {
    fn taken(&mut self) -> Vec<LogLine> {
        let mut lines: Vec<_> = self.lines.drain(..).collect();
        let dropped = mem::take(&mut self.dropped);
        if dropped > 0 {
            lines.push(LogLine {
                severity: Severity::Warning,
                text: format!("{dropped} lines were dropped: too many at once"),
            });
        }
        lines
    }
}

/// Sends lines of at least this severity to a new queue, and none to an earlier one.
pub fn log_to(at_least: Severity) -> Arc<LogQueue> {
    let queue = Arc::new(LogQueue {
        state: Mutex::default(),
        changed: Condvar::new(),
        at_least,
    });
    QUEUE.store(Some(Arc::clone(&queue)));
    let subscriber = tracing_subscriber::registry().with(ToQueue);
    // There is one already from the second time on, and it looks for the queue each time.
    drop(tracing::subscriber::set_global_default(subscriber));
    tracing::callsite::rebuild_interest_cache();
    queue
}

impl LogQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, line: LogLine) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        if state.lines.len() == LINES_MAX {
            state.dropped += 1;
            return;
        }
        state.lines.push_back(line);
        let waker = state.waker.clone();
        drop(state);
        self.changed.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for lines and takes them all; nothing once the queue is closed and empty.
    pub fn take(&self) -> Option<Vec<LogLine>> {
        let mut state = self.lock();
        while state.lines.is_empty() && !state.is_closed {
            let changed = self.changed.wait(state);
            state = changed.unwrap_or_else(PoisonError::into_inner);
        }
        let lines = state.taken();
        (!lines.is_empty()).then_some(lines)
    }

    /// Wakes `waker` for each line from now on, and for those that are there.
    pub fn wakes(&self, waker: Waker) {
        self.lock().waker = Some(waker.clone());
        waker.wake();
    }

    /// Takes the lines that are there.
    pub fn drain(&self) -> Vec<LogLine> {
        self.lock().taken()
    }

    /// Takes no more lines, and ends [`take`](Self::take) once it has given what there is.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

struct ToQueue;

fn severity(level: Level) -> Severity {
    match level {
        Level::ERROR => Severity::Error,
        Level::WARN => Severity::Warning,
        Level::INFO => Severity::Info,
        Level::DEBUG | Level::TRACE => Severity::Debug,
    }
}

impl<S: Subscriber> Layer<S> for ToQueue {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("onlyonce")
            && *metadata.level() <= Level::DEBUG
            && QUEUE
                .load()
                .as_ref()
                .is_some_and(|queue| severity(*metadata.level()) >= queue.at_least)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let line = LogLine {
            severity: severity(*event.metadata().level()),
            text: text.0,
        };
        if let Some(queue) = &*QUEUE.load() {
            queue.put(line);
        }
    }
}

/// The message, then each field as `name=value`.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match (field.name(), self.0.is_empty()) {
            ("message", true) => write!(self.0, "{value:?}"),
            ("message", false) => {
                let rest = std::mem::take(&mut self.0);
                write!(self.0, "{value:?} {rest}")
            }
            (name, true) => write!(self.0, "{name}={value:?}"),
            (name, false) => write!(self.0, " {name}={value:?}"),
        };
        written.expect("a string takes everything");
    }
}
