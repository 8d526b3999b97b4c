//! Real servers for tests, fault tests and benchmarks: each has a free port of the loopback
//! interface, a temporary folder and a user that is not root.
//!
//! A server ends with its handle. It also ends when the process that started it is killed: a
//! keeper waits for that, ends the server and removes its folder. Calls block until what they
//! ask for is true, so that no test needs to sleep.
//!
//! ```no_run
//! use onlyonce_testkit::servers::{Redis, RedisOptions, Server, ServerError};
//!
//! # fn main() -> Result<(), ServerError> {
//! let redis = Redis::start(RedisOptions { durable: true, ..RedisOptions::default() })?;
//! redis.cli(&["SET", "greeting", "hello"])?;
//! redis.kill()?;
//! redis.start_again()?;
//! assert_eq!(redis.cli(&["GET", "greeting"])?, "hello");
//! # Ok(())
//! # }
//! ```

mod account;
mod command;
mod daemon;
mod error;
pub mod faketime;
mod galera;
mod home;
mod mariadb;
mod patience;
mod pgbouncer;
mod ports;
mod postgres;
mod program;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod server;
mod shared;
mod tree;

pub use self::daemon::Daemon;
pub use self::error::ServerError;
pub use self::galera::{Galera, GaleraNode};
pub use self::mariadb::{MariaDb, MariaDbOptions};
pub use self::pgbouncer::PgBouncer;
pub use self::ports::free_port;
pub use self::postgres::{Postgres, PostgresOptions};
pub use self::program::missing_packages;
pub use self::redis::{Redis, RedisOptions};
pub use self::redis_cluster::{RedisCluster, RedisClusterOptions};
pub use self::redis_sentinel::{RedisSentinel, RedisSentinelOptions};
pub use self::server::Server;
pub use self::shared::{Shared, SharedSet, shared};
