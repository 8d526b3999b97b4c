//! Durable and shared stores of onlyonce, chosen by URL, and wrappers around any store.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # let folder = tempfile::tempdir().unwrap();
//! # std::env::set_current_dir(&folder).unwrap();
//! let store = onlyonce_stores::open("file:./onlyonce-data").await.unwrap();
//! # drop(store);
//! # }
//! ```
//!
//! | URL | store | feature |
//! |---|---|---|
//! | `memory:` | this process's memory | always there |
//! | `file:PATH` | a folder, durable, one process; encrypted by default | `file` |
//! | `sqlite:PATH` | a SQLite database, several processes on one machine | `sqlite` |
//! | `redis://` `rediss://` `redis+cluster://` `redis+sentinel://` | Redis | `redis` |
//! | `redis+quorum://` `redlock://` | a majority of independent Redis servers | `redis` |
//! | `postgres://` | PostgreSQL | `postgres` |
//! | `mysql://` | MariaDB or MySQL | `mysql` |
//!
//! Wrappers go around any of them: `Sealed` encrypts, `Compressed` only makes smaller, [`Cached`]
//! remembers finished results, [`Tiered`] keeps copies of them in a quicker store, [`Guarded`] adds
//! timeouts and a circuit breaker, [`Metered`] measures. The first four are options of every URL
//! (`sealed=KEYFILE`, `compressed=true`, `cache=64MiB`, `tier=redis://…`), and [`open`] puts them around a store in the one order that
//! makes sense; the others go around what it returns, as `Guarded(Metered(…))`. Who asks again when
//! a store fails is the engine, and nobody else.

pub mod cached;
#[cfg(feature = "compressed")]
mod compressed;
pub mod guarded;
pub mod metered;
mod open;
#[cfg(feature = "compressed")]
mod packed;
#[cfg(feature = "sealed")]
pub mod sealed;
mod tiered;
mod wrap;

pub use cached::Cached;
#[cfg(feature = "compressed")]
pub use compressed::Compressed;
pub use guarded::Guarded;
pub use metered::Metered;
#[cfg(feature = "file")]
pub use onlyonce_file as file;
#[cfg(feature = "redis")]
pub use onlyonce_redis as redis;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use onlyonce_sql as sql;
pub use onlyonce_storekit::{OpenError, nearest, private};
pub use open::{CompletionSql, backend, check_url, completion_sql, open, server, shown};
#[cfg(feature = "sealed")]
pub use sealed::{KeyRing, Sealed};
pub use tiered::Tiered;
