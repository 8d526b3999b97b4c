//! Leases: renewed while the handler runs, taken over or held when they lapse, fenced after.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::operate::Resolved;
use onlyonce_core::{
    Claimed, Engine, Event, OnLapse, Operate, Policy, Reason, Response, Store, Token, Verdict,
};

use crate::support::{
    Fault, Node, Probe, Work, bed, eventually, node, policy, ran, refused, replayed,
};

/// A process that claimed the slot and was never heard of again.
async fn crash_while_running(node: &Node, store: &Arc<Probe>, policy: &Policy) {
    let ghost = Engine::open(Arc::clone(store)).await.unwrap();
    let call = node.call("key", "the same", policy);
    let Verdict::Execute(held) = ghost.begin(call).await else {
        panic!("the slot was free");
    };
    // Frozen for ever: neither finished nor dropped, and its renewals reach nobody.
    std::mem::forget(held);
    store.renewals.fail_next([Fault::LostBefore; 1000]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_keeps_its_claim() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    let slow = Work::new().taking(Duration::from_secs(25));
    let holder = first.start("key", &policy(), &slow);
    slow.started().await;

    let waiter = second.once("key", &policy(), &slow).await;

    assert_eq!(replayed(&waiter), "run 1");
    assert_eq!(ran(&holder.await.unwrap()), "run 1");
    assert_eq!(slow.starts(), 1);
    assert!(store.renewals.count() >= 24, "renewed at a third of 3 s");
}

/// A lease of nothing would be renewed in a loop that never ends, one of for ever has no third.
#[tokio::test(start_paused = true)]
async fn a_lease_that_makes_no_sense_neither_spins_nor_keeps_a_call_from_ending() {
    for lease_for in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let (store, node) = bed().await;
        let nonsense = Policy {
            lease_for,
            ..policy()
        };
        let slow = Work::new().taking(Duration::from_secs(1));

        let answer = node.once("key", &nonsense, &slow).await;

        assert_eq!(ran(&answer), "run 1");
        assert!(store.renewals.count() <= 400, "one each 3 ms at most");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_keeps_its_claim() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    let short = Policy {
        lease_for: Duration::from_secs(6),
        ..policy()
    };
    let call = first.call("key", "the same", &short);
    let holder = tokio::spawn(async move {
        let work = |_| async {
            std::thread::sleep(Duration::from_secs(8));
            Response::new(StatusCode::OK, "blocked").into()
        };
        first.engine.once(call, work).await
    });
    eventually(|| store.claims.count() == 1).await;

    let work = Work::new();
    let waiter = second.once("key", &short, &work).await;

    assert_eq!(replayed(&waiter), "blocked");
    assert_eq!(work.starts(), 0);
    assert_eq!(ran(&holder.await.unwrap()), "blocked");
}

#[tokio::test(start_paused = true)]
async fn a_crashed_holder_is_taken_over_after_its_lease() {
    let (store, node) = bed().await;
    crash_while_running(&node, &store, &policy()).await;
    let work = Work::new();

    let before = tokio::time::Instant::now();
    let answer = node.once("key", &policy(), &work).await;

    assert_eq!(ran(&answer), "run 1");
    let waited = before.elapsed();
    assert!(
        waited >= Duration::from_secs(3),
        "not before the lease ended"
    );
    assert!(
        waited < Duration::from_secs(4),
        "but soon after: {waited:?}"
    );
    let since = Duration::from_secs(3);
    assert_eq!(
        node.heard
            .count(|it| matches!(it, Event::TookOver { age, .. } if *age >= since)),
        1
    );
    assert_eq!(
        node.heard
            .count(|it| matches!(it, Event::Claimed { attempt: 2, .. })),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_crashed_holder_is_not_stuck_for_the_whole_retention() {
    let (store, node) = bed().await;
    crash_while_running(&node, &store, &policy()).await;
    tokio::time::advance(Duration::from_secs(4)).await;

    let answer = node.once("key", &policy(), &Work::new()).await;

    assert_eq!(ran(&answer), "run 1");
}

#[tokio::test(start_paused = true)]
async fn what_is_held_never_runs_twice_until_an_operator_resolves_it() {
    let (store, node) = bed().await;
    let hold = Policy {
        on_lapse: OnLapse::Hold,
        ..policy()
    };
    crash_while_running(&node, &store, &hold).await;
    tokio::time::advance(Duration::from_secs(60)).await;
    let work = Work::new();

    let during = node.once("key", &hold, &work).await;
    let slot = *node.call("key", "the same", &hold).slot();
    let answer = Arc::new(Response::new(StatusCode::CREATED, "by hand"));
    let resolved = store.inner.resolve(&slot, &answer, hold.keep_for).await;

    assert_eq!(refused(&during), Reason::OutcomeUnknown);
    assert!(matches!(resolved, Ok(Resolved::Stored)));
    assert_eq!(replayed(&node.once("key", &hold, &work).await), "by hand");
    assert_eq!(work.starts(), 0);
}

#[tokio::test(start_paused = true)]
async fn when_two_sides_differ_hold_wins() {
    let hold = Policy {
        on_lapse: OnLapse::Hold,
        ..policy()
    };
    for (theirs, ours) in [(&hold, &policy()), (&policy(), &hold)] {
        let (store, node) = bed().await;
        crash_while_running(&node, &store, theirs).await;
        tokio::time::advance(Duration::from_secs(60)).await;

        let answer = node.once("key", ours, &Work::new()).await;

        assert_eq!(refused(&answer), Reason::OutcomeUnknown);
    }
}

#[tokio::test(start_paused = true)]
async fn an_overtaken_holder_answers_with_the_stored_result() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    let slow = Work::new().gated();
    let overtaken = first.start("key", &policy(), &slow);
    slow.started().await;
    store.renewals.fail_next([Fault::LostBefore; 1000]);

    let quick = Work::ending(|_| Response::new(StatusCode::OK, "the new owner's").into());
    let winner = second.once("key", &policy(), &quick).await;
    slow.open();

    assert_eq!(ran(&winner), "the new owner's");
    assert_eq!(replayed(&overtaken.await.unwrap()), "the new owner's");
    assert_eq!(first.heard.count(|it| matches!(it, Event::Overtaken)), 1);
    assert_eq!(
        replayed(&first.once("key", &policy(), &slow).await),
        "the new owner's"
    );
}

#[tokio::test(start_paused = true)]
async fn an_overtaken_holder_waits_for_the_one_who_runs_now() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    let slow = Work::new().gated();
    let overtaken = first.start("key", &policy(), &slow);
    slow.started().await;
    store.renewals.fail_next([Fault::LostBefore; 10]);
    let next = Work::ending(|_| Response::new(StatusCode::OK, "the new owner's").into()).gated();
    let winner = second.start("key", &policy(), &next);
    eventually(|| next.starts() == 1).await;

    slow.open();
    eventually(|| slow.ends() == 1).await;
    next.open();

    assert_eq!(ran(&winner.await.unwrap()), "the new owner's");
    assert_eq!(replayed(&overtaken.await.unwrap()), "the new owner's");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_noticed_while_the_handler_runs() {
    let (store, node) = bed().await;
    let call = node.call("key", "the same", &policy());
    let Verdict::Execute(held) = node.engine.begin(call).await else {
        panic!("the slot was free");
    };
    assert!(!held.execution().is_lost());

    store
        .inner
        .forget(&held.execution().lease().unwrap().slot)
        .await
        .unwrap();
    eventually(|| held.execution().is_lost()).await;

    assert_eq!(node.heard.count(|it| matches!(it, Event::LeaseLost)), 1);
}

/// Four times in a row its record is in a transaction's hands: at the usual pace of renewals that
/// would last beyond the lease.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_changed_nothing_is_tried_again_soon() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    store.busy.store(4, Ordering::SeqCst);
    let slow = Work::new().taking(Duration::from_secs(5));
    let holder = first.start("key", &policy(), &slow);
    slow.started().await;

    let waiter = second.once("key", &policy(), &slow).await;

    assert_eq!(replayed(&waiter), "run 1");
    assert_eq!(ran(&holder.await.unwrap()), "run 1");
    assert_eq!(slow.starts(), 1);
    let trouble = |it: &Event| matches!(it, Event::LeaseLost | Event::StoreFailed { .. });
    assert_eq!(first.heard.count(trouble), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_on_a_late_lease_that_cannot_be_renewed() {
    let (store, node) = bed().await;
    store
        .claims
        .fail_next([Fault::SlowAfter(Duration::from_millis(2500))]);
    store.busy.store(1, Ordering::SeqCst);
    let work = Work::new();

    let answer = node.once("key", &policy(), &work).await;

    assert_eq!(ran(&answer), "run 1");
    assert_eq!(
        store.claims.count(),
        2,
        "asked again, as after a lost reply"
    );
}

/// docs/protocol.md#rule-8: a grant that took long to arrive is renewed before the handler starts.
#[tokio::test(start_paused = true)]
async fn a_lease_that_arrives_late_is_renewed_before_the_handler_starts() {
    let (store, node) = bed().await;
    store
        .claims
        .fail_next([Fault::SlowAfter(Duration::from_millis(2500))]);
    let work = Work::new();

    let answer = node.once("key", &policy(), &work).await;

    assert_eq!(ran(&answer), "run 1");
    assert_eq!(store.renewals.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_arrives_dead_starts_nothing() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    store
        .claims
        .fail_next([Fault::SlowAfter(Duration::from_secs(10))]);
    let late = Work::ending(|_| Response::new(StatusCode::OK, "late").into());
    let caller = first.start("key", &policy(), &late);
    eventually(|| store.claims.count() == 1).await;
    tokio::time::advance(Duration::from_secs(4)).await;

    let quick = second.once("key", &policy(), &Work::new()).await;

    assert_eq!(ran(&quick), "run 1");
    assert_eq!(replayed(&caller.await.unwrap()), "run 1");
    assert_eq!(late.starts(), 0);
}

/// A clock that is off by hours, and jumps as it is read.
struct Skewed {
    real: onlyonce_core::SystemClock,
    offset: Duration,
}

impl onlyonce_core::Clock for Skewed {
    fn now(&self) -> Duration {
        self.real.now() + self.offset
    }

    fn wall(&self) -> onlyonce_core::Timestamp {
        onlyonce_core::Timestamp::from_millis(1)
    }
}

#[tokio::test(start_paused = true)]
async fn a_skewed_application_clock_neither_ends_nor_prolongs_a_lease() {
    for offset in [Duration::ZERO, Duration::from_secs(100_000)] {
        let (store, honest) = bed().await;
        let clock = Skewed {
            real: onlyonce_core::SystemClock::new(),
            offset,
        };
        let heard = Arc::default();
        let engine = Engine::builder(Arc::clone(&store)).clock(Arc::new(clock));
        let engine = engine.open().await.unwrap();
        let skewed = Node { engine, heard };

        let slow = Work::new().taking(Duration::from_secs(20));
        let holder = skewed.start("held", &policy(), &slow);
        slow.started().await;
        let waiter = honest.once("held", &policy(), &slow).await;

        let theirs = Work::new().taking(Duration::from_secs(20));
        let other_holder = honest.start("waited-for", &policy(), &theirs);
        theirs.started().await;
        let other_waiter = skewed.once("waited-for", &policy(), &theirs).await;

        assert_eq!((slow.starts(), theirs.starts()), (1, 1));
        assert_eq!(replayed(&waiter), "run 1");
        assert_eq!(replayed(&other_waiter), "run 1");
        assert_eq!(ran(&holder.await.unwrap()), "run 1");
        assert_eq!(ran(&other_holder.await.unwrap()), "run 1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_crashed_holder_is_taken_over_in_time_by_a_process_whose_clock_is_off() {
    let (store, honest) = bed().await;
    crash_while_running(&honest, &store, &policy()).await;
    let clock = Skewed {
        real: onlyonce_core::SystemClock::new(),
        offset: Duration::from_secs(100_000),
    };
    let heard = Arc::default();
    let engine = Engine::builder(Arc::clone(&store)).clock(Arc::new(clock));
    let engine = engine.open().await.unwrap();
    let skewed = Node { engine, heard };

    let before = tokio::time::Instant::now();
    let answer = skewed.once("key", &policy(), &Work::new()).await;

    assert_eq!(ran(&answer), "run 1");
    assert!(
        before.elapsed() >= Duration::from_secs(3),
        "not before the lease ended"
    );
}

#[tokio::test(start_paused = true)]
async fn a_live_record_is_never_taken_for_an_orphan() {
    let (store, first) = bed().await;
    let work = Work::new().taking(Duration::from_secs(50));
    let holder = first.start("key", &policy(), &work);
    work.started().await;
    let claim = onlyonce_core::Claim {
        slot: *first.call("key", "the same", &policy()).slot(),
        fingerprint: crate::support::fingerprint("the same"),
        token: Token::from_bytes([7; 16]),
        on_lapse: OnLapse::Rerun,
        must_last: false,
        lease_for: Duration::from_secs(1),
        keep_for: Duration::from_secs(1),
        meta: crate::support::meta(),
    };

    for _ in 0..40 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let claimed = store.inner.claim(&claim).await.unwrap();
        assert!(matches!(claimed, Claimed::Taken(_)));
    }

    assert_eq!(ran(&holder.await.unwrap()), "run 1");
    assert!(!store.down.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_crosses_its_own_completion_is_no_lost_lease() {
    let (store, node) = bed().await;
    let work = Work::new().taking(Duration::from_millis(900));
    store
        .completions
        .fail_next([Fault::SlowAfter(Duration::from_secs(1))]);

    let answer = node.once("key", &policy(), &work).await;

    assert_eq!(ran(&answer), "run 1");
    assert_eq!(store.renewals.count(), 1, "while the reply was on its way");
    assert_eq!(node.heard.count(|it| matches!(it, Event::LeaseLost)), 0);
}
