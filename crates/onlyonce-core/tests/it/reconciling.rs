//! PROTOCOL 34: what is in doubt is looked into before it runs again, under a granted lease, by one
//! process at a time; only positive evidence counts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::engine::FormerSecret;
use onlyonce_core::engine::job::{Question, RunError};
use onlyonce_core::event::Found;
use onlyonce_core::operate::Operate as _;
use onlyonce_core::policy::Duplicate;
use onlyonce_core::{
    Answer, Call, Claim, Claimed, Engine, Event, Execution, Finding, OnLapse, Outcome, Policy,
    Reason, Reconcile, Response, SlotSecret, Store as _, Token, Verdict,
};

use crate::support::{
    Fault, Node, Probe, Work, bed, fingerprint, meta, node, node_of, policy, ran, refused, replayed,
};

/// A look that counts, and finds what it is told, call by call; the last one for ever.
#[derive(Clone)]
struct Looks {
    count: Arc<AtomicUsize>,
    findings: Arc<Mutex<Vec<Finding>>>,
    takes: Duration,
}

impl Looks {
    fn finding(findings: impl IntoIterator<Item = Finding>) -> Self {
        let mut findings: Vec<_> = findings.into_iter().collect();
        findings.reverse();
        Self {
            count: Arc::default(),
            findings: Arc::new(Mutex::new(findings)),
            takes: Duration::ZERO,
        }
    }

    fn taking(mut self, takes: Duration) -> Self {
        self.takes = takes;
        self
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn reconcile(&self) -> Reconcile {
        let looks = self.clone();
        Reconcile::new(move |execution| {
            assert!(execution.lease().is_some(), "it looks under a lease");
            let looks = looks.clone();
            async move {
                looks.count.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(looks.takes).await;
                let mut findings = looks.findings.lock().unwrap();
                match findings.len() {
                    1 => findings[0].clone(),
                    _ => findings.pop().unwrap(),
                }
            }
        })
    }
}

fn happened() -> Finding {
    Finding::happened(Response::new(StatusCode::CREATED, "found"))
}

async fn once(node: &Node, policy: &Policy, looks: &Looks, work: &Work) -> Answer {
    let call = node.call("key", "the same", policy);
    let (call, work) = (call.reconcile(looks.reconcile()), work.clone());
    node.engine.once(call, move |_| work.run()).await
}

/// A process that claimed the slot and was never heard of again, until its lease has lapsed.
async fn crash(store: &Arc<Probe>, policy: &Policy) {
    let ghost = node(store).await;
    let claim = Claim {
        slot: *ghost.call("key", "the same", policy).slot(),
        fingerprint: fingerprint("the same"),
        token: Token::from_bytes([9; Token::BYTES]),
        on_lapse: OnLapse::Rerun,
        must_last: false,
        lease_for: policy.lease_for,
        keep_for: policy.keep_for,
        meta: meta(),
    };
    let claimed = store.claim(&claim).await.unwrap();
    assert!(matches!(claimed, Claimed::Granted { .. }), "it was free");
    tokio::time::sleep(policy.lease_for * 2).await;
}

fn under(on_lapse: OnLapse) -> Policy {
    Policy {
        on_lapse,
        ..policy()
    }
}

/// A store that forgot that it had begun would let it run again, and nobody would be asked.
#[tokio::test(start_paused = true)]
async fn the_claim_of_what_is_looked_into_must_last_as_one_that_is_held() {
    let (_, node) = bed().await;
    let looks = Looks::finding([happened()]);
    let token = Token::from_bytes([9; Token::BYTES]);
    let must_last = |call: Call| call.claim(token).must_last;
    let call = |on_lapse| node.call("key", "the same", &under(on_lapse));

    assert!(must_last(call(OnLapse::Rerun).reconcile(looks.reconcile())));
    assert!(must_last(call(OnLapse::Hold)));
    assert!(!must_last(call(OnLapse::Rerun)));
}

#[tokio::test(start_paused = true)]
async fn what_happened_is_stored_and_not_run_again() {
    for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
        let (store, node) = bed().await;
        let (policy, looks) = (under(on_lapse), Looks::finding([happened()]));
        crash(&store, &policy).await;
        let work = Work::new();

        let answer = once(&node, &policy, &looks, &work).await;
        let retry = once(&node, &policy, &looks, &work).await;

        let Answer::Ran { receipt, .. } = &answer else {
            panic!("{answer:?}");
        };
        assert!(receipt.is_some(), "it is stored");
        assert_eq!(ran(&answer), "found");
        assert_eq!(replayed(&retry), "found");
        assert_eq!((work.starts(), looks.count()), (0, 1));
        let is_found = |event: &Event| {
            matches!(
                event,
                Event::Reconciled {
                    found: Found::Happened,
                    attempt: 2,
                    ..
                }
            )
        };
        assert_eq!(node.heard.count(is_found), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_did_not_happen_is_run_once() {
    for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
        let (store, node) = bed().await;
        let (policy, looks) = (under(on_lapse), Looks::finding([Finding::DidNot]));
        crash(&store, &policy).await;
        let work = Work::new();

        assert_eq!(ran(&once(&node, &policy, &looks, &work).await), "run 1");

        assert_eq!(
            replayed(&once(&node, &policy, &looks, &work).await),
            "run 1"
        );
        assert_eq!((work.starts(), looks.count()), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_attempt_is_not_asked_about() {
    let (_, node) = bed().await;
    let (looks, work) = (Looks::finding([happened()]), Work::new());

    assert_eq!(ran(&once(&node, &policy(), &looks, &work).await), "run 1");

    assert_eq!(looks.count(), 0);
}

/// Whoever takes a time-out or a failure for "did not" runs it twice.
#[tokio::test(start_paused = true)]
async fn a_look_that_cannot_tell_takes_too_long_or_panics_runs_nothing() {
    let panics = Reconcile::new(|_| async { panic!("as told") });
    let panics_at_once = Reconcile::new(|_| -> std::future::Ready<Finding> { panic!("as told") });
    let cannot_tell = Looks::finding([Finding::CannotTell]).reconcile();
    let too_slow = Looks::finding([Finding::DidNot]).taking(Duration::from_secs(60));
    let bounded = Looks::finding([Finding::DidNot]).taking(Duration::from_secs(2));
    let bounded = bounded.reconcile().within(Duration::from_secs(1));
    for reconcile in [
        panics,
        panics_at_once,
        cannot_tell,
        too_slow.reconcile(),
        bounded,
    ] {
        let (store, node) = bed().await;
        crash(&store, &policy()).await;
        let work = Work::new();

        for _ in 0..5 {
            let call = node.call("key", "the same", &policy());
            let (call, work) = (call.reconcile(reconcile.clone()), work.clone());
            let answer = node.engine.once(call, move |_| work.run()).await;

            let Answer::Refused(refusal) = &answer else {
                panic!("{answer:?}");
            };
            assert_eq!(refusal.reason, Reason::OutcomeUnknown);
            assert_eq!(refusal.retryable, Some(true));
            assert!(refusal.retry_after.is_some());
            tokio::time::sleep(Duration::from_secs(120)).await;
        }
        assert_eq!(work.starts(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_told_is_asked_again_but_not_at_every_retry() {
    let (store, node) = bed().await;
    crash(&store, &policy()).await;
    let findings = [Finding::CannotTell, Finding::CannotTell, happened()];
    let (looks, work) = (Looks::finding(findings), Work::new());

    for _ in 0..20 {
        let answer = once(&node, &policy(), &looks, &work).await;
        assert_eq!(refused(&answer), Reason::OutcomeUnknown);
    }
    assert_eq!(looks.count(), 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..20 {
        once(&node, &policy(), &looks, &work).await;
    }
    assert_eq!(looks.count(), 2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    once(&node, &policy(), &looks, &work).await;
    assert_eq!(looks.count(), 2, "the second pause is twice as long");
    tokio::time::sleep(Duration::from_secs(1)).await;

    assert_eq!(ran(&once(&node, &policy(), &looks, &work).await), "found");
    assert_eq!((looks.count(), work.starts()), (3, 0));
}

/// Attempts have numbers, and looks too: a retry that neither looks nor runs takes none.
#[tokio::test(start_paused = true)]
async fn a_retry_that_is_put_off_claims_nothing() {
    let (store, node) = bed().await;
    let (policy, work) = (policy(), Work::new());
    let looks = Looks::finding([Finding::CannotTell, Finding::DidNot]);
    crash(&store, &policy).await;
    let first = once(&node, &policy, &looks, &work).await;
    assert_eq!(refused(&first), Reason::OutcomeUnknown);

    let claims = store.claims.count();
    for _ in 0..5 {
        let answer = once(&node, &policy, &looks, &work).await;
        assert_eq!(refused(&answer), Reason::OutcomeUnknown);
    }
    assert_eq!(store.claims.count(), claims);

    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ran(&once(&node, &policy, &looks, &work).await), "run 1");
    let is_third = |event: &Event| matches!(event, Event::Claimed { attempt: 3, .. });
    assert_eq!(
        node.heard.count(is_third),
        1,
        "the first, the look, this one"
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_put_off_gets_an_answer_that_is_there_by_then() {
    let (store, node) = bed().await;
    let (policy, work) = (policy(), Work::new());
    let looks = Looks::finding([Finding::CannotTell]);
    crash(&store, &policy).await;
    once(&node, &policy, &looks, &work).await;
    let slot = *node.call("key", "the same", &policy).slot();
    let by_hand = Arc::new(Response::new(StatusCode::OK, "by hand"));
    let resolved = store.inner.resolve(&slot, &by_hand, Duration::ZERO).await;
    resolved.unwrap();

    let answer = once(&node, &policy, &looks, &work).await;

    assert_eq!(replayed(&answer), "by hand");
}

#[tokio::test(start_paused = true)]
async fn of_many_processes_one_looks_at_a_time() {
    let store = Arc::new(Probe::default());
    crash(&store, &policy()).await;
    let looks = Looks::finding([happened()]).taking(Duration::from_secs(2));
    let work = Work::new();

    let mut asked = Vec::new();
    for _ in 0..4 {
        let node = node(&store).await;
        for _ in 0..4 {
            let (node, looks, work) = (node.clone(), looks.clone(), work.clone());
            asked.push(tokio::spawn(async move {
                once(&node, &policy(), &looks, &work).await
            }));
        }
    }

    for answer in asked {
        match answer.await.unwrap() {
            Answer::Ran { response, .. } => assert_eq!(response.body, "found"),
            other => assert_eq!(replayed(&other), "found"),
        }
    }
    assert_eq!((looks.count(), work.starts()), (1, 0));
}

/// The work was lost on its way: it is looked at before its caller hears of it.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_lost_is_looked_into_at_once() {
    let (_, node) = bed().await;
    let (looks, lost) = (
        Looks::finding([happened()]),
        Work::ending(|_| Outcome::Unknown),
    );

    assert_eq!(ran(&once(&node, &policy(), &looks, &lost).await), "found");

    let retry = once(&node, &policy(), &looks, &lost).await;
    assert_eq!(replayed(&retry), "found");
    assert_eq!((lost.starts(), looks.count()), (1, 1));
}

/// It may still be on its way: the next attempt looks again.
#[tokio::test(start_paused = true)]
async fn that_a_lost_attempt_did_not_happen_is_not_believed_at_once() {
    let (_, node) = bed().await;
    let looks = Looks::finding([Finding::DidNot, happened()]);
    let lost = Work::ending(|_| Outcome::Unknown);

    let first = once(&node, &policy(), &looks, &lost).await;
    let retry = once(&node, &policy(), &looks, &lost).await;

    assert_eq!(refused(&first), Reason::OutcomeUnknown);
    assert_eq!(ran(&retry), "found");
    assert_eq!((lost.starts(), looks.count()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_took_too_long_is_looked_into() {
    let (_, node) = bed().await;
    let looks = Looks::finding([happened()]);
    let hangs = Work::new().taking(policy().execution_max * 2);

    assert_eq!(ran(&once(&node, &policy(), &looks, &hangs).await), "found");
}

/// Its time is over, and what it asked of others may still be under way: until a lease has passed nobody
/// takes "not yet" for "never".
#[tokio::test(start_paused = true)]
async fn what_may_still_be_under_way_is_not_asked_about_before_its_lease_has_passed() {
    let policy = Policy {
        duplicate: Duplicate::Refuse,
        ..policy()
    };
    for ending in ["time is over", "told so", "told so by an answer"] {
        let (store, first) = bed().await;
        let second = node(&store).await;
        let looks = Looks::finding([Finding::DidNot, happened()]);
        let call = first.call("key", "the same", &policy);
        let call = call.reconcile(looks.reconcile());
        let too_long = policy.execution_max * 2;
        let lost = first.engine.once(call, async move |execution: Execution| {
            if ending == "time is over" {
                tokio::time::sleep(too_long).await;
            }
            execution.may_go_on();
            match ending {
                "told so by an answer" => {
                    execution.leave_in_doubt();
                    Response::new(StatusCode::BAD_GATEWAY, "").into()
                }
                _ => Outcome::Unknown,
            }
        });
        lost.await;
        let before = looks.count();

        let work = Work::new();
        for node in [&first, &second] {
            let early = once(node, &policy, &looks, &work).await;
            assert_eq!(refused(&early), Reason::InProgress, "{ending}");
        }
        assert_eq!(looks.count(), before, "{ending}");
        // Nobody finds it before, and by now it is there.
        looks.findings.lock().unwrap().truncate(1);
        tokio::time::sleep(policy.lease_for).await;
        let late = once(&second, &policy, &looks, &work).await;

        assert_eq!(ran(&late), "found", "{ending}");
        assert_eq!((work.starts(), looks.count()), (0, before + 1), "{ending}");
    }
}

/// A 500 is not stored here. It may have been said after the work.
#[tokio::test(start_paused = true)]
async fn after_an_error_that_is_not_stored_the_next_attempt_looks_first() {
    let (_, node) = bed().await;
    let job = node.engine.job("mail");
    let failing = job.reconcile(|question: Question| async move {
        assert_eq!(question.input::<u32>().unwrap(), 7);
        question.happened(&42)
    });

    let first = failing.run("key", &7, async || Err::<u32, _>("lost"));
    let first = first.await;
    let retry = failing.run("key", &7, async || Err::<u32, _>("never run"));
    let retry = retry.await.unwrap();

    assert!(matches!(first, Err(RunError::Failed("lost"))), "{first:?}");
    assert_eq!(retry.value, 42);
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_under_a_lease_that_was_lost_while_it_looked() {
    let (store, slow_one) = bed().await;
    crash(&store, &policy()).await;
    let slow = Looks::finding([Finding::DidNot]).taking(Duration::from_secs(9));
    // The renewals during the look and the one after it are all lost.
    store.renewals.fail_next([Fault::LostBefore; 1000]);
    let work = Work::new();
    let first = {
        let (node, slow, work) = (slow_one.clone(), slow.clone(), work.clone());
        tokio::spawn(async move { once(&node, &policy(), &slow, &work).await })
    };
    tokio::time::sleep(Duration::from_secs(5)).await;

    // Its lease has lapsed: another process takes over, and finds that it happened.
    let other = node(&store).await;
    let found = once(&other, &policy(), &Looks::finding([happened()]), &work).await;

    assert_eq!(ran(&found), "found");
    match first.await.unwrap() {
        Answer::Refused(_) => {}
        overtaken => assert_eq!(replayed(&overtaken), "found"),
    }
    assert_eq!(work.starts(), 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_runs_the_work_by_hand_is_answered_from_the_look() {
    let (store, node) = bed().await;
    crash(&store, &policy()).await;
    let looks = Looks::finding([Finding::CannotTell, happened()]);
    let call = || {
        let call = node.call("key", "the same", &policy());
        call.reconcile(looks.reconcile())
    };

    let Verdict::Refuse(refusal) = node.engine.begin(call()).await else {
        panic!("it cannot tell");
    };
    assert_eq!(refusal.reason, Reason::OutcomeUnknown);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let Verdict::Replay(found) = node.engine.begin(call()).await else {
        panic!("it happened");
    };

    assert_eq!(found.response.body, "found");
}

/// The first attempt was under the former secret alone: its claim is the outer one's.
#[tokio::test(start_paused = true)]
async fn while_the_secret_is_rotated_an_attempt_under_the_former_one_is_looked_into() {
    let secret = |byte| SlotSecret::from_bytes([byte; SlotSecret::BYTES]);
    for (finding, answer) in [(happened(), "found"), (Finding::DidNot, "run 1")] {
        let store = Arc::new(Probe::default());
        let old = node_of(Engine::builder(Arc::clone(&store)).secret(secret(1))).await;
        let nothing = Looks::finding([Finding::CannotTell]);
        let lost = Work::ending(|_| Outcome::Unknown);
        once(&old, &policy(), &nothing, &lost).await;
        let both = Engine::builder(Arc::clone(&store)).secret(secret(2));
        let both = node_of(both.rotate_from(FormerSecret::Given(secret(1)))).await;
        let (looks, work) = (Looks::finding([finding]), Work::new());

        let first = once(&both, &policy(), &looks, &work).await;
        let retry = once(&both, &policy(), &looks, &work).await;

        assert_eq!(ran(&first), answer);
        assert_eq!(replayed(&retry), answer);
        assert_eq!(looks.count(), 1);
        assert_eq!(
            replayed(&once(&old, &policy(), &looks, &work).await),
            answer
        );
    }
}
