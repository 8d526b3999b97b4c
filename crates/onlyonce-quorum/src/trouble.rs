//! Why a step could not be decided, told without addresses or keys.

use onlyonce_core::codec::CodecError;
use onlyonce_core::{StoreError, StoreErrorKind};
use thiserror::Error;

use crate::NAME;
use crate::acceptor::Fault;

/// Too few servers voted.
#[derive(Debug, Error)]
#[error("{voted} of {servers} servers voted, {majority} are needed: {}", said(.faults))]
pub(crate) struct Shortage {
    voted: usize,
    servers: usize,
    majority: usize,
    faults: Vec<Fault>,
}

impl Shortage {
    /// Fewer than `majority` of `servers` voted, for these reasons.
    pub(crate) fn new(servers: usize, majority: usize, faults: Vec<Fault>) -> Self {
        Self {
            voted: servers.saturating_sub(faults.len()),
            servers,
            majority,
            faults,
        }
    }

    fn kind(&self) -> StoreErrorKind {
        let is = |wanted: fn(&Fault) -> bool| self.faults.iter().any(wanted);
        if is(|fault| matches!(fault, Fault::Unsafe(_) | Fault::OtherSet(_))) {
            StoreErrorKind::Unsafe
        } else if is(|fault| matches!(fault, Fault::Full)) {
            StoreErrorKind::Full
        } else {
            StoreErrorKind::Unavailable
        }
    }
}

fn said(faults: &[Fault]) -> String {
    let said: Vec<_> = faults.iter().map(Fault::to_string).collect();
    said.join("; ")
}

/// A step that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("other processes were in the way for too long")]
pub(crate) struct Contended;

impl From<Shortage> for StoreError {
    fn from(shortage: Shortage) -> Self {
        Self::new(NAME, shortage.kind()).caused_by(shortage)
    }
}

impl From<Contended> for StoreError {
    fn from(contended: Contended) -> Self {
        Self::new(NAME, StoreErrorKind::Unavailable).caused_by(contended)
    }
}

/// A value that cannot be read.
pub(crate) fn unreadable(error: CodecError) -> StoreError {
    StoreError::new(NAME, StoreErrorKind::Corrupt).caused_by(error)
}
