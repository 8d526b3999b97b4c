//! How many bytes one server's streams hold for clients that do not take them, and what is on its way to a
//! server that does not: without a bound a slow side would fill the memory.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a message costs beside its bytes: its task, its places in tables.
const MESSAGE_COST_BYTES: usize = 1024;

pub(super) struct Budget {
    held: AtomicUsize,
    bytes_max: usize,
}

/// Bytes that count until this is dropped.
struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

/// A message that counts for as long as anybody has it: its stream, or a connection that is writing it.
pub(super) struct Kept {
    text: Box<str>,
    _held: Held,
}

/// Messages that count until they have been handled.
pub(super) struct Waiting {
    _held: Held,
}

/// What is written to a client: messages that are kept, or words of our own.
pub(super) struct Whole {
    text: String,
    /// They count until this is written.
    _of: Vec<Arc<Kept>>,
}

impl Budget {
    pub(super) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            held: AtomicUsize::new(0),
            bytes_max,
        })
    }

    /// What one stream may hold of what is no answer, and all that have ended may hold together.
    pub(super) fn share(&self) -> usize {
        self.bytes_max / 4
    }

    /// Keeps a message; nothing if the budget is used up. The message that uses it up still fits, for it may be
    /// larger than the budget.
    pub(super) fn keep(self: &Arc<Self>, text: &str) -> Option<Arc<Kept>> {
        let _held = self.hold(text.len() + MESSAGE_COST_BYTES)?;
        Some(Arc::new(Kept {
            text: text.into(),
            _held,
        }))
    }

    /// Keeps a short message of our own, though the budget is used up: each answers a request, and those are
    /// counted.
    pub(super) fn keep_own(self: &Arc<Self>, text: &str) -> Arc<Kept> {
        let bytes = text.len() + MESSAGE_COST_BYTES;
        self.held.fetch_add(bytes, Ordering::SeqCst);
        let budget = Arc::clone(self);
        Arc::new(Kept {
            text: text.into(),
            _held: Held { budget, bytes },
        })
    }

    /// Counts messages on their way; nothing if the budget is used up.
    pub(super) fn wait(self: &Arc<Self>, messages: &[String]) -> Option<Waiting> {
        let bytes = messages.iter().map(|it| it.len() + MESSAGE_COST_BYTES);
        let _held = self.hold(bytes.sum())?;
        Some(Waiting { _held })
    }

    fn hold(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let more = |held: usize| (held < self.bytes_max).then_some(held.saturating_add(bytes));
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        self.held.fetch_update(set, get, more).ok()?;
        let budget = Arc::clone(self);
        Some(Held { budget, bytes })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl Deref for Kept {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Whole {
    pub(super) fn new(text: String, of: Vec<Arc<Kept>>) -> Self {
        Self { text, _of: of }
    }

    /// The same messages in other words.
    pub(super) fn becoming(self, text: String) -> Self {
        Self { text, ..self }
    }
}

impl From<String> for Whole {
    fn from(text: String) -> Self {
        Self::new(text, Vec::new())
    }
}

impl From<Arc<Kept>> for Whole {
    fn from(kept: Arc<Kept>) -> Self {
        Self::new(kept.to_string(), vec![kept])
    }
}

impl Deref for Whole {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}
