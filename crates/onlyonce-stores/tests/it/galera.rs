//! MariaDB Galera: engines of several processes, each on a node of its own first, while nodes are
//! killed, stopped and cut off. The three nodes are started once, and one test at a time has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::engine::Who;
use onlyonce_core::policy::Duplicate;
use onlyonce_core::{
    Answer, Clock, Engine, Entropy, Fingerprint, Key, OnLapse, OsEntropy, Policy, Response, Store,
    SystemClock,
};
use onlyonce_stores::Guarded;
use onlyonce_testkit::servers::{Galera, MariaDbOptions};
use tokio::sync::MutexGuard;
use tokio::task::block_in_place;

mod agreeing;
mod losing;
mod racing;

/// By when what must come has come, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than any of these tests: what is run twice was not run twice because a lease lapsed.
const LEASE: Duration = Duration::from_secs(600);

static CLUSTER: LazyLock<tokio::sync::Mutex<Galera>> = LazyLock::new(|| {
    let options = MariaDbOptions {
        fast: true,
        arguments: vec!["--innodb-buffer-pool-size=32M".to_owned()],
    };
    tokio::sync::Mutex::new(Galera::start(&options).unwrap())
});

/// The nodes, all of them well.
async fn cluster() -> MutexGuard<'static, Galera> {
    let cluster = block_in_place(|| &*CLUSTER).lock().await;
    synced(&cluster, &[0, 1, 2]).await;
    cluster
}

/// Waits until these nodes have all that their cluster has.
async fn synced(cluster: &Galera, nodes: &[usize]) {
    let all = || nodes.iter().all(|node| cluster.nodes()[*node].is_synced());
    until(async || block_in_place(all)).await;
}

/// Waits for what must come.
async fn until(mut is: impl AsyncFnMut() -> bool) {
    let come = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let come = tokio::time::timeout(PATIENCE, come).await;
    come.expect("what must come came too late");
}

fn random() -> u64 {
    let mut random = [0; 8];
    OsEntropy::new().fill(&mut random);
    u64::from_le_bytes(random)
}

/// A URL of all nodes, with this one first.
fn url(cluster: &Galera, first: usize, table: &str) -> String {
    format!("{}?table={table}", cluster.url_from(first))
}

/// Tables that nobody else uses.
fn table() -> String {
    format!("t_{:016x}", random())
}

/// One process: its engine, on a store with its breaker.
struct Process {
    engine: Engine,
    guard: Arc<Guarded>,
}

impl Process {
    async fn start(url: &str) -> Self {
        let store = onlyonce_stores::open(url).await.unwrap();
        let guard = Arc::new(Guarded::new(store));
        let engine = Engine::open(Arc::clone(&guard) as Arc<dyn Store>).await;
        Self {
            engine: engine.unwrap(),
            guard,
        }
    }
}

/// Processes that get the same requests, and what became of these.
struct Bed {
    processes: Vec<Process>,
    policy: Policy,
    /// How often each key was run.
    ran: Arc<Mutex<BTreeMap<String, usize>>>,
    /// What was told of each.
    told: Mutex<BTreeMap<String, BTreeSet<Vec<u8>>>>,
    refused: AtomicUsize,
}

impl Bed {
    /// Three processes on one table, each with another node first.
    async fn start(cluster: &Galera) -> Arc<Self> {
        let table = table();
        let mut processes = Vec::new();
        for first in 0..3 {
            processes.push(Process::start(&url(cluster, first, &table)).await);
        }
        Arc::new(Self {
            processes,
            policy: Policy {
                lease_for: LEASE,
                on_lapse: OnLapse::Hold,
                duplicate: Duplicate::Wait(PATIENCE),
                ..Policy::default()
            },
            ran: Arc::default(),
            told: Mutex::default(),
            refused: AtomicUsize::default(),
        })
    }

    /// One request to one of them: its answer, if it was given one.
    async fn call(&self, process: usize, key: &str) -> Option<Vec<u8>> {
        let engine = &self.processes[process].engine;
        let call = engine.call(
            &engine.scope(),
            &Key::new(key, &self.policy.key).unwrap(),
            Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
            &Arc::new(self.policy.clone()),
            Who::doing("order"),
        );
        let (ran, name) = (Arc::clone(&self.ran), key.to_owned());
        let answer = engine.once(call, async move |_| {
            let body = format!("{name} {}", random());
            *lock(&ran).entry(name).or_default() += 1;
            Response::new(StatusCode::OK, body).into()
        });
        let body = match answer.await {
            Answer::Ran {
                response, receipt, ..
            } => receipt.map(|_| response.body.to_vec()),
            Answer::Replayed(replay) => Some(replay.response.body.to_vec()),
            Answer::Refused(_) => None,
        };
        match &body {
            Some(body) => {
                let mut told = lock(&self.told);
                told.entry(key.to_owned()).or_default().insert(body.clone());
            }
            None => {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        body
    }

    /// The same until there is an answer.
    async fn insist(&self, process: usize, key: &str) {
        let clock = SystemClock::new();
        while self.call(process, key).await.is_none() {
            assert!(clock.now() < PATIENCE, "{key} was refused for too long");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Every key ran once, and everybody was told the same; and each process still tells it.
    async fn check(&self) -> usize {
        let told = lock(&self.told).clone();
        for (key, answers) in &told {
            assert_eq!(answers.len(), 1, "{key} was answered in two ways");
            assert_eq!(lock(&self.ran).get(key), Some(&1), "{key}");
        }
        for (key, times) in &*lock(&self.ran) {
            assert_eq!(*times, 1, "{key} ran again");
        }
        for (n, (key, answers)) in told.iter().enumerate() {
            let again = self.call(n % self.processes.len(), key).await;
            assert_eq!(again.as_ref(), answers.iter().next(), "{key} is lost");
        }
        told.len()
    }

    fn opened(&self) -> u64 {
        let processes = self.processes.iter();
        processes.map(|it| it.guard.tally().opened).sum()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
