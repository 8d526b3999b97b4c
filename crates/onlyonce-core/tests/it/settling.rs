//! PROTOCOL 34 without a retry: what lapsed is looked up in the background, under a granted lease, and only
//! what certainly happened changes a record.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::engine::FormerSecret;
use onlyonce_core::engine::settler::{Round, Settler};
use onlyonce_core::event::Found;
use onlyonce_core::operate::Resolved;
use onlyonce_core::{
    Answer, Claim, Claimed, Engine, Event, Finding, OnLapse, Operate as _, Outcome, Reconcile,
    Record, Response, SlotSecret, Store as _, Token,
};

use crate::support::{
    Fault, Node, Probe, Work, bed, eventually, fingerprint, meta, node, node_of, policy, ran,
    replayed,
};

const EVERY: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(60 * 60);

/// What is asked, and what it says: call by call, and the last one for ever.
#[derive(Clone)]
struct Asked {
    ids: Arc<Mutex<Vec<String>>>,
    findings: Arc<Mutex<Vec<Finding>>>,
    takes: Duration,
}

impl Asked {
    fn saying(findings: impl IntoIterator<Item = Finding>) -> Self {
        let mut findings: Vec<_> = findings.into_iter().collect();
        findings.reverse();
        Self {
            ids: Arc::default(),
            findings: Arc::new(Mutex::new(findings)),
            takes: Duration::ZERO,
        }
    }

    fn taking(mut self, takes: Duration) -> Self {
        self.takes = takes;
        self
    }

    fn count(&self) -> usize {
        self.ids.lock().unwrap().len()
    }

    async fn say(self, id: String) -> Finding {
        self.ids.lock().unwrap().push(id);
        tokio::time::sleep(self.takes).await;
        let mut findings = self.findings.lock().unwrap();
        match findings.len() {
            1 => findings[0].clone(),
            _ => findings.pop().unwrap(),
        }
    }

    fn settler(&self, node: &Node) -> Settler {
        let asked = self.clone();
        Settler::new(&node.engine, "test", &policy(), EVERY, move |unsettled| {
            assert!(unsettled.attempt() > 1);
            asked.clone().say(unsettled.operation().to_string())
        })
    }

    fn reconcile(&self) -> Reconcile {
        let asked = self.clone();
        Reconcile::new(move |execution| asked.clone().say(execution.operation().to_string()))
    }
}

fn happened() -> Finding {
    Finding::happened(Response::new(StatusCode::CREATED, "found"))
}

/// A process that claimed this key's slot and was never heard of again.
async fn claimed(store: &Arc<Probe>, key: &str, on_lapse: OnLapse, keep_for: Duration) {
    let ghost = node(store).await;
    let claim = Claim {
        slot: *ghost.call(key, "the same", &policy()).slot(),
        fingerprint: fingerprint("the same"),
        token: Token::from_bytes(*b"0123456789abcdef"),
        on_lapse,
        must_last: false,
        lease_for: policy().lease_for,
        keep_for,
        meta: meta(),
    };
    let claimed = store.claim(&claim).await.unwrap();
    assert!(matches!(claimed, Claimed::Granted { .. }), "it was free");
}

/// The same until its lease has lapsed.
async fn crash(store: &Arc<Probe>, key: &str) {
    claimed(store, key, OnLapse::Rerun, policy().keep_for).await;
    tokio::time::sleep(policy().lease_for * 2).await;
}

async fn record(store: &Arc<Probe>, node: &Node, key: &str) -> Record {
    let slot = *node.call(key, "the same", &policy()).slot();
    store.inner.get(&slot).await.unwrap().unwrap()
}

async fn retry(node: &Node, key: &str, asked: &Asked, work: &Work) -> Answer {
    let call = node.call(key, "the same", &policy());
    let (call, work) = (call.reconcile(asked.reconcile()), work.clone());
    node.engine.once(call, move |_| work.run()).await
}

fn counts(round: Round) -> (usize, usize, usize) {
    (round.happened, round.did_not, round.cannot_tell)
}

#[tokio::test(start_paused = true)]
async fn what_happened_has_its_answer_before_anyone_retries() {
    let (store, node) = bed().await;
    crash(&store, "key").await;
    let asked = Asked::saying([happened()]);

    let round = asked.settler(&node).round().await.unwrap();

    assert_eq!(counts(round), (1, 0, 0));
    let is_told = |event: &Event| {
        matches!(
            event,
            Event::Reconciled {
                found: Found::Happened,
                attempt: 2,
                in_background: true,
                ..
            }
        )
    };
    assert_eq!(node.heard.count(is_told), 1);
    let work = Work::new();
    let answer = retry(&node, "key", &asked, &work).await;
    assert_eq!(replayed(&answer), "found");
    assert_eq!((work.starts(), asked.count()), (0, 1));
    let record = record(&store, &node, "key").await;
    assert!(record.keep_left > policy().keep_for - Duration::from_secs(1));
}

/// The id that is asked about is the one that the handler had.
#[tokio::test(start_paused = true)]
async fn an_operation_is_asked_about_by_the_id_that_its_attempts_had() {
    let (_, node) = bed().await;
    let had = Arc::new(Mutex::new(String::new()));
    let noted = Arc::clone(&had);
    let nobody = Asked::saying([Finding::CannotTell]);
    let call = node.call("key", "the same", &policy());
    let lost = node
        .engine
        .once(call.reconcile(nobody.reconcile()), move |execution| {
            *noted.lock().unwrap() = execution.operation().to_string();
            async { Outcome::Unknown }
        });
    lost.await;
    tokio::time::sleep(EVERY * 2).await;
    let asked = Asked::saying([happened()]);

    asked.settler(&node).round().await.unwrap();

    assert_eq!(*asked.ids.lock().unwrap(), [had.lock().unwrap().clone()]);
}

#[tokio::test(start_paused = true)]
async fn what_did_not_happen_or_cannot_be_told_is_neither_run_nor_forgotten() {
    for finding in [Finding::DidNot, Finding::CannotTell] {
        let (store, node) = bed().await;
        crash(&store, "key").await;
        let before = record(&store, &node, "key").await;
        let asked = Asked::saying([finding]);

        asked.settler(&node).round().await.unwrap();

        let after = record(&store, &node, "key").await;
        assert!(after.is_lapsed(), "{after:?}");
        assert_eq!(after.fingerprint, before.fingerprint);
        assert_eq!((asked.count(), after.attempt), (1, 2));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (said, work) = (Asked::saying([Finding::DidNot]), Work::new());
        assert_eq!(ran(&retry(&node, "key", &said, &work).await), "run 1");
        assert_eq!(said.count(), 1, "a retry looks for itself");
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_takes_too_long_or_panics_cannot_tell() {
    let (store, node) = bed().await;
    crash(&store, "key").await;
    let slow = Asked::saying([happened()]).taking(Duration::from_secs(60));
    let mut panics = Settler::new(&node.engine, "test", &policy(), EVERY, |_| async {
        panic!("as told")
    });

    let mut slow = slow.settler(&node).within(Duration::from_secs(5));
    let first = slow.round().await.unwrap();
    tokio::time::sleep(EVERY * 4).await;
    panics.round().await.unwrap();
    tokio::time::sleep(EVERY * 4).await;
    let second = panics.round().await.unwrap();

    assert_eq!(counts(first), (0, 0, 1));
    assert_eq!(counts(second), (0, 0, 1));
    assert!(record(&store, &node, "key").await.is_lapsed());
}

/// The pauses are known from the record: no process needs to hear of another one's looks.
#[tokio::test(start_paused = true)]
async fn of_many_processes_one_asks_and_all_wait_for_a_pause_that_doubles() {
    let store = Arc::new(Probe::default());
    crash(&store, "key").await;
    let asked = Asked::saying([Finding::CannotTell]).taking(Duration::from_millis(100));
    let mut settlers = Vec::new();
    for _ in 0..4 {
        settlers.push(asked.settler(&node(&store).await));
    }

    let mut looks = Vec::new();
    for _ in 0..72 {
        for settler in &mut settlers {
            settler.round().await.unwrap();
        }
        looks.push(asked.count());
        tokio::time::sleep(EVERY / 4).await;
    }

    // 18 minutes: at 0, and then some 1, 3, 7 and 15 minutes later.
    assert_eq!((looks[0], looks[3], looks[71]), (1, 1, 5), "{looks:?}");
}

/// A client may retry all the time, and its looks may find nothing out where the service's own would.
#[tokio::test(start_paused = true)]
async fn retries_put_no_look_in_the_background_off() {
    for is_elsewhere in [false, true] {
        let (store, looking) = bed().await;
        crash(&store, "key").await;
        let caller = match is_elsewhere {
            true => node(&store).await,
            false => looking.clone(),
        };
        let (nobody, work) = (Asked::saying([Finding::CannotTell]), Work::new());
        let asked = Asked::saying([Finding::CannotTell]);
        let mut settler = asked.settler(&looking);

        for second in 0..18 * 60 {
            if second % 15 == 0 {
                settler.round().await.unwrap();
            }
            if second % 5 == 3 {
                retry(&caller, "key", &nobody, &work).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }

        // As without them: at 0, and then some 1, 3, 7 and 15 minutes later.
        assert_eq!(asked.count(), 5, "elsewhere: {is_elsewhere}");
        assert_eq!(work.starts(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn of_processes_that_look_at_the_same_time_one_asks() {
    let store = Arc::new(Probe::default());
    crash(&store, "key").await;
    let asked = Asked::saying([happened()]).taking(Duration::from_secs(2));

    let mut rounds = Vec::new();
    for _ in 0..4 {
        let mut settler = asked.settler(&node(&store).await);
        rounds.push(tokio::spawn(async move { settler.round().await }));
    }

    let mut all = 0;
    for round in rounds {
        all += round.await.unwrap().unwrap().happened;
    }
    assert_eq!((all, asked.count()), (1, 1));
}

/// A caller that comes meanwhile, here or elsewhere, waits for what is found.
#[tokio::test(start_paused = true)]
async fn a_retry_during_a_look_gets_what_the_look_finds() {
    for is_elsewhere in [false, true] {
        for (finding, wanted) in [(happened(), "found"), (Finding::DidNot, "run 1")] {
            let (store, looking) = bed().await;
            crash(&store, "key").await;
            let asked = Asked::saying([finding]).taking(Duration::from_secs(2));
            let mut settler = asked.settler(&looking);
            let caller = match is_elsewhere {
                true => node(&store).await,
                false => looking.clone(),
            };
            let round = tokio::spawn(async move { settler.round().await });
            eventually(|| asked.count() == 1).await;

            let work = Work::new();
            let answer = retry(&caller, "key", &asked, &work).await;

            round.await.unwrap().unwrap();
            let said = match wanted {
                "found" => replayed(&answer),
                _ => ran(&answer),
            };
            assert_eq!(said, wanted);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_held_has_ended_or_has_another_name_is_not_asked_about() {
    let (store, node) = bed().await;
    claimed(&store, "held", OnLapse::Hold, policy().keep_for).await;
    claimed(&store, "soon-gone", OnLapse::Rerun, policy().lease_for).await;
    let work = Work::new();
    retry(&node, "ended", &Asked::saying([Finding::CannotTell]), &work).await;
    tokio::time::sleep(policy().lease_for * 3 / 2).await;
    claimed(&store, "runs", OnLapse::Rerun, policy().keep_for).await;
    let asked = Asked::saying([happened()]);

    let round = asked.settler(&node).round().await.unwrap();

    assert_eq!((counts(round), asked.count()), ((0, 0, 0), 0));
    crash(&store, "key").await;
    let says = asked.clone();
    let mut other = Settler::new(&node.engine, "other", &policy(), EVERY, move |it| {
        says.clone().say(it.operation().to_string())
    });
    other.round().await.unwrap();
    assert_eq!(asked.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn looks_do_not_make_a_record_live_longer() {
    let (store, node) = bed().await;
    let keep_for = Duration::from_secs(3600);
    claimed(&store, "key", OnLapse::Rerun, keep_for).await;
    let until = record(&store, &node, "key").await.expires_at.as_millis();
    let asked = Asked::saying([Finding::CannotTell]);
    let mut settler = asked.settler(&node);

    let mut rounds = 0;
    while store.inner.stats().await.unwrap().pending > 0 {
        settler.round().await.unwrap();
        tokio::time::sleep(EVERY).await;
        rounds += 1;
        assert!(rounds < 100, "it lives on");
        let slot = *node.call("key", "the same", &policy()).slot();
        if let Some(record) = store.inner.get(&slot).await.unwrap() {
            assert!(record.expires_at.as_millis() <= until, "{record:?}");
        }
        store.inner.sweep(10).await.unwrap();
    }

    assert!(asked.count() >= 4, "{}", asked.count());
}

/// An upstream that is down is not asked about everything there is.
#[tokio::test(start_paused = true)]
async fn a_round_ends_after_three_looks_in_a_row_that_cannot_tell_and_the_next_goes_on() {
    let (store, node) = bed().await;
    for number in 0..10 {
        claimed(
            &store,
            &format!("key-{number}"),
            OnLapse::Rerun,
            policy().keep_for,
        )
        .await;
    }
    tokio::time::sleep(policy().lease_for * 2).await;
    let asked = Asked::saying([Finding::CannotTell]);
    let mut settler = asked.settler(&node);

    let mut looks = Vec::new();
    for _ in 0..5 {
        settler.round().await.unwrap();
        looks.push(asked.count());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    assert_eq!(looks, [3, 6, 9, 10, 10]);
    let ids: std::collections::BTreeSet<_> = asked.ids.lock().unwrap().iter().cloned().collect();
    assert_eq!(ids.len(), 10, "each was asked about once");
}

/// What was there when it was listed has gone before it is claimed: nothing is left in the slot.
#[tokio::test(start_paused = true)]
async fn a_slot_that_became_free_stays_free() {
    let (store, node) = bed().await;
    crash(&store, "key").await;
    let slot = *node.call("key", "the same", &policy()).slot();
    store
        .claims
        .fail_next([Fault::SlowBefore(Duration::from_secs(1))]);
    let asked = Asked::saying([happened()]);
    let mut settler = asked.settler(&node);
    let round = tokio::spawn(async move { settler.round().await });
    eventually(|| store.claims.count() == 2).await;

    store.inner.forget(&slot).await.unwrap();

    let round = round.await.unwrap().unwrap();
    assert_eq!((counts(round), asked.count()), ((0, 0, 0), 0));
    assert!(store.inner.get(&slot).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_settled_while_the_secret_is_rotated() {
    let secret = |byte| SlotSecret::from_bytes([byte; SlotSecret::BYTES]);
    let store = Arc::new(Probe::default());
    let old = node_of(Engine::builder(Arc::clone(&store)).secret(secret(1))).await;
    let lost = Work::ending(|_| Outcome::Unknown);
    let nothing = Asked::saying([Finding::CannotTell]);
    retry(&old, "key", &nothing, &lost).await;
    let both = Engine::builder(Arc::clone(&store)).secret(secret(2));
    let both = node_of(both.rotate_from(FormerSecret::Given(secret(1)))).await;
    let asked = Asked::saying([happened()]);

    let round = asked.settler(&both).round().await.unwrap();

    assert_eq!((counts(round), asked.count()), ((0, 0, 0), 0));
}

/// A holder that was only slow does not overwrite what was found.
#[tokio::test(start_paused = true)]
async fn a_late_holder_gets_what_a_look_has_found() {
    let (store, slow) = bed().await;
    // None of its renewals arrives.
    store.renewals.fail_next([Fault::LostBefore; 1000]);
    let work = Work::new().gated();
    let late = {
        let (slow, work) = (slow.clone(), work.clone());
        let nobody = Asked::saying([Finding::CannotTell]);
        tokio::spawn(async move { retry(&slow, "key", &nobody, &work).await })
    };
    work.started().await;
    tokio::time::sleep(policy().lease_for * 2).await;
    let asked = Asked::saying([happened()]);

    let round = asked.settler(&node(&store).await).round().await.unwrap();
    work.open();

    assert_eq!(counts(round), (1, 0, 0));
    match late.await.unwrap() {
        Answer::Ran { response, .. } => assert_eq!(response.body, "found"),
        other => assert_eq!(replayed(&other), "found"),
    }
}

/// During a look the claim is a live one: an operator is told so, and what is found counts. Before it, the
/// operator's word counts, and nobody asks.
#[tokio::test(start_paused = true)]
async fn of_an_operator_and_a_look_one_settles_it_and_the_other_is_told() {
    let (store, looking) = bed().await;
    for key in ["looked-at", "resolved"] {
        crash(&store, key).await;
    }
    let slot = |key: &str| *looking.call(key, "the same", &policy()).slot();
    let by_hand = Arc::new(Response::new(StatusCode::OK, "by hand"));
    let resolve = |key| {
        let (store, slot, by_hand) = (Arc::clone(&store), slot(key), Arc::clone(&by_hand));
        async move { store.inner.resolve(&slot, &by_hand, LONG).await.unwrap() }
    };
    assert!(matches!(resolve("resolved").await, Resolved::Stored));
    let asked = Asked::saying([happened()]).taking(Duration::from_secs(2));
    let mut settler = asked.settler(&looking);
    let round = tokio::spawn(async move { settler.round().await });
    eventually(|| asked.count() == 1).await;

    let during = resolve("looked-at").await;
    let round = round.await.unwrap().unwrap();
    let after = resolve("looked-at").await;

    for told in [during, after] {
        assert!(matches!(told, Resolved::Found(_)), "{told:?}");
    }
    assert_eq!((counts(round), asked.count()), ((1, 0, 0), 1));
    let (nobody, work) = (Asked::saying([Finding::CannotTell]), Work::new());
    for (key, wanted) in [("looked-at", "found"), ("resolved", "by hand")] {
        let answer = retry(&looking, key, &nobody, &work).await;
        assert_eq!(replayed(&answer), wanted);
    }
    assert_eq!(work.starts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_in_the_middle_of_settling_makes_nothing_run_and_nothing_forgotten() {
    for lost in [Fault::LostBefore, Fault::LostAfter] {
        for finding in [happened(), Finding::DidNot, Finding::CannotTell] {
            let (store, looking) = bed().await;
            crash(&store, "key").await;
            let asked = Asked::saying([finding.clone()]);
            let mut settler = asked.settler(&looking);
            store.completions.fail_next([lost; 2]);
            store.releases.fail_next([lost; 2]);

            let round = settler.round().await.unwrap();
            tokio::time::sleep(policy().lease_for * 2).await;

            assert_eq!(asked.count(), 1);
            let (work, still) = (Work::new(), Asked::saying([happened()]));
            let answer = retry(&node(&store).await, "key", &still, &work).await;
            match counts(round) {
                (1, 0, 0) => assert_eq!(replayed(&answer), "found"),
                _ => assert_eq!(ran(&answer), "found"),
            }
            assert_eq!(work.starts(), 0);
        }
    }
}
