//! A primary that is cut off from its synchronous standby and stays alive, the standby promoted under load:
//! nothing acknowledged is lost, and the demoted one acknowledges nothing more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::engine::Who;
use onlyonce_core::policy::Duplicate;
use onlyonce_core::{
    Answer, Clock, Engine, Execution, Fingerprint, Key, Policy, Response, SystemClock,
};
use onlyonce_sql::PostgresStore;
use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Postgres, PostgresOptions, Server};

use super::several::both;
use super::support::{LONG, until};

/// For each of two engines.
const CALLERS: usize = 6;
/// How many operations make a load.
const ENOUGH: usize = 100;
/// By when a new key is answered once the standby takes writes: the servers are asked every two seconds,
/// and a connection attempt may take one.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(10);
const OPTIONS: &str = "timeout_ms=1000&connect_timeout_ms=1000";

/// What ran, and what somebody was told is stored.
#[derive(Default)]
struct Ledger {
    runs: Mutex<HashMap<String, usize>>,
    told: Mutex<Vec<(String, String)>>,
    /// By engine.
    answered: [AtomicUsize; 2],
    keys: AtomicUsize,
    stop: AtomicBool,
}

impl Ledger {
    fn answered(&self) -> [usize; 2] {
        [0, 1].map(|at| self.answered[at].load(Ordering::SeqCst))
    }

    /// Waits until each engine has answered this many more.
    async fn more(&self, count: usize) {
        let before = self.answered();
        until(async || {
            let now = self.answered();
            (0..2).all(|at| now[at] >= before[at] + count)
        })
        .await;
    }
}

async fn engine(url: &str) -> Engine {
    let store = PostgresStore::open(url).await.unwrap();
    Engine::open(Arc::new(store) as Arc<dyn onlyonce_core::Store>)
        .await
        .unwrap()
}

/// The stored answer, if this call was told one.
async fn call(engine: &Engine, ledger: &Arc<Ledger>, name: &str) -> Option<String> {
    let policy = Arc::new(Policy {
        // No lease lapses here: a second run could only be a claim that was forgotten.
        lease_for: LONG,
        duplicate: Duplicate::Wait(Duration::from_millis(500)),
        ..Policy::default()
    });
    let key = Key::new(name, &policy.key).unwrap();
    let fingerprint = Fingerprint::new(Fingerprint::RECIPE, [1; 32]);
    let who = Who::doing("order");
    let calling = engine.call(&engine.scope(), &key, fingerprint, &policy, who);
    let (runs, owned) = (Arc::clone(ledger), name.to_owned());
    let answer = engine.once(calling, async move |_: Execution| {
        let run = {
            let mut runs = runs.runs.lock().unwrap();
            let run = runs.entry(owned.clone()).or_default();
            *run += 1;
            *run
        };
        Response::new(StatusCode::OK, format!("{owned} run {run}")).into()
    });
    let response = match answer.await {
        Answer::Ran {
            response, receipt, ..
        } => receipt.map(|_| response)?,
        Answer::Replayed(replay) => replay.response,
        Answer::Refused(_) => return None,
    };
    Some(String::from_utf8(response.body.to_vec()).unwrap())
}

/// New keys, each at one engine and then at the other, until the load ends.
async fn load(engines: Arc<[Engine; 2]>, first: usize, ledger: Arc<Ledger>) {
    const PATIENCE: Duration = Duration::from_secs(3);
    let clock = SystemClock::new();
    while !ledger.stop.load(Ordering::SeqCst) {
        let number = ledger.keys.fetch_add(1, Ordering::SeqCst);
        let name = format!("order-{number:08}-of-alice");
        let began = clock.now();
        let mut answers = 0;
        let mut at = first;
        while answers < 2 && clock.now().saturating_sub(began) < PATIENCE {
            match call(&engines[at], &ledger, &name).await {
                Some(body) => {
                    ledger.told.lock().unwrap().push((name.clone(), body));
                    ledger.answered[at].fetch_add(1, Ordering::SeqCst);
                    answers += 1;
                }
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
            at = 1 - at;
        }
    }
}

/// Asks a gateway that knows the old primary alone, again and again: how many calls were refused, and
/// what it acknowledged. What it has answered before is asked for alone: such a statement writes
/// nothing by which it could wait. The others are keys that ran since, and a new one.
async fn ask_the_old(stale: Engine, ledger: Arc<Ledger>) -> (usize, Vec<String>) {
    const ROUNDS_MIN: usize = 3;
    let names = ledger.told.lock().unwrap().clone().into_iter();
    let finished: Vec<String> = names.map(|(name, _)| name).take(10).collect();
    let (mut refused, mut acknowledged) = (0, Vec::new());
    let mut rounds = 0;
    while rounds < ROUNDS_MIN || !ledger.stop.load(Ordering::SeqCst) {
        rounds += 1;
        let mut newest: Vec<String> = ledger.runs.lock().unwrap().keys().cloned().collect();
        newest.sort();
        let since = newest.into_iter().rev().take(10);
        let new = format!("stale-{rounds:08}-of-bob");
        for names in [finished.clone(), since.chain([new]).collect()] {
            let calls = names.iter().map(|name| call(&stale, &ledger, name));
            let told = futures_util::future::join_all(calls).await;
            for (told, name) in told.into_iter().zip(names) {
                match told {
                    Some(body) => acknowledged.push(format!("{name}: {body}")),
                    None => refused += 1,
                }
            }
        }
    }
    (refused, acknowledged)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_standby_promoted_under_load_loses_nothing_and_the_demoted_primary_acknowledges_nothing()
{
    let primary = tokio::task::block_in_place(|| Postgres::start(PostgresOptions::default()));
    let primary = primary.unwrap();
    let between = Proxy::start(&primary.url()).await.unwrap();
    let standby = tokio::task::block_in_place(|| {
        let standby = primary.standby_behind(between.url()).unwrap();
        primary.synchronous().unwrap();
        standby
    });
    let url = both(&primary, &standby, OPTIONS);
    let engines = Arc::new([engine(&url).await, engine(&url).await]);
    let stale = engine(&format!("{}?{OPTIONS}", primary.url())).await;
    let ledger = Arc::new(Ledger::default());
    let callers: Vec<_> = (0..2 * CALLERS)
        .map(|n| tokio::spawn(load(Arc::clone(&engines), n % 2, Arc::clone(&ledger))))
        .collect();
    ledger.more(ENOUGH).await;

    // Both engines and everybody else still reach the old primary.
    between.refuse().await.unwrap();
    let stale = tokio::spawn(ask_the_old(stale, Arc::clone(&ledger)));
    let hanging = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until(async || {
        let count = tokio::task::block_in_place(|| primary.psql(hanging)).unwrap();
        count.trim().parse::<usize>().unwrap() > 2
    })
    .await;
    tokio::task::block_in_place(|| standby.promote()).unwrap();
    let clock = SystemClock::new();
    let promoted = clock.now();
    ledger.more(1).await;
    let followed = clock.now().saturating_sub(promoted);
    ledger.more(ENOUGH).await;
    ledger.stop.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    let (refused, acknowledged) = stale.await.unwrap();

    eprintln!("followed after {followed:?}; {refused} calls refused by the demoted primary");
    assert!(followed < FOLLOWED_WITHIN, "{followed:?}");
    assert!(refused > 60, "{refused}");
    assert!(acknowledged.is_empty(), "{acknowledged:?}");
    let runs = ledger.runs.lock().unwrap().clone();
    let twice: Vec<_> = runs.iter().filter(|(_, runs)| **runs > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let alone = engine(&format!("{}?{OPTIONS}", standby.url())).await;
    let told = ledger.told.lock().unwrap().clone();
    let again = told.iter().map(|(name, _)| call(&alone, &ledger, name));
    let again = futures_util::future::join_all(again).await;
    for ((name, body), again) in told.iter().zip(again) {
        assert_eq!(
            again.as_ref(),
            Some(body),
            "{name} was acknowledged and is lost"
        );
        assert_eq!(*body, format!("{name} run 1"));
    }

    // The promoted server's own setting counts there: with no standby of its own it tells nothing more.
    let (known, answered) = told.first().unwrap();
    tokio::task::block_in_place(|| standby.synchronous()).unwrap();
    until(async || call(&alone, &ledger, known).await.is_none()).await;
    let _next = tokio::task::block_in_place(|| standby.standby()).unwrap();
    until(async || call(&alone, &ledger, known).await.as_ref() == Some(answered)).await;
}
