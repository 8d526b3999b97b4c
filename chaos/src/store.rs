//! The stores: a server, or a folder on a disk, of a round's own.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{
    MariaDb, MariaDbOptions, Postgres, PostgresOptions, Redis, RedisCluster, RedisClusterOptions,
    RedisOptions, RedisSentinel, Server,
};
use serde::Serialize;

use crate::disk::Disk;
use crate::failure::Failure;
use crate::quorum::{self, Quorum};

/// A node of a cluster that is silent for longer is replaced: one that is just restarted is not, and
/// comes back with what it had on its disk.
const RESTART_MAX: Duration = Duration::from_secs(3);

/// The kinds of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A folder; one gateway
    File,
    /// A SQLite file
    Sqlite,
    /// Redis, synced to disk before every answer
    Redis,
    /// Redis under Sentinel; nothing is acknowledged that only the master has
    Sentinel,
    /// Redis Cluster, synced to disk; nothing is acknowledged that only a master has
    Cluster,
    /// PostgreSQL
    Postgres,
    /// MariaDB
    Mariadb,
    /// A quorum of five Redis servers, synced to disk
    Quorum,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Quorum => "quorum",
        }
    }

    /// One process owns the folder of a file store.
    pub(crate) const fn gateways(self) -> usize {
        match self {
            Self::File => 1,
            Self::Sqlite
            | Self::Redis
            | Self::Sentinel
            | Self::Cluster
            | Self::Postgres
            | Self::Mariadb
            | Self::Quorum => 2,
        }
    }

    /// How many new keys in a row a gateway must run to be back: in a cluster they must meet every
    /// shard, of which there are three.
    pub(crate) const fn probes(self) -> usize {
        match self {
            Self::Cluster => 12,
            Self::File
            | Self::Sqlite
            | Self::Redis
            | Self::Sentinel
            | Self::Postgres
            | Self::Mariadb
            | Self::Quorum => 1,
        }
    }

    /// How many servers a gateway reaches by addresses that are ours to choose.
    pub(crate) const fn addresses(self) -> usize {
        match self {
            Self::Quorum => quorum::SERVERS,
            Self::File
            | Self::Sqlite
            | Self::Redis
            | Self::Sentinel
            | Self::Cluster
            | Self::Postgres
            | Self::Mariadb => 1,
        }
    }
}

/// Any server.
pub(crate) type AnyServer = Arc<dyn Server + Send + Sync>;

/// A store that runs.
#[derive(Clone)]
pub(crate) enum Store {
    Folder(Kind, Arc<Disk>),
    Server(AnyServer),
    Sentinel(Arc<RedisSentinel>),
    Cluster(Arc<RedisCluster>),
    Quorum(Arc<Quorum>),
}

impl Store {
    /// Starts a store of this kind, on a small disk of so many bytes if it has one. Blocks.
    pub(crate) fn start(kind: Kind, disk_bytes: Option<u64>) -> Result<Self, Failure> {
        Ok(match kind {
            Kind::File | Kind::Sqlite => {
                let disk = disk_bytes.map_or_else(Disk::folder, Disk::mount)?;
                Self::Folder(kind, Arc::new(disk))
            }
            Kind::Redis => {
                let options = RedisOptions {
                    durable: true,
                    ..RedisOptions::default()
                };
                Self::Server(Arc::new(Redis::start(options)?))
            }
            Kind::Sentinel => Self::Sentinel(Arc::new(RedisSentinel::start()?)),
            Kind::Cluster => {
                let options = RedisClusterOptions {
                    node_timeout: RESTART_MAX,
                    durable: true,
                    ..RedisClusterOptions::default()
                };
                Self::Cluster(Arc::new(RedisCluster::start_with(&options)?))
            }
            Kind::Quorum => Self::Quorum(Arc::new(Quorum::start()?)),
            Kind::Postgres => Self::Server(Arc::new(Postgres::start(PostgresOptions::default())?)),
            Kind::Mariadb => Self::Server(Arc::new(MariaDb::start(MariaDbOptions::default())?)),
        })
    }

    /// Where a gateway finds it; its servers are behind these doors, if it is a quorum.
    pub(crate) fn url(&self, doors: &[Proxy]) -> String {
        match self {
            Self::Folder(Kind::File, disk) => format!("file:{}/data", disk.path().display()),
            Self::Folder(_, disk) => format!("sqlite:{}/records.db", disk.path().display()),
            Self::Server(server) => server.url(),
            // What only the master has would be lost with it.
            Self::Sentinel(group) => format!("{}?wait_replicas=1", group.url()),
            Self::Quorum(_) => quorum::url(doors),
            Self::Cluster(cluster) => format!("{}?wait_replicas=1", cluster.url()),
        }
    }
}
