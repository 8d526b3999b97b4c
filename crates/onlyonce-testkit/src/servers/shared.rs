//! The servers that all tests of a run share.

use std::env;
use std::thread;
use std::time::Duration;

use super::patience::now;
use super::{
    MariaDb, MariaDbOptions, PgBouncer, Postgres, PostgresOptions, Redis, RedisCluster,
    RedisClusterOptions, RedisOptions, RedisSentinel, RedisSentinelOptions, Server, ServerError,
};

/// A shared server falls over only if it is really gone, however busy the machine is.
const SILENCE_MAX: Duration = Duration::from_secs(15);
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that all tests of a run share. Tests break only servers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// A standalone Redis.
    Redis,
    /// A Redis Cluster.
    RedisCluster,
    /// Redis under Sentinel.
    RedisSentinel,
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
    /// PgBouncer in front of the same PostgreSQL.
    PgBouncer,
}

impl Shared {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Redis,
        Self::RedisCluster,
        Self::RedisSentinel,
        Self::Postgres,
        Self::MariaDb,
        Self::PgBouncer,
    ];

    /// The environment variable that holds its address.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Redis => "ONLYONCE_TEST_REDIS_URL",
            Self::RedisCluster => "ONLYONCE_TEST_REDIS_CLUSTER_URL",
            Self::RedisSentinel => "ONLYONCE_TEST_REDIS_SENTINEL_URL",
            Self::Postgres => "ONLYONCE_TEST_POSTGRES_URL",
            Self::MariaDb => "ONLYONCE_TEST_MARIADB_URL",
            Self::PgBouncer => "ONLYONCE_TEST_PGBOUNCER_URL",
        }
    }
}

/// The address of a shared server.
///
/// # Panics
///
/// If there is none: a test that needs a server fails without it, it is not skipped.
pub fn shared(server: Shared) -> String {
    let variable = server.variable();
    match env::var(variable) {
        Ok(url) if !url.is_empty() => url,
        Ok(_) | Err(_) => panic!(
            "{variable} is not set: run the tests with `cargo xtask test`, which starts the \
             servers they need"
        ),
    }
}

/// One of each, for as long as this value lives.
pub struct SharedSet {
    // Before the server it talks to.
    pgbouncer: PgBouncer,
    postgres: Postgres,
    mariadb: MariaDb,
    redis: Redis,
    cluster: RedisCluster,
    sentinel: RedisSentinel,
}

impl SharedSet {
    /// Starts all of them at the same time, and says so of each that is ready.
    pub fn start(say: impl Fn(&str) + Sync) -> Result<Self, ServerError> {
        let say = &say;
        thread::scope(|scope| {
            let redis =
                scope.spawn(|| timed("redis", say, || Redis::start(RedisOptions::default())));
            let cluster = scope.spawn(|| timed("redis cluster", say, start_cluster));
            let sentinel = scope.spawn(|| timed("redis sentinel", say, start_sentinel));
            let postgres = scope.spawn(|| start_postgres(say));
            let mariadb = scope.spawn(|| timed("mariadb", say, start_mariadb));

            let (postgres, pgbouncer) = postgres.join().expect("starting does not panic")?;
            Ok(Self {
                pgbouncer,
                postgres,
                mariadb: mariadb.join().expect("starting does not panic")?,
                redis: redis.join().expect("starting does not panic")?,
                cluster: cluster.join().expect("starting does not panic")?,
                sentinel: sentinel.join().expect("starting does not panic")?,
            })
        })
    }

    /// The address of one of them.
    pub fn url(&self, server: Shared) -> String {
        match server {
            Shared::Redis => self.redis.url(),
            Shared::RedisCluster => self.cluster.url(),
            Shared::RedisSentinel => self.sentinel.url(),
            Shared::Postgres => self.postgres.url(),
            Shared::MariaDb => self.mariadb.url(),
            Shared::PgBouncer => self.pgbouncer.url(),
        }
    }
}

fn start_cluster() -> Result<RedisCluster, ServerError> {
    RedisCluster::start_with(&RedisClusterOptions {
        node_timeout: SILENCE_MAX,
        ..RedisClusterOptions::default()
    })
}

fn start_sentinel() -> Result<RedisSentinel, ServerError> {
    RedisSentinel::start_with(&RedisSentinelOptions {
        down_after: SILENCE_MAX,
        failover_timeout: FAILOVER_TIMEOUT,
        ..RedisSentinelOptions::default()
    })
}

fn start_mariadb() -> Result<MariaDb, ServerError> {
    MariaDb::start(MariaDbOptions {
        fast: true,
        ..MariaDbOptions::default()
    })
}

fn start_postgres(say: &(impl Fn(&str) + Sync)) -> Result<(Postgres, PgBouncer), ServerError> {
    let options = PostgresOptions {
        fast: true,
        ..PostgresOptions::default()
    };
    let postgres = timed("postgres", say, || Postgres::start(options))?;
    let pgbouncer = timed("pgbouncer", say, || PgBouncer::start(&postgres))?;
    Ok((postgres, pgbouncer))
}

fn timed<T>(
    name: &str,
    say: &impl Fn(&str),
    start: impl FnOnce() -> Result<T, ServerError>,
) -> Result<T, ServerError> {
    let from = now();
    let server = start()?;
    say(&format!(
        "{name} is ready after {:.1} s",
        (now() - from).as_secs_f64()
    ));
    Ok(server)
}
