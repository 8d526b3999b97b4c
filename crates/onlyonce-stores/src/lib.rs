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
//! | `postgres://` | PostgreSQL | `postgres` |
//! | `mysql://` | MariaDB or MySQL | `mysql` |

#[cfg(any(feature = "file", feature = "sql"))]
mod batch;
#[cfg(feature = "file")]
pub mod file;
mod open;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sealed")]
pub mod sealed;
#[cfg(feature = "sql")]
pub mod sql;

pub use open::{OpenError, open};
#[cfg(feature = "sealed")]
pub use sealed::Sealed;
