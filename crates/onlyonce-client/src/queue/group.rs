//! Operations that belong together: done in order, all of them or none.

use crate::operation::Operation;

/// Steps that are done one after the other. When one fails for good, those before it are undone by
/// their compensations, the last one first; the rest is never sent.
///
/// A step that may have run, though nobody knows, is compensated too. A compensation that is
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
    pub(super) steps: Vec<(Operation, Option<Operation>)>,
}

/// Names a group of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(super) i64);

/// How far a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Where the compensation of a step comes in the order of its group.
pub(super) fn undo_rank(steps: i64, step: i64) -> i64 {
    2 * steps - 1 - step
}
