//! Stores in SQL databases. What they decide is what the reference store decides; they differ in
//! how they keep two deciders apart, and in how they tell each other of changes.
//!
//! Each keeps its records in one table, with columns for everything people may want to query, and
//! can finish a record inside a transaction of its caller: `complete_in`.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod shared;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod steps;

#[cfg(feature = "mysql")]
pub use mysql::MySqlStore;
pub use onlyonce_storekit::OpenError;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use shared::{SqlOptions, completion_name};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
/// The library behind these stores, in the version whose transactions they take: sqlx 0.9.
pub use sqlx;
