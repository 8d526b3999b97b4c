//! How much happens in a run, and how fast.

use std::time::Duration;

use super::clock::{Micros, in_micros};
use super::plan::{Plan, SECRET};

/// How much happens in a run. Calls, keys and faults are spread over the time it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// How long calls are made. What is left then takes a few leases more.
    pub lasts: Duration,
    /// Calls of all workers together.
    pub calls: u32,
    /// Calls that one worker has under way, at most.
    pub tasks: u32,
    /// Keys that come up: each is called most while it is new, by all workers together.
    pub keys: u32,
    /// Leases that claims ask for, in milliseconds.
    pub leases: Vec<u64>,
    /// Faults, at most.
    pub faults: u32,
}

impl Load {
    /// For stores and processes as they are: some ten seconds, leases of one to two.
    pub fn usual() -> Self {
        Self {
            lasts: Duration::from_secs(9),
            calls: 4000,
            tasks: 48,
            keys: 500,
            leases: vec![1000, 1500, 2000],
            faults: 12,
        }
    }

    /// For engines in one process: two seconds, leases of a fraction of one.
    pub fn brief() -> Self {
        Self {
            lasts: Duration::from_secs(2),
            calls: 2000,
            tasks: 48,
            keys: 240,
            leases: vec![200, 300, 400],
            faults: 10,
        }
    }

    /// The longest lease.
    pub fn lease_max(&self) -> u64 {
        self.leases.iter().copied().max().unwrap_or(1)
    }

    /// The plan of a worker's first life in a run of `workers` that begins at `began`.
    pub(crate) fn plan(
        &self,
        run: &str,
        seed: u64,
        node: u16,
        workers: u16,
        began: Micros,
    ) -> Plan {
        Plan {
            run: run.to_owned(),
            secret: SECRET,
            seed,
            node,
            life: 0,
            began,
            until: began + in_micros(self.lasts),
            calls: self.calls / u32::from(workers.max(1)),
            tasks: self.tasks,
            keys: self.keys,
            leases: self.leases.clone(),
            sweep: false,
        }
    }
}
