//! PROTOCOL 19: while the slot secret is rotated, processes that know the old one, both, or the new
//! one find each other's records, and nothing runs twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce_core::engine::{FormerSecret, OpenError, Verdict};
use onlyonce_core::operate::{Filter, Operate as _, Page};
use onlyonce_core::{
    Engine, Event, Execution, Key, Lease, MemoryStore, OnLapse, Outcome, Policy, Reason, Release,
    Response, Slot, SlotSecret, Store,
};

use crate::support::{
    Fault, Node, Probe, Work, eventually, node_of, policy, ran, refused, replayed,
};

mod giving_up;
mod leaving;
mod resolving;
mod sharing;

const OLD: u8 = 1;
const NEW: u8 = 2;

fn secret(byte: u8) -> SlotSecret {
    SlotSecret::from_bytes([byte; SlotSecret::BYTES])
}

/// It does not look after its secret: these tests see what is under the old one through a process
/// that would serve nobody once it noticed that the new one is used alone.
async fn alone(store: &Arc<Probe>, byte: u8) -> Node {
    let builder = Engine::builder(Arc::clone(store)).secret(secret(byte));
    let never = Duration::from_secs(1_000_000);
    node_of(builder.check_every(never).sweep_every(never)).await
}

async fn both(store: &Arc<Probe>) -> Node {
    let builder = Engine::builder(Arc::clone(store)).secret(secret(NEW));
    node_of(builder.rotate_from(FormerSecret::Given(secret(OLD)))).await
}

/// A process with the old secret, one with both, one with the new one.
async fn all(store: &Arc<Probe>) -> [Node; 3] {
    let old = alone(store, OLD).await;
    let both = both(store).await;
    [old, both, alone(store, NEW).await]
}

#[tokio::test]
async fn a_finished_record_of_the_former_secret_still_replays() {
    let store = Arc::new(Probe::default());
    let [old, both, _] = all(&store).await;
    let (policy, work) = (Policy::default(), Work::new());
    assert_eq!(ran(&old.once("key", &policy, &work).await), "run 1");

    assert_eq!(replayed(&both.once("key", &policy, &work).await), "run 1");
    assert_eq!(both.heard.count(|event| event.name() == "replayed"), 1);
    let other = both.once_meaning("key", "other", &policy, &work).await;
    assert_eq!(refused(&other), Reason::Mismatch);
    assert_eq!(work.starts(), 1);
}

#[tokio::test]
async fn what_ran_under_both_is_found_under_either() {
    let store = Arc::new(Probe::default());
    let [old, both, new] = all(&store).await;
    let (policy, work) = (Policy::default(), Work::new());

    assert_eq!(ran(&both.once("key", &policy, &work).await), "run 1");

    for node in [&old, &both, &new] {
        assert_eq!(replayed(&node.once("key", &policy, &work).await), "run 1");
    }
    for told in ["claimed", "stored"] {
        assert_eq!(both.heard.count(|event| event.name() == told), 1, "{told}");
    }
}

#[tokio::test]
async fn what_ran_under_the_new_one_alone_is_found_with_both() {
    let store = Arc::new(Probe::default());
    let [_, both, new] = all(&store).await;
    let (policy, work) = (Policy::default(), Work::new());
    assert_eq!(ran(&new.once("key", &policy, &work).await), "run 1");

    for _ in 0..2 {
        assert_eq!(replayed(&both.once("key", &policy, &work).await), "run 1");
    }
    assert_eq!(work.starts(), 1);
}

/// Old and new alone never run at the same time in a rotation, and cannot see each other.
#[tokio::test(start_paused = true)]
async fn a_pending_record_excludes_whichever_secrets_the_other_knows() {
    for (holder, other) in [(0, 1), (1, 0), (1, 1), (1, 2), (2, 1)] {
        let store = Arc::new(Probe::default());
        let nodes = all(&store).await;
        let (policy, work) = (Policy::default(), Work::new().gated());
        let first = nodes[holder].start("key", &policy, &work);
        work.started().await;

        let second = nodes[other].start("key", &policy, &work);
        tokio::time::sleep(policy.lease_for * 2 / 3).await;
        assert_eq!(work.starts(), 1, "{holder} {other}");
        work.open();

        assert_eq!(ran(&first.await.unwrap()), "run 1", "{holder} {other}");
        assert_eq!(
            replayed(&second.await.unwrap()),
            "run 1",
            "{holder} {other}"
        );
        assert_eq!(work.starts(), 1, "{holder} {other}");
    }
}

#[tokio::test]
async fn what_did_not_run_or_is_unknown_is_so_under_both() {
    let store = Arc::new(Probe::default());
    let [old, both, new] = all(&store).await;
    let policy = Policy::default();
    for outcome in [Outcome::NotRun, Outcome::Unknown] {
        for (n, other) in [&old, &both, &new].into_iter().enumerate() {
            let key = format!("{outcome:?}-{n}");
            let failing = outcome.clone();
            let ended = Work::ending(move |_| failing.clone());
            refused(&both.once(&key, &policy, &ended).await);

            // The policy says rerun: whoever comes next runs it, without waiting for a lease.
            assert_eq!(ran(&other.once(&key, &policy, &Work::new()).await), "run 1");
        }
    }
}

#[tokio::test]
async fn held_by_hand_it_is_stored_under_both_too() {
    let store = Arc::new(Probe::default());
    let [old, both, new] = all(&store).await;
    let policy = Policy::default();
    let verdict = both
        .engine
        .begin(both.call("key", "the same", &policy))
        .await;
    let Verdict::Execute(held) = verdict else {
        panic!("it is new");
    };

    let response = Response::new(http::StatusCode::OK, "by hand");
    both.engine.finish(held, response.into()).await;

    for node in [&old, &both, &new] {
        let answer = node.once("key", &policy, &Work::new()).await;
        assert_eq!(replayed(&answer), "by hand");
    }
    let again = both
        .engine
        .begin(both.call("key", "the same", &policy))
        .await;
    assert!(matches!(again, Verdict::Replay(_)));
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_under_both_for_as_long_as_its_handler_asks() {
    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
    let store = Arc::new(Probe::default());
    let both = both(&store).await;
    let call = both.call("key", "the same", &Policy::default());

    let work = async move |execution: Execution| {
        execution.keep_for(WEEK);
        Response::new(http::StatusCode::OK, "kept").into()
    };
    both.engine.once(call, work).await;

    let page = Page {
        after: None,
        records_max: 10,
    };
    let listed = store.inner.list(&Filter::default(), &page).await.unwrap();
    let kept: Vec<_> = listed.iter().map(|(_, record)| record.keep_left).collect();
    assert_eq!(kept, [WEEK, WEEK]);
}

/// What waits for the store under the new secret is neither free nor in doubt under the old one.
#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_stored_yet_is_waited_for_under_both() {
    for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
        let store = Arc::new(Probe::default());
        let [old, both, new] = all(&store).await;
        let policy = Policy {
            on_lapse,
            ..policy()
        };
        store.completions.fail_next([Fault::LostBefore; 6]);
        let work = Work::new();

        let first = both.once("key", &policy, &work).await;
        let during = both.once("key", &policy, &work).await;
        let beside = old.once("key", &policy, &work).await;
        eventually(|| both.engine.in_flight() == 0).await;

        assert_eq!(refused(&first), Reason::NotStored, "{on_lapse:?}");
        assert_eq!(refused(&during), Reason::NotStored, "{on_lapse:?}");
        assert_eq!(replayed(&beside), "run 1", "{on_lapse:?}");
        for node in [&old, &both, &new] {
            let after = node.once("key", &policy, &work).await;
            assert_eq!(replayed(&after), "run 1", "{on_lapse:?}");
        }
        assert_eq!(work.starts(), 1, "{on_lapse:?}");
    }
}

/// Ends the lease that `both` has under the old secret, and only that one; says where it was.
async fn end_former_lease(store: &Probe, both: &Node, policy: &Policy) -> Slot {
    let former = both.engine.former().unwrap();
    let scope = both.engine.scope().with("test", "engine");
    let slot = former.slot(&scope, &Key::new("key", &policy.key).unwrap());
    let record = store.inner.get(&slot).await.unwrap().unwrap();
    let lease = Lease {
        slot,
        token: record.token,
        fingerprint: record.fingerprint,
        lease_for: policy.lease_for,
        keep_for: policy.keep_for,
        attempt: record.attempt,
    };
    store.inner.release(&lease, Release::Unknown).await.unwrap();
    slot
}

#[tokio::test(start_paused = true)]
async fn who_was_overtaken_under_the_old_secret_answers_with_what_is_stored_there() {
    let store = Arc::new(Probe::default());
    let [old, both, _] = all(&store).await;
    let (policy, work) = (policy(), Work::new().gated());
    let first = both.start("key", &policy, &work);
    work.started().await;
    end_former_lease(&store, &both, &policy).await;

    let other = Work::ending(|_| Response::new(http::StatusCode::OK, "another").into());
    assert_eq!(ran(&old.once("key", &policy, &other).await), "another");
    work.open();

    assert_eq!(replayed(&first.await.unwrap()), "another");
}

#[tokio::test(start_paused = true)]
async fn who_was_overtaken_while_it_ran_by_hand_answers_with_what_is_stored_too() {
    let store = Arc::new(Probe::default());
    let [old, both, _] = all(&store).await;
    let policy = policy();
    let call = both.call("key", "the same", &policy);
    let Verdict::Execute(held) = both.engine.begin(call).await else {
        panic!("it is new");
    };
    end_former_lease(&store, &both, &policy).await;

    let other = Work::ending(|_| Response::new(http::StatusCode::OK, "another").into());
    assert_eq!(ran(&old.once("key", &policy, &other).await), "another");
    let own = Response::new(http::StatusCode::OK, "by hand");
    let answer = both.engine.finish(held, own.into()).await;

    assert_eq!(replayed(&answer), "another");
}

#[tokio::test]
async fn a_job_is_found_under_both_too() {
    let store = Arc::new(Probe::default());
    let [old, both, new] = all(&store).await;
    let run = async |node: &Node, value: u32| {
        let work = move || async move { Ok::<_, String>(value) };
        node.engine.run("key", &(), work).await.unwrap().value
    };

    assert_eq!(run(&both, 1).await, 1);
    assert_eq!(run(&old, 2).await, 1);
    assert_eq!(run(&new, 3).await, 1);
}

/// Its policy does not store failures, but this job's answer is to be stored: under both secrets.
#[tokio::test]
async fn a_job_whose_value_cannot_be_written_runs_once_under_both() {
    let store = Arc::new(Probe::default());
    let nodes = all(&store).await;
    let runs = Arc::new(AtomicUsize::new(0));

    for node in [&nodes[1], &nodes[0], &nodes[2]] {
        let runs = Arc::clone(&runs);
        let work = async move || {
            runs.fetch_add(1, Ordering::SeqCst);
            Ok::<_, String>(HashMap::from([((1, 2), 3)]))
        };
        let ran = node
            .engine
            .run::<_, HashMap<(u8, u8), u8>, _, _, _>("key", "", work);

        assert!(ran.await.is_err());
    }

    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

async fn open(
    store: &Arc<MemoryStore>,
    own: Option<u8>,
    former: Option<FormerSecret>,
) -> Result<Engine, OpenError> {
    let mut builder = Engine::builder(Arc::clone(store) as Arc<dyn Store>);
    if let Some(byte) = own {
        builder = builder.secret(secret(byte));
    }
    if let Some(former) = former {
        builder = builder.rotate_from(former);
    }
    builder.open().await
}

#[tokio::test]
async fn a_secret_is_taken_only_in_the_order_of_a_rotation() {
    let given = |byte| Some(FormerSecret::Given(secret(byte)));
    let store = Arc::new(MemoryStore::new());
    let open = |own, former| open(&store, own, former);
    open(Some(OLD), None).await.unwrap();
    // Nothing was rotated yet: another secret is a mistake.
    let early = open(Some(NEW), None).await;
    assert!(matches!(early, Err(OpenError::SecretMismatch)));

    open(Some(NEW), given(OLD)).await.unwrap();
    open(Some(OLD), None).await.unwrap();
    let elsewhere = open(Some(3), given(OLD)).await;
    assert!(matches!(elsewhere, Err(OpenError::SecretMismatch)));
    let from_nowhere = open(Some(NEW), given(9)).await;
    assert!(matches!(from_nowhere, Err(OpenError::SecretMismatch)));

    open(Some(NEW), None).await.unwrap();
    // Whoever is late with both still stores for all; with the old one alone it would not.
    open(Some(NEW), given(OLD)).await.unwrap();
    let late = open(Some(OLD), None).await;
    assert!(matches!(late, Err(OpenError::SecretRotated)));

    // And the next rotation.
    open(Some(3), given(NEW)).await.unwrap();
    open(Some(3), None).await.unwrap();
    let late = open(Some(NEW), None).await;
    assert!(matches!(late, Err(OpenError::SecretRotated)));
}

#[tokio::test]
async fn a_secret_that_the_store_keeps_can_be_rotated() {
    let store = Arc::new(MemoryStore::new());
    let open = |own, former| open(&store, own, former);
    let nothing = open(Some(NEW), Some(FormerSecret::Kept)).await;
    assert!(matches!(nothing, Err(OpenError::SecretMismatch)));
    let kept = open(None, None).await.unwrap();

    let both = open(Some(NEW), Some(FormerSecret::Kept)).await.unwrap();

    let scope = kept.scope();
    let key = Key::new("key", &onlyonce_core::KeyRule::default()).unwrap();
    let former = both.former().expect("it rotates");
    assert_eq!(former.slot(&scope, &key), kept.slot(&scope, &key));
    open(None, None).await.unwrap();
    open(Some(NEW), None).await.unwrap();
    let late = open(None, None).await;
    assert!(matches!(late, Err(OpenError::SecretRotated)));
    let unnamed = open(None, Some(FormerSecret::Kept)).await;
    assert!(matches!(unnamed, Err(OpenError::SecretMissing)));
}

#[tokio::test]
async fn shutting_down_waits_for_both() {
    let store = Arc::new(Probe::default());
    let node = both(&store).await;
    let (policy, work) = (Policy::default(), Work::new().gated());
    let running = node.start("key", &policy, &work);
    work.started().await;

    let engine = node.engine.clone();
    let stopping = tokio::spawn(async move { engine.shutdown(policy.lease_for).await });
    tokio::task::yield_now().await;
    work.open();

    assert_eq!(stopping.await.unwrap(), 0);
    assert_eq!(ran(&running.await.unwrap()), "run 1");
    assert_eq!(
        node.heard
            .count(|event| matches!(event, Event::Stored { .. })),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn who_waits_under_the_old_secret_is_counted_as_in_flight() {
    let store = Arc::new(Probe::default());
    let [old, both, _] = all(&store).await;
    let (policy, work) = (policy(), Work::new().gated());
    let running = old.start("key", &policy, &work);
    work.started().await;

    let waiting = [0, 1].map(|_| both.start("key", &policy, &work));
    tokio::time::sleep(policy.lease_for / 3).await;
    let (in_flight, load) = (both.engine.in_flight(), both.engine.load());
    work.open();

    assert_eq!((in_flight, load.running, load.waiting), (1, 0, 1));
    for waiting in waiting {
        assert_eq!(replayed(&waiting.await.unwrap()), "run 1");
    }
    running.await.unwrap();
    assert_eq!(both.engine.in_flight(), 0);
}
