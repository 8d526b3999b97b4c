//! Observing: what enforcing would have done to requests that pass untouched.
//!
//! Nothing is held, refused, marked or stored: every request goes to the inner service as it comes,
//! and its answer to the caller as it is. What was seen is kept in the memory of this process only,
//! and never in the store, so that no enforced request can meet it. A bounded number of keys is
//! remembered, by the digests that address and compare them; of bodies nothing is kept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlyonce_core::{Clock as _, SystemClock, Timestamp};

use self::ledger::Ledger;
use self::tally::Tally;
use crate::buffer::BufferLimit;

pub(crate) use self::exchange::Exchange;
pub use self::sight::Sight;
pub use self::tally::{Example, Tallied};
pub(crate) use self::watch::{AnswerWatch, RequestWatch};

mod exchange;
mod ledger;
mod sight;
mod tally;
#[cfg(test)]
mod tests;
mod watch;

/// Keys that are remembered at a time. Beyond that the oldest is forgotten, and a repeat of it counts
/// as a first request.
pub const KEYS_MAX: usize = 100_000;
/// Bytes of request bodies that are looked at at a time, over all requests. A request for which there
/// is no room passes unseen.
pub const COPIED_BYTES_MAX: usize = 64 << 20;
/// Names of routes that are counted apart; all others share one.
const ROUTES_MAX: usize = 1_000;
/// What the routes beyond [`ROUTES_MAX`] are called.
const OTHER: &str = "other";

/// What is seen on all observed routes of a process. Clones are one.
///
/// ```
/// use onlyonce_core::{Engine, MemoryStore};
/// use onlyonce_tower::IdempotencyLayer;
/// use onlyonce_tower::observe::Observing;
/// # use axum::{Router, routing::post};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let engine = Engine::open(MemoryStore::new()).await.unwrap();
/// let observing = Observing::new();
/// let app: Router = Router::new()
///     .route("/charge", post(async || "charged"))
///     .layer(IdempotencyLayer::new(engine).observe(&observing.route("POST /charge")));
/// assert_eq!(observing.routes()[0].name.as_ref(), "POST /charge");
/// # let _ = app;
/// # }
/// ```
#[derive(Clone)]
pub struct Observing(Arc<Shared>);

type Told = Box<dyn Fn(&Sighting<'_>) + Send + Sync>;

struct Shared {
    clock: SystemClock,
    since: Timestamp,
    ledger: Mutex<Ledger>,
    copies: BufferLimit,
    routes: Mutex<BTreeMap<Arc<str>, Arc<Route>>>,
    told: Option<Told>,
}

struct Route {
    name: Arc<str>,
    since: Timestamp,
    is_observed: AtomicBool,
    tally: Mutex<Tally>,
}

/// One thing that was seen, as it is told.
#[derive(Clone, Copy, Debug)]
pub struct Sighting<'a> {
    /// The name of the route.
    pub route: &'a Arc<str>,
    /// What was seen.
    pub sight: Sight,
    /// How logs name the key: a harmless start of it and of its digest. Nothing without a good key.
    pub key: Option<&'a str>,
    /// What would have been wrong with the request. Never holds a key, a token or a body.
    pub detail: Option<&'a str>,
}

/// What is remembered of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Keys that are remembered now.
    pub keys: usize,
    /// Keys that were forgotten for lack of room, before their time was over.
    pub forgotten: u64,
}

/// What was seen on one route.
#[derive(Clone, Debug)]
pub struct ObservedCounts {
    /// The name of the route.
    pub name: Arc<str>,
    /// Whether it is still observed.
    pub is_observed: bool,
    /// Since when it is.
    pub since: Timestamp,
    /// What was seen, each kind once.
    pub seen: BTreeMap<Sight, Tallied>,
}

/// A route that is observed: what a layer is [given](crate::IdempotencyLayer::observe).
#[derive(Clone)]
pub struct ObservedRoute {
    shared: Arc<Shared>,
    route: Arc<Route>,
}

impl Default for Observing {
    fn default() -> Self {
        Self::new()
    }
}

impl Observing {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::made(None)
    }

    /// The same, telling `told` of everything that is seen, on the request's path: it must be quick.
    pub fn telling(told: impl Fn(&Sighting<'_>) + Send + Sync + 'static) -> Self {
        Self::made(Some(Box::new(told)))
    }

    fn made(told: Option<Told>) -> Self {
        let clock = SystemClock::new();
        Self(Arc::new(Shared {
            since: clock.wall(),
            clock,
            ledger: Mutex::new(Ledger::new(KEYS_MAX)),
            copies: BufferLimit::new(COPIED_BYTES_MAX),
            routes: Mutex::default(),
            told,
        }))
    }

    /// The route with this name, which goes on counting if it was observed before.
    pub fn route(&self, name: &str) -> ObservedRoute {
        let mut routes = locked(&self.0.routes);
        let name = if routes.len() >= ROUTES_MAX && !routes.contains_key(name) {
            OTHER
        } else {
            name
        };
        let name: Arc<str> = name.into();
        let entry = routes.entry(Arc::clone(&name));
        let route = Arc::clone(entry.or_insert_with(|| {
            Arc::new(Route {
                name,
                since: self.0.clock.wall(),
                is_observed: AtomicBool::new(true),
                tally: Mutex::default(),
            })
        }));
        route.is_observed.store(true, Ordering::Relaxed);
        ObservedRoute {
            shared: Arc::clone(&self.0),
            route,
        }
    }

    /// Says that no route is observed any more but these. What was seen of the others stays.
    pub fn only(&self, names: &[String]) {
        for route in locked(&self.0.routes).values() {
            let is_observed = names.iter().any(|name| **name == *route.name);
            route.is_observed.store(is_observed, Ordering::Relaxed);
        }
    }

    /// Since when.
    pub fn since(&self) -> Timestamp {
        self.0.since
    }

    /// What is remembered of keys.
    pub fn remembered(&self) -> Remembered {
        let ledger = locked(&self.0.ledger);
        Remembered {
            keys: ledger.len(),
            forgotten: ledger.forgotten(),
        }
    }

    /// What was seen, by route.
    pub fn routes(&self) -> Vec<ObservedCounts> {
        let routes: Vec<_> = locked(&self.0.routes).values().cloned().collect();
        let counts = |route: Arc<Route>| ObservedCounts {
            name: Arc::clone(&route.name),
            is_observed: route.is_observed.load(Ordering::Relaxed),
            since: route.since,
            seen: locked(&route.tally).all().clone(),
        };
        routes.into_iter().map(counts).collect()
    }
}

impl ObservedRoute {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        locked(&self.shared.ledger)
    }

    fn copies(&self) -> &BufferLimit {
        &self.shared.copies
    }

    fn clock(&self) -> &SystemClock {
        &self.shared.clock
    }

    /// Counts what was seen, and tells it.
    pub(crate) fn saw(&self, sight: Sight, key: Option<&str>, detail: Option<&str>) {
        let at = self.shared.clock.wall();
        locked(&self.route.tally).count(sight, at, key, detail);
        if let Some(told) = &self.shared.told {
            told(&Sighting {
                route: &self.route.name,
                sight,
                key,
                detail,
            });
        }
    }
}

/// What a thread that panicked left behind is whole: every change is a single step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
