//! The deterministic simulator: production engines on one store, on virtual time, under faults,
//! with a checker that knows the protocol.
//!
//! Every choice is drawn from a seed, so a seed is a test case: the same seed gives the same
//! history. Between the engines and the store stands a witness that compares every verb with an
//! independent model of the protocol; around them, every handler's start and end and every
//! caller's answer is checked against that model.
//!
//! ```
//! use onlyonce_testkit::sim::{Plan, run};
//!
//! let report = run(7, &Plan::default()).unwrap();
//! assert!(report.calls > 0);
//! ```

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Clock, Entropy, MemoryStore, Policy, Store};

mod bug;
mod client;
mod clock;
pub mod dice;
mod fate;
mod flawed;
mod gate;
mod handler;
mod history;
mod kinds;
mod ledger;
mod link;
mod model;
mod process;
mod report;
mod rotation;
mod rules;
mod script;
mod settling;
mod story;
mod terms;
mod witness;
mod world;

pub use self::bug::{Bug, UnknownBug};
pub use self::history::History;
pub use self::kinds::{Fault, Heard, Seen};
pub use self::report::{Report, Violation};
pub use self::settling::{LookBug, Settled, Unsettled, settle};

use self::clock::StoreClock;
use self::dice::Dice;
use self::flawed::Flawed;
use self::script::Script;
use self::world::World;

/// What a run may be made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many nodes there are; each has one process at a time.
    pub nodes: RangeInclusive<usize>,
    /// How many keys are called.
    pub keys: RangeInclusive<usize>,
    /// How many callers come; some ask again.
    pub calls: RangeInclusive<usize>,
    /// Whether anything goes wrong.
    pub faults: bool,
    /// A bug to plant.
    pub bug: Option<Bug>,
    /// What stands between every engine and its store.
    pub around: Option<Around>,
    /// Whether the slot secret is rotated: processes with one and with both run side by side.
    pub rotation: bool,
}

/// Wraps the store of a process, with that process's clock and randomness.
pub type Wrap = fn(Arc<dyn Store>, Arc<dyn Clock>, Arc<dyn Entropy>) -> Arc<dyn Store>;

/// A wrapper around the store of every process, such as a cache or a circuit breaker, and by how
/// much it loosens the rules.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// What wraps.
    pub wrap: Wrap,
    /// How long it may go on telling what was true.
    pub lag: Duration,
    /// How long after a failure of the store it may go on failing by itself.
    pub sulk: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nodes: 2..=4,
            keys: 1..=4,
            calls: 10..=40,
            faults: true,
            bug: None,
            around: None,
            rotation: false,
        }
    }
}

impl Plan {
    /// The same with a planted bug.
    #[must_use]
    pub fn with_bug(bug: Bug) -> Self {
        Self {
            bug: Some(bug),
            rotation: bug == Bug::FormerIgnored,
            ..Self::default()
        }
    }
}

/// Runs one seed: what happened, or the first rule that was broken.
///
/// # Panics
///
/// If it is called from within an asynchronous runtime: it brings its own.
pub fn run(seed: u64, plan: &Plan) -> Result<Report, Violation> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets or threads needs nothing from the system");
    let world = runtime.block_on(async {
        let clock = Arc::new(StoreClock::new());
        let base = Policy::default();
        let script = Script::draw(&mut Dice::new(seed ^ SCRIPT), plan, &base);
        let world = World::new(seed, clock.clone(), store(clock, plan.bug), base, plan);
        let world = Arc::new(world);
        tokio::select! {
            biased;
            () = world.alarm.notified() => {}
            () = story::play(&world, script) => {}
        }
        world
    });
    let (mut report, violation) = world.end();
    // Whatever still hangs (a crashed process's calls and handlers) is dropped here.
    drop(runtime);
    report.seeds = 1;
    match violation {
        Some(violation) => Err(violation),
        None => Ok(report),
    }
}

/// Keeps the script's dice apart from those of the run itself.
const SCRIPT: u64 = 0x05c2_1971;

fn store(clock: Arc<StoreClock>, bug: Option<Bug>) -> Arc<dyn Store> {
    let sound = MemoryStore::with_clock(clock.clone());
    match bug {
        None | Some(Bug::HangupCancels | Bug::FormerIgnored) => Arc::new(sound),
        Some(bug) => Arc::new(Flawed {
            sound: Arc::new(sound),
            clock,
            bug,
        }),
    }
}
