//! The kinds of faults, and which of them fit which store.

use std::fmt;
use std::ops::RangeInclusive;

use clap::ValueEnum;
use serde::Serialize;

use crate::history::Whom;
use crate::store::Kind as Store;

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// A gateway is killed (SIGKILL), and started again
    Kill,
    /// A gateway is stopped (SIGSTOP) for longer than its lease
    Pause,
    /// A blackhole route cuts a gateway off its store
    Partition,
    /// A gateway's connections to its store are closed, and refused for a while
    StoreCut,
    /// Nothing passes between a gateway and its store
    StoreStall,
    /// Replies of the store are late
    StoreSlow,
    /// Replies of the store are lost
    StoreLoss,
    /// Clients' connections are closed, and refused for a while
    ClientCut,
    /// Answers to clients are late
    ClientSlow,
    /// Answers to clients are lost
    ClientLoss,
    /// The store's server, or a master of the cluster, is killed, and started again
    StoreKill,
    /// The same, restarted in order
    StoreRestart,
    /// The same hangs (SIGSTOP)
    StoreHang,
    /// A master of Redis dies or hangs until its replica has taken over
    Failover,
    /// The store's disk is full
    DiskFull,
    /// A gateway's clock is set wrong by up to an hour while it runs
    Clock,
    /// One or two of a quorum's five servers lose their disks, and are admitted again
    DiskLoss,
    /// The clocks of one or two of a quorum's servers are set wrong by up to an hour
    StoreClock,
    /// Three or more of a quorum's servers are killed or hang: nothing may run
    MajorityLoss,
}

impl Kind {
    /// Whether it can happen to this store. A clock shift only where a server has its own clock:
    /// the file and SQLite stores go by the machine's, and documents say so.
    pub(crate) fn fits(self, store: Store) -> bool {
        let is_server = matches!(store, Store::Redis | Store::Postgres | Store::Mariadb);
        let is_group = matches!(store, Store::Sentinel | Store::Cluster);
        let is_quorum = store == Store::Quorum;
        match self {
            Self::Kill | Self::Pause | Self::ClientCut | Self::ClientSlow | Self::ClientLoss => {
                true
            }
            Self::Partition
            | Self::StoreCut
            | Self::StoreStall
            | Self::StoreSlow
            | Self::StoreLoss => is_server || is_quorum,
            Self::StoreKill | Self::StoreRestart | Self::StoreHang => {
                is_server || is_quorum || store == Store::Cluster
            }
            Self::Failover => is_group,
            Self::DiskFull => matches!(store, Store::File | Store::Sqlite),
            Self::Clock => is_server || is_group || is_quorum,
            Self::DiskLoss | Self::StoreClock | Self::MajorityLoss => is_quorum,
        }
    }

    /// Whether it happens to the store or on the way to it.
    pub(crate) fn is_of_the_store(self) -> bool {
        match self {
            Self::Kill
            | Self::Pause
            | Self::Clock
            | Self::ClientCut
            | Self::ClientSlow
            | Self::ClientLoss => false,
            Self::Partition
            | Self::StoreCut
            | Self::StoreStall
            | Self::StoreSlow
            | Self::StoreLoss
            | Self::StoreKill
            | Self::StoreRestart
            | Self::StoreHang
            | Self::Failover
            | Self::DiskFull
            | Self::DiskLoss
            | Self::StoreClock
            | Self::MajorityLoss => true,
        }
    }

    /// Who is troubled, if this gateway was chosen.
    pub(crate) fn whom(self, gateway: usize) -> Whom {
        match self {
            Self::StoreKill
            | Self::StoreRestart
            | Self::StoreHang
            | Self::Failover
            | Self::DiskFull
            | Self::DiskLoss
            | Self::StoreClock
            | Self::MajorityLoss => Whom::Store,
            Self::Kill
            | Self::Pause
            | Self::Partition
            | Self::StoreCut
            | Self::StoreStall
            | Self::StoreSlow
            | Self::StoreLoss
            | Self::ClientCut
            | Self::ClientSlow
            | Self::ClientLoss
            | Self::Clock => Whom::Gateway(gateway),
        }
    }

    /// How long it lasts, in milliseconds, with leases of this length.
    pub(crate) fn lasts(self, lease_ms: u64) -> RangeInclusive<u64> {
        match self {
            Self::Pause => lease_ms * 5 / 4..=lease_ms * 5 / 2,
            Self::Kill
            | Self::Partition
            | Self::StoreCut
            | Self::StoreStall
            | Self::StoreHang
            | Self::MajorityLoss => 100..=lease_ms * 2,
            Self::StoreSlow | Self::StoreLoss => 500..=lease_ms * 2,
            Self::ClientCut | Self::ClientSlow | Self::ClientLoss => 200..=lease_ms,
            Self::StoreKill | Self::StoreRestart | Self::Failover | Self::DiskLoss => 0..=1000,
            Self::DiskFull => 1500..=3000,
            Self::Clock | Self::StoreClock => 2000..=4000,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("fault", |value| value.get_name()))
    }
}
