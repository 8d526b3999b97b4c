//! Operations that belong together: done in order, all of them or none.

use onlyonce_core::fingerprint::{FingerprintBuilder, Part};
use onlyonce_core::{Fingerprint, Key};

use crate::operation::Operation;

/// Steps that are done one after the other. When one fails for good, those before it are undone by
/// their compensations, the last one first; the rest is never sent.
///
/// A step whose outcome is unknown is compensated too. A compensation that is
/// answered with 404 or 410 had nothing to undo, and counts as done.
///
/// ```
/// use onlyonce_client::{Group, Operation};
///
/// # fn main() -> Result<(), onlyonce_client::OperationError> {
/// let group = Group::new()
///     .step_or_undo(
///         Operation::new(http::Method::PUT, "https://api.example.org/users/7")?,
///         Operation::delete("https://api.example.org/users/7")?,
///     )
///     .step(Operation::post("https://api.example.org/users/7/rooms")?);
/// # let _ = group; Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Group {
    pub(super) name: Option<Key>,
    pub(super) steps: Vec<(Operation, Option<Operation>)>,
}

/// Names a group of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(super) i64);

impl GroupId {
    /// The group of this number: see [`number`](Self::number).
    pub const fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// Its number in its queue, which stays the same and is never another group's.
    pub const fn number(self) -> i64 {
        self.0
    }
}

/// How far a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupStatus {
    /// Its steps are being done.
    Running,
    /// All steps are done.
    Done,
    /// A step failed, and those before it are being undone.
    Undoing,
    /// A compensation failed for good: it is among the failed operations, to be retried or
    /// discarded.
    Stuck,
    /// A step failed, and nothing of the group is left.
    Undone,
}

impl Group {
    /// A group without steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with a name: a group of this name is queued once, as long as the success log goes
    /// back. It names the group in the queue; the steps have keys of their own.
    #[must_use]
    pub fn named(mut self, name: &Key) -> Self {
        self.name = Some(name.clone());
        self
    }

    /// The same with a step that needs no undoing.
    #[must_use]
    pub fn step(mut self, operation: Operation) -> Self {
        self.steps.push((operation, None));
        self
    }

    /// The same with a step that `undo` undoes.
    #[must_use]
    pub fn step_or_undo(mut self, operation: Operation, undo: Operation) -> Self {
        self.steps.push((operation, Some(undo)));
        self
    }
}

impl Group {
    /// All operations of it.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Operation> {
        let parts = self.steps.iter();
        parts.flat_map(|(step, undo)| std::iter::once(step).chain(undo.as_ref()))
    }

    /// What it means.
    pub(super) fn content(&self) -> Fingerprint {
        let mut content = FingerprintBuilder::new();
        for (step, undo) in &self.steps {
            content.part(Part::Operation, &step.content().to_bytes());
            if let Some(undo) = undo {
                content.part(Part::Input, &undo.content().to_bytes());
            }
        }
        content.finish()
    }
}

/// Where the compensation of a step comes in the order of its group.
pub(super) fn undo_rank(steps: i64, step: i64) -> i64 {
    2 * steps - 1 - step
}
