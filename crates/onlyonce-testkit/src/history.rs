//! Recorded histories of real stores: many processes, random faults, every event written down,
//! and a checker that looks for what must not be.
//!
//! Where the [simulator](crate::sim) owns time, randomness and the store, nothing here is owned:
//! the processes, the store and the clock are real. So a history is not repeatable, and the
//! checker knows only what the processes wrote down. Each line is written before its event can
//! have an effect outside, by one `write` that outlives the process; all times are
//! CLOCK_MONOTONIC, which the processes of a machine share.
//!
//! - [`Run`] starts worker processes, kills, stops and restarts them, disturbs the store, and
//!   checks the history. A worker is any program that calls [`worker_main`]. With the feature
//!   `servers`, `faults` are ways to disturb a store.
//! - [`Local`] does the same with several engines in this process, for stores that have only one.
//! - [`check`] checks logs that are there.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use onlyonce_testkit::history::{Program, Run};
//!
//! let worker = Program::this_test("history::a_worker")?;
//! let report = Run::new("redis://127.0.0.1", worker).execute().await?;
//! assert!(report.is_clean(), "{report}");
//! # Ok(()) }
//! ```

mod check;
mod clock;
mod driver;
#[cfg(feature = "servers")]
pub mod faults;
mod gate;
mod handler;
mod ledger;
mod load;
mod local;
pub mod log;
mod plan;
mod program;
mod record;
mod report;
mod rules;
mod watch;
mod worker;

pub use self::check::check;
pub use self::clock::Micros;
pub use self::driver::{Progress, Run, RunError, StoreFault};
pub use self::load::Load;
pub use self::local::Local;
pub use self::plan::Plan;
pub use self::program::{Program, WorkerError, clear_faketime, is_worker, worker_main};
pub use self::record::{History, Log};
pub use self::report::{Report, Violation};
pub use self::rules::RULES;
pub use self::worker::work;
