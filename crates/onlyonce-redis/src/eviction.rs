//! Whether a server may throw live records away. Its policy can be changed at any time, so that it is
//! looked at when the store opens and again for as long as it is open.

use std::sync::{Arc, Mutex};

use ::redis::{Cmd, Pipeline, Value};
use onlyonce_core::{StoreError, StoreErrorKind};
use thiserror::Error;

use super::check::field;
use super::fleet::Fleet;
use super::node::Want;
use super::trouble::{Trouble, refusal};
use super::url::Eviction;
use super::{NAME, lock};

/// A server that may evict records.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "maxmemory-policy is {policy}, so Redis may throw live records away and operations run twice: \
     set it to noeviction, or accept that with eviction=warn"
)]
pub(super) struct Evicts {
    policy: String,
}

impl Evicts {
    /// What INFO tells of it. All our keys have an end, so every policy but one may evict them
    /// while they matter.
    pub(super) fn of(info: &str) -> Option<Self> {
        let policy = field(info, "maxmemory_policy").unwrap_or("noeviction");
        let is_bounded = field(info, "maxmemory").is_none_or(|bytes| bytes != "0");
        (policy != "noeviction" && is_bounded).then(|| Self {
            policy: policy.to_owned(),
        })
    }
}

/// What was last found, and what to do about it.
pub(super) struct EvictionWatch {
    wanted: Eviction,
    found: Mutex<Option<Evicts>>,
}

impl EvictionWatch {
    pub(super) fn new(wanted: Eviction, found: Option<Evicts>) -> Self {
        let watch = Self {
            wanted,
            found: Mutex::new(None),
        };
        watch.note(found);
        watch
    }

    /// Why no new key is taken, if none is.
    pub(super) fn refusal(&self) -> Option<StoreError> {
        match self.wanted {
            Eviction::Refuse => {
                let evicts = lock(&self.found).clone()?;
                Some(StoreError::new(NAME, StoreErrorKind::Unsafe).caused_by(evicts))
            }
            Eviction::Warn | Eviction::Allow => None,
        }
    }

    /// Looks at every server again.
    pub(super) async fn check(&self, fleet: &Fleet) -> Result<(), StoreError> {
        let mut command = Cmd::new();
        command.arg("INFO").arg("memory");
        let mut commands = Pipeline::new();
        commands.add_command(command);
        let commands = Arc::new(commands);
        let mut found = None;
        for master in fleet.masters().await? {
            let answers = master.ask(&commands, Want::Plain).await?;
            match answers.first() {
                Some(Value::BulkString(info)) => {
                    found = found.or(Evicts::of(&String::from_utf8_lossy(info)));
                }
                Some(odd) => return Err(refusal(odd).unwrap_or(Trouble::Odd).into()),
                None => return Err(Trouble::Odd.into()),
            }
        }
        self.note(found);
        self.refusal().map_or(Ok(()), Err)
    }

    /// A change is logged once.
    fn note(&self, found: Option<Evicts>) {
        let mut last = lock(&self.found);
        if *last == found {
            return;
        }
        match (&found, self.wanted) {
            (Some(evicts), Eviction::Refuse) => tracing::error!(
                target: "onlyonce",
                event = "idempotency.storage.evicts",
                store = NAME,
                "new keys are refused: {evicts}"
            ),
            (Some(evicts), Eviction::Warn) => tracing::warn!(
                target: "onlyonce",
                event = "idempotency.storage.evicts",
                store = NAME,
                "{evicts}"
            ),
            (_, Eviction::Allow) => {}
            (None, Eviction::Refuse | Eviction::Warn) => tracing::warn!(
                target: "onlyonce",
                event = "idempotency.storage.evicts_no_more",
                store = NAME,
                "Redis no longer evicts records; what it threw away until now is lost"
            ),
        }
        *last = found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(policy: &str, maxmemory: &str) -> String {
        format!("# Memory\r\nmaxmemory:{maxmemory}\r\nmaxmemory_policy:{policy}\r\n")
    }

    #[test]
    fn a_server_that_may_evict_is_refused() {
        for policy in ["allkeys-lru", "volatile-ttl", "volatile-random"] {
            let evicts = Evicts::of(&told(policy, "1000"));
            assert!(evicts.is_some());
            let refusing = EvictionWatch::new(Eviction::Refuse, evicts.clone());
            assert!(refusing.refusal().is_some());
            let warning = EvictionWatch::new(Eviction::Warn, evicts);
            assert!(warning.refusal().is_none());
            assert_eq!(Evicts::of(&told(policy, "0")), None);
        }
        assert_eq!(Evicts::of(&told("noeviction", "1000")), None);
    }
}
