//! What has become of a key, for its own caller. It is read, and nothing runs or changes.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::key::Key;
use crate::record::{Record, State};
use crate::slot::Scope;
use crate::store::{StoreError, StoreErrorKind};

use super::Engine;

/// How often a store that cannot wait for a change is asked again.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// What has become of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    /// Where it stands.
    pub state: KeyState,
    /// When the operation was first claimed, on the store's clock.
    pub since: Option<Timestamp>,
    /// Until when its record is kept.
    pub expires_at: Option<Timestamp>,
}

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The operation is running.
    Running,
    /// It has ended, and this is the status of its stored answer.
    Done(u16),
    /// It may have taken effect: its outcome is not known.
    InDoubt,
    /// Nothing is known under this key, or it is another caller's.
    Unknown,
}

impl KeyState {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done(_) => "done",
            Self::InDoubt => "in-doubt",
            Self::Unknown => "unknown",
        }
    }
}

impl Engine {
    /// What has become of `key` within `scope`, for who presents this credential. Waits at most
    /// `wait` while the operation runs.
    pub async fn status(
        &self,
        scope: &Scope,
        key: &Key,
        credential: Option<[u8; 32]>,
        wait: Duration,
    ) -> Result<KeyStatus, StoreError> {
        let began = self.now();
        let slot = self.slot(scope, key);
        let operate = self.inner.store.operate().ok_or_else(|| {
            StoreError::new("engine", StoreErrorKind::Unavailable)
                .caused_by("this store cannot be asked for one record")
        })?;
        loop {
            self.inner.agreement.refusal()?;
            let record = operate.get_durable(&slot).await?;
            // Another caller with the same key has a record that this one must not see.
            let record = record.filter(|it| it.meta.credential == credential);
            let status = record.as_ref().map_or(KeyStatus::UNKNOWN, KeyStatus::of);
            let left = wait.saturating_sub(self.now().saturating_sub(began));
            let (Some(record), KeyState::Running) = (record, status.state) else {
                return Ok(status);
            };
            if left.is_zero() || self.is_closing() {
                return Ok(status);
            }
            let at_most = left.min(match record.state {
                State::Pending { lease_left } => lease_left,
                State::Done(_) | State::Failed(_) | State::Unknown => Duration::ZERO,
            });
            self.inner
                .store
                .settled(&slot, &record.token, at_most)
                .await?;
            tokio::time::sleep(LOOK_PAUSE.min(left)).await;
        }
    }
}

impl KeyStatus {
    const UNKNOWN: Self = Self {
        state: KeyState::Unknown,
        since: None,
        expires_at: None,
    };

    fn of(record: &Record) -> Self {
        let state = match &record.state {
            State::Pending { lease_left } if !lease_left.is_zero() => KeyState::Running,
            State::Pending { .. } | State::Unknown => KeyState::InDoubt,
            State::Done(response) | State::Failed(response) => {
                KeyState::Done(response.status.as_u16())
            }
        };
        Self {
            state,
            since: Some(record.created_at),
            expires_at: Some(record.expires_at),
        }
    }
}
