//! What operators need of a store. None of it is on the path of a request, but for the replay
//! counts, which are flushed in batches.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;

use crate::key::Hint;
use crate::record::{Record, State};
use crate::response::Response;
use crate::slot::Slot;
use crate::store::StoreError;

mod attempt;
mod doubt;
mod ended;
mod newest;

pub use self::attempt::{AttemptId, AttemptIdError};
pub use self::doubt::{InDoubt, Settled, SettledAll, Settlement, in_doubt, settle, settle_all};
pub use self::ended::{Ended, Swept};
pub use self::newest::{Newest, NewestPage};

/// The operators' side of a store.
#[async_trait]
pub trait Operate: Send + Sync {
    /// What is in the slot, if anything live.
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError>;

    /// The same for telling a caller, to whom it is a promise: what is found is as durable as an answer
    /// that is replayed, or this is an error. [`get`](Self::get) shows what there is, also where replicas
    /// that are waited for do not have it.
    async fn get_durable(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.get(slot).await
    }

    /// One page of the live records that `filter` lets through, in the order of their slots.
    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError>;

    /// One page of the live records that `filter` lets through, the newest first: in the order of
    /// their first claims in milliseconds, and of their slots where these are the same. Unless a
    /// store knows better, it lists all its records for it.
    async fn newest(
        &self,
        filter: &Filter,
        page: &Newest,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        newest::of_all(self, filter, page).await
    }

    /// Forgets a record, whatever its state; false if there was none. The next request with its
    /// key is a new one, so forgetting a pending record may run it twice.
    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError>;

    /// Keeps a record `extra` longer; false if there was none. Of one that still runs, the answer is
    /// kept that much longer too; an attempt that takes it over begins anew.
    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError>;

    /// Gives an unknown outcome its answer: changes only a record that is unknown or lapsed. The answer
    /// is kept for `keep_for`, and at least as long as the record would have been: until then nothing
    /// runs twice, and that was promised with the claim.
    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError>;

    /// Forgets an unknown outcome: changes only a record that is unknown or lapsed, in one step, so that
    /// an answer which its holder stores meanwhile stays. The next request with its key is a new one.
    ///
    /// A store that does not have it as one step gives the record an interim answer and forgets that one:
    /// should the process end in between, retries get "try again" until the record is forgotten or ends.
    async fn discard(&self, slot: &Slot) -> Result<Resolved, StoreError> {
        doubt::discard_in_two_steps(self, slot).await
    }

    /// Drops at most `records_max` expired records; says how many it dropped.
    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError>;

    /// The same, and hands over the finished records among them, so that their ends can be told. A
    /// store that [hands them over](Self::hands_over_ended) gives each to one sweep of all
    /// processes; what it was about to give to a process that dies then, it gives to nobody.
    async fn sweep_ended(&self, records_max: usize) -> Result<Swept, StoreError> {
        let records = self.sweep(records_max).await?;
        Ok(Swept {
            records,
            ended: Vec::new(),
        })
    }

    /// Whether [`sweep_ended`](Self::sweep_ended) hands over every finished record that ends, no
    /// matter which process stored it. Where it does not, the process that stored a record tells of its end when its time
    /// is over, as long as it runs; such a store may hand over what ended while no process used it.
    fn hands_over_ended(&self) -> bool {
        false
    }

    /// How much is in the store.
    async fn stats(&self) -> Result<Stats, StoreError>;

    /// How its connections are used, where it has some.
    fn connections(&self) -> Option<Connections> {
        None
    }

    /// Whether the store answers.
    async fn ping(&self) -> Result<(), StoreError>;

    /// Checks again what the store depends on and others can change while it is open, such as
    /// settings of its server. An engine asks every second or so, and after a reconnect. What a
    /// store finds to be [unsafe](crate::store::StoreErrorKind::Unsafe) it refuses by itself from
    /// then on, and no longer once a later check finds it put right.
    async fn recheck(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// How many connections it has opened so far, where it has some. Behind a new one there may be
    /// another server, or the same one without its data: an engine that sees this number change
    /// checks what it has agreed on before it runs anything else.
    fn connected(&self) -> u64 {
        0
    }

    /// Whether processes elsewhere can use this store, and empty it, while it is open, as behind a
    /// server. A process that finds no slot secret there first waits for one that runs to write its
    /// own back, and looks at it again before it runs anything more than about a second later.
    fn is_on_a_server(&self) -> bool {
        self.connected() > 0
    }

    /// Adds replays to the counts of their records, as far as these still exist.
    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError>;

    /// The same, and says how often each record was replayed with these: exact, whoever else counts
    /// at the same time. A store that cannot tell says nothing of a record.
    async fn number_replays(
        &self,
        replays: &[(Slot, u64)],
    ) -> Result<Vec<(Slot, u64)>, StoreError> {
        self.count_replays(replays).await?;
        Ok(Vec::new())
    }

    /// Agrees on a value under `name` with everyone who uses this store: the first offer is
    /// kept, and everyone gets that one.
    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError>;

    /// What was agreed on under `name`, if anything was; offers nothing. On a store that cannot
    /// say, a slot secret cannot be rotated to its end.
    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let _ = name;
        Ok(None)
    }
}

/// Which records to list. Empty lets all through.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only in this state.
    pub state: Option<StateName>,
    /// Only of this route or job.
    pub operation: Option<String>,
    /// Only by this actor.
    pub actor: Option<String>,
    /// Only of the key that has this hint: [`Engine::hint`](crate::Engine::hint).
    pub hint: Option<Hint>,
    /// Only first claimed at least this long ago, by the store's clock.
    pub age_min: Option<Duration>,
    /// Only first claimed at most this long ago, by the store's clock.
    pub age_max: Option<Duration>,
}

impl Filter {
    /// Whether records that have their answer may pass.
    pub(crate) fn admits_finished(&self) -> bool {
        match self.state {
            None | Some(StateName::Done | StateName::Failed) => true,
            Some(StateName::Pending | StateName::Lapsed | StateName::Unknown) => false,
        }
    }

    /// Whether records without an answer may pass.
    pub(crate) fn admits_open(&self) -> bool {
        match self.state {
            None | Some(StateName::Pending | StateName::Lapsed | StateName::Unknown) => true,
            Some(StateName::Done | StateName::Failed) => false,
        }
    }

    /// Whether `record` passes.
    pub fn admits(&self, record: &Record) -> bool {
        let same = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        self.state
            .is_none_or(|state| state == StateName::of(record))
            && same(&self.operation, Some(&record.meta.operation))
            && same(&self.actor, record.meta.actor.as_deref())
            && self.hint.is_none_or(|hint| hint == record.meta.hint)
            && self.age_min.is_none_or(|least| record.age() >= least)
            && self.age_max.is_none_or(|most| record.age() <= most)
    }
}

/// A page of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Start after this slot.
    pub after: Option<Slot>,
    /// How many at most.
    pub records_max: usize,
}

/// A state's name, as people filter by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateName {
    /// Running under a live lease.
    Pending,
    /// Its holder's lease ended without a result.
    Lapsed,
    /// Finished well.
    Done,
    /// Finished badly.
    Failed,
    /// Outcome unknown.
    Unknown,
}

impl StateName {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Lapsed,
        Self::Done,
        Self::Failed,
        Self::Unknown,
    ];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Lapsed => "lapsed",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    /// The name of a record's state.
    pub fn of(record: &Record) -> Self {
        match &record.state {
            State::Pending { .. } if record.is_lapsed() => Self::Lapsed,
            State::Pending { .. } => Self::Pending,
            State::Done(_) => Self::Done,
            State::Failed(_) => Self::Failed,
            State::Unknown => Self::Unknown,
        }
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no state's name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is none of pending, lapsed, done, failed, unknown")]
pub struct StateNameError(String);

impl FromStr for StateName {
    type Err = StateNameError;

    fn from_str(text: &str) -> Result<Self, StateNameError> {
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.as_str() == text)
            .ok_or_else(|| StateNameError(text.to_owned()))
    }
}

/// What became of a resolution.
#[derive(Clone, Debug)]
pub enum Resolved {
    /// The answer is stored, or what was in doubt is discarded.
    Stored,
    /// Nothing was changed: the record is alive or finished.
    Found(Record),
    /// Nothing is there.
    Absent,
}

/// How much is in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Live records.
    pub records: u64,
    /// Of these, pending.
    pub pending: u64,
    /// Bytes they take, near enough.
    pub bytes: u64,
    /// Expired records that are still there, to be swept.
    pub expired: u64,
}

/// How a store's connections are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// How many are in use now.
    pub active: u64,
    /// How often somebody had to wait because all were.
    pub exhausted: u64,
}
