//! docs/protocol.md#rule-26: the slot secret is agreed on for as long as the store lives. A store that lost its
//! data gets it back from the engines that run; two engines never run on different secrets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::engine::FormerSecret;
use onlyonce_core::operate::{Filter, Page, Resolved, Stats};
use onlyonce_core::policy::StoreDown;
use onlyonce_core::{
    Claim, Claimed, Completed, Engine, Event, Lease, MemoryStore, Operate, Policy, Reason, Record,
    Release, Released, Renewed, Response, Slot, SlotSecret, Store, StoreError, StoreErrorKind,
    Token, async_trait,
};

use crate::support::{Node, Work, node_of, policy, ran, refused, replayed, settle};

/// A server that can lose all its data.
#[derive(Default)]
struct Server(Mutex<Arc<MemoryStore>>);

impl Server {
    fn memory(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.0.lock().unwrap())
    }

    fn lose_everything(&self) {
        *self.0.lock().unwrap() = Arc::default();
    }
}

/// One process's way to the server.
#[derive(Default)]
struct Line {
    server: Arc<Server>,
    connected: AtomicU64,
}

impl Line {
    fn to(server: &Arc<Server>) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(server),
            connected: AtomicU64::new(1),
        })
    }

    fn reconnect(&self) {
        self.connected.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Store for Line {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.server.memory().claim(claim).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        self.server.memory().renew(lease, lease_for).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let memory = self.server.memory();
        memory.complete(lease, response, keep_for).await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        self.server.memory().release(lease, why).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.server.memory().settled(slot, seen, at_most).await
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

#[async_trait]
impl Operate for Line {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.server.memory().get(slot).await
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        self.server.memory().list(filter, page).await
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        self.server.memory().forget(slot).await
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        self.server.memory().extend(slot, extra).await
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        let memory = self.server.memory();
        memory.resolve(slot, response, keep_for).await
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        self.server.memory().sweep(records_max).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.server.memory().stats().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        self.server.memory().count_replays(replays).await
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.server.memory().agree(name, offer).await
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.server.memory().agreed(name).await
    }

    fn connected(&self) -> u64 {
        self.connected.load(Ordering::SeqCst)
    }
}

/// Longer than any test: nothing but the calls themselves looks.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// A secret of somebody else, as the store keeps it.
fn foreign() -> Vec<u8> {
    [b"S".as_slice(), &[9; SlotSecret::BYTES]].concat()
}

/// The server loses everything, and somebody else makes a secret there.
async fn begin_anew(server: &Server) {
    server.lose_everything();
    let kept = server.memory().agree("slot-secret", &foreign()).await;
    assert_eq!(kept.unwrap(), foreign());
}

/// An engine that looks at the agreement only when a call makes it.
async fn unhurried(line: &Arc<Line>) -> Node {
    let builder = Engine::builder(Arc::clone(line));
    node_of(builder.check_every(NEVER).sweep_every(NEVER)).await
}

fn secret(byte: u8) -> SlotSecret {
    SlotSecret::from_bytes([byte; SlotSecret::BYTES])
}

#[tokio::test(start_paused = true)]
async fn an_emptied_store_gets_the_secret_back_from_an_engine_that_runs() {
    let server = Arc::default();
    let line = Line::to(&server);
    let old = unhurried(&line).await;
    let (policy, work) = (policy(), Work::new());

    server.lose_everything();
    line.reconnect();
    assert_eq!(ran(&old.once("key", &policy, &work).await), "run 1");

    let new = unhurried(&Line::to(&server)).await;
    assert_eq!(replayed(&new.once("key", &policy, &work).await), "run 1");
    assert_eq!(work.starts(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_reconnect_nothing_runs_on_a_secret_that_is_not_the_stores() {
    let server = Arc::default();
    let line = Line::to(&server);
    let old = unhurried(&line).await;
    let (policy, work) = (policy(), Work::new());
    begin_anew(&server).await;
    let new = unhurried(&Line::to(&server)).await;
    assert_eq!(ran(&new.once("key", &policy, &work).await), "run 1");

    line.reconnect();
    let answer = old.once("key", &policy, &work).await;

    assert_eq!(refused(&answer), Reason::StoreDown);
    assert_eq!(work.starts(), 1);
    assert!(!old.engine.agrees() && new.engine.agrees());
    let said = old.heard.count(|event| {
        let kind = StoreErrorKind::Unsafe;
        matches!(event, Event::StoreFailed { kind: it, .. } if *it == kind)
    });
    assert_eq!(said, 1);
    // What was claimed under the wrong secret is given back.
    settle().await;
    assert_eq!(server.memory().stats().await.unwrap().pending, 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_reconnect_another_secret_is_noticed_within_a_second() {
    let server = Arc::default();
    let old = node_of(Engine::builder(Line::to(&server))).await;
    let (open, work) = (
        Policy {
            store_down: StoreDown::Open,
            ..policy()
        },
        Work::new(),
    );
    ran(&old.once("before", &open, &work).await);
    begin_anew(&server).await;

    tokio::time::sleep(Duration::from_millis(1_001)).await;

    // Neither what is new nor a replay, and not even where the policy is open.
    for key in ["before", "after"] {
        let answer = old.once(key, &open, &work).await;
        assert_eq!(refused(&answer), Reason::StoreDown, "{key}");
    }
    assert_eq!(work.starts(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_engine_serves_again_once_its_secret_is_back() {
    let server = Arc::default();
    let old = node_of(Engine::builder(Line::to(&server))).await;
    let kept = old.engine.store().operate().unwrap().agreed("slot-secret");
    let kept = kept.await.unwrap().unwrap();
    let (policy, work) = (policy(), Work::new());
    begin_anew(&server).await;
    let new = node_of(Engine::builder(Line::to(&server))).await;
    tokio::time::sleep(Duration::from_millis(1_001)).await;
    assert_eq!(
        refused(&old.once("key", &policy, &work).await),
        Reason::StoreDown
    );

    server.lose_everything();
    server.memory().agree("slot-secret", &kept).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_001)).await;

    assert_eq!(ran(&old.once("key", &policy, &work).await), "run 1");
    let answer = new.once("key", &policy, &work).await;
    assert_eq!(refused(&answer), Reason::StoreDown);
    assert_eq!(work.starts(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_marks_of_a_rotation_are_written_back_too() {
    let server = Arc::default();
    let both = Engine::builder(Line::to(&server)).secret(secret(2));
    let both = node_of(both.rotate_from(FormerSecret::Given(secret(1)))).await;
    let new = node_of(Engine::builder(Line::to(&server)).secret(secret(2))).await;
    let (policy, work) = (policy(), Work::new());

    server.lose_everything();
    tokio::time::sleep(Duration::from_millis(1_001)).await;

    let old = Engine::builder(Line::to(&server)).secret(secret(1));
    assert!(old.open().await.is_err(), "it was rotated away");
    assert_eq!(ran(&both.once("key", &policy, &work).await), "run 1");
    assert_eq!(replayed(&new.once("key", &policy, &work).await), "run 1");
}

#[tokio::test(start_paused = true)]
async fn an_engine_whose_secret_is_rotated_away_while_it_runs_serves_nobody() {
    let server = Arc::default();
    let old = node_of(Engine::builder(Line::to(&server)).secret(secret(1))).await;
    let both = Engine::builder(Line::to(&server)).secret(secret(2));
    let _both = node_of(both.rotate_from(FormerSecret::Given(secret(1)))).await;
    let (policy, work) = (policy(), Work::new());
    tokio::time::sleep(Duration::from_millis(1_001)).await;
    assert_eq!(ran(&old.once("key", &policy, &work).await), "run 1");

    let _new = node_of(Engine::builder(Line::to(&server)).secret(secret(2))).await;
    tokio::time::sleep(Duration::from_millis(1_001)).await;

    let answer = old.once("other", &policy, &work).await;
    assert_eq!(refused(&answer), Reason::StoreDown);
    assert_eq!(work.starts(), 1);
}

/// One engine calls over a new connection while another one starts on the emptied store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_and_a_start_that_race_on_an_emptied_store_run_a_key_once() {
    let policy = policy();
    for round in 0..200 {
        let server = Arc::<Server>::default();
        begin_anew(&server).await;
        let line = Line::to(&server);
        let (old, work) = (unhurried(&line).await, Work::new());
        server.lose_everything();
        line.reconnect();

        let starting = tokio::spawn({
            let (server, policy, work) = (Arc::clone(&server), policy.clone(), work.clone());
            async move {
                let new = unhurried(&Line::to(&server)).await;
                new.once("key", &policy, &work).await
            }
        });
        let calling = old.start("key", &policy, &work);
        let answers = [starting.await.unwrap(), calling.await.unwrap()];

        assert_eq!(work.starts(), 1, "round {round}: {answers:?}");
    }
}

/// Nothing tells the running engine that the store was emptied: it looks once a second.
#[tokio::test(start_paused = true)]
async fn a_process_that_starts_on_an_emptied_store_takes_the_secret_of_one_that_runs() {
    let server = Arc::default();
    let old = node_of(Engine::builder(Line::to(&server))).await;
    let (policy, work) = (policy(), Work::new());
    for round in 0..20 {
        tokio::time::sleep(Duration::from_millis(97)).await;
        server.lose_everything();
        let key = format!("key-{round}");

        ran(&old.once(&key, &policy, &work).await);
        let new = node_of(Engine::builder(Line::to(&server))).await;

        replayed(&new.once(&key, &policy, &work).await);
        assert!(old.engine.agrees() && new.engine.agrees(), "round {round}");
        assert_eq!(work.starts(), round + 1);
    }
}

/// It was stopped, or cut off, for longer than a new process waits for it.
#[tokio::test(start_paused = true)]
async fn an_engine_that_has_not_looked_for_a_while_runs_nothing_before_it_looks() {
    let server = Arc::default();
    let old = unhurried(&Line::to(&server)).await;
    let (policy, work) = (policy(), Work::new());
    server.lose_everything();
    let new = unhurried(&Line::to(&server)).await;
    assert_eq!(ran(&new.once("key", &policy, &work).await), "run 1");

    let answer = old.once("key", &policy, &work).await;

    assert_eq!(refused(&answer), Reason::StoreDown);
    assert_eq!(work.starts(), 1);
}
