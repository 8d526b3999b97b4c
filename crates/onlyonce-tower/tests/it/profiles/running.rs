//! Rows "duplicate while running" and "too many waiters", within one process and across two.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::policy::{Duplicate, Policy};
use onlyonce_core::{Clock, Event, MemoryStore, Profile, Reason, SystemClock};

use super::{CONTRACTS, Contract, Refused};
use crate::support::{App, Gate, PATH, post, uuid};

const PATIENCE: Duration = Duration::from_secs(30);

/// A handler may take its time, so that it is the duplicate whose patience ends.
fn slow(policy: &mut Policy) {
    policy.execution_max = Duration::from_secs(60 * 60);
}

fn is_waiting(event: &Event) -> bool {
    matches!(event, Event::Waiting { .. })
}

fn is_attached(event: &Event) -> bool {
    matches!(event, Event::Attached { .. })
}

/// Two processes of one service: one that holds its handlers at the gate, and one to ask.
async fn two_processes(contract: &Contract, gate: &Arc<Gate>) -> (App, App) {
    let store = Arc::new(MemoryStore::new());
    let holder = App::under(contract.profile)
        .but(slow)
        .store(store.clone())
        .gate(gate)
        .open()
        .await;
    let asked = App::under(contract.profile).store(store).open().await;
    (holder, asked)
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_waits_for_the_answer_or_is_told_at_once() {
    for contract in &CONTRACTS {
        let gate = Gate::new();
        let app = App::under(contract.profile).gate(&gate).open().await;
        let request = post(PATH).key(uuid(1));
        let original = app.spawn(&request);
        gate.entered().await;
        let clock = SystemClock::new();

        if contract.waits {
            let duplicate = app.spawn(&request);
            app.until(is_attached).await;
            gate.open();
            assert_eq!(duplicate.await.unwrap().run(), 1, "{}", contract.profile);
        } else {
            let duplicate = app.send(&request).await;
            contract.assert_refused(&duplicate, contract.in_progress);
            gate.open();
        }

        assert_eq!(original.await.unwrap().run(), 1);
        assert_eq!(app.send(&request).await.run(), 1);
        assert_eq!((app.runs(), clock.now()), (1, Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_that_waited_its_30_seconds_is_told_when_to_come_back() {
    for contract in CONTRACTS.iter().filter(|contract| contract.waits) {
        let gate = Gate::new();
        let app = App::under(contract.profile)
            .but(slow)
            .gate(&gate)
            .open()
            .await;
        let request = post(PATH).key(uuid(1));
        let original = app.spawn(&request);
        gate.entered().await;
        let clock = SystemClock::new();

        let duplicate = app.send(&request).await;

        let waited = clock.now();
        contract.assert_refused(&duplicate, contract.in_progress);
        assert!(waited >= PATIENCE && waited < PATIENCE + Duration::from_secs(1));
        gate.open();
        assert_eq!(original.await.unwrap().run(), 1);
        assert_eq!(app.send(&request).await.run(), 1);
        assert_eq!(app.runs(), 1, "{}", contract.profile);
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_in_another_process_waits_or_is_told_at_once() {
    for contract in &CONTRACTS {
        let gate = Gate::new();
        let (holder, asked) = two_processes(contract, &gate).await;
        let request = post(PATH).key(uuid(1));
        let original = holder.spawn(&request);
        gate.entered().await;
        let clock = SystemClock::new();

        if contract.waits {
            let duplicate = asked.spawn(&request);
            asked.until(is_waiting).await;
            gate.open();
            assert_eq!(duplicate.await.unwrap().run(), 1, "{}", contract.profile);
        } else {
            let duplicate = asked.send(&request).await;
            contract.assert_refused(&duplicate, contract.in_progress);
            gate.open();
        }

        assert_eq!(original.await.unwrap().run(), 1);
        assert!(
            clock.now() < Duration::from_millis(10),
            "{}",
            contract.profile
        );
        assert_eq!(asked.send(&request).await.run(), 1);
        assert_eq!((holder.runs(), asked.runs()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_in_another_process_waits_its_30_seconds_too() {
    for contract in CONTRACTS.iter().filter(|contract| contract.waits) {
        let gate = Gate::new();
        let (holder, asked) = two_processes(contract, &gate).await;
        let request = post(PATH).key(uuid(1));
        let original = holder.spawn(&request);
        gate.entered().await;
        let clock = SystemClock::new();

        let duplicate = asked.send(&request).await;

        let waited = clock.now();
        contract.assert_refused(&duplicate, contract.in_progress);
        assert!(waited >= PATIENCE && waited < PATIENCE + Duration::from_secs(1));
        gate.open();
        assert_eq!(original.await.unwrap().run(), 1);
        assert_eq!((holder.runs(), asked.runs()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn one_duplicate_too_many_is_turned_away_and_the_others_still_get_the_answer() {
    for contract in &CONTRACTS {
        let gate = Gate::new();
        let app = App::under(contract.profile)
            .but(|policy| {
                policy.duplicate = Duplicate::Wait(PATIENCE);
                policy.local_waiters_max = 2;
            })
            .gate(&gate)
            .open()
            .await;
        let request = post(PATH).key(uuid(1));
        let original = app.spawn(&request);
        gate.entered().await;
        let waiting = [app.spawn(&request), app.spawn(&request)];
        app.until_times(2, is_attached).await;

        let third = app.send(&request).await;

        contract.assert_refused(&third, contract.too_many_waiters);
        gate.open();
        assert_eq!(original.await.unwrap().run(), 1);
        for waiter in waiting {
            assert_eq!(waiter.await.unwrap().run(), 1, "{}", contract.profile);
        }
        assert_eq!(app.send(&request).await.run(), 1);
        assert_eq!(app.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn ten_duplicates_may_wait_for_another_process_and_the_eleventh_may_not() {
    for contract in CONTRACTS.iter().filter(|contract| contract.waits) {
        let gate = Gate::new();
        let (holder, asked) = two_processes(contract, &gate).await;
        let request = post(PATH).key(uuid(1));
        let original = holder.spawn(&request);
        gate.entered().await;
        let mut waiting = vec![asked.spawn(&request)];
        asked.until(is_waiting).await;
        waiting.extend((1..10).map(|_| asked.spawn(&request)));
        asked.until_times(9, is_attached).await;

        let eleventh = asked.send(&request).await;

        contract.assert_refused(&eleventh, contract.too_many_waiters);
        gate.open();
        assert_eq!(original.await.unwrap().run(), 1);
        for waiter in waiting {
            assert_eq!(waiter.await.unwrap().run(), 1, "{}", contract.profile);
        }
        assert_eq!((holder.runs(), asked.runs()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn middleware_can_answer_409_or_202_or_425_instead_of_waiting() {
    let contract = &CONTRACTS[5];
    assert_eq!(contract.profile, Profile::Middleware);
    for status in [409, 202, 425] {
        let gate = Gate::new();
        let app = App::under(Profile::Middleware)
            .but(|policy| {
                policy.duplicate = Duplicate::Refuse;
                let refusals = &mut policy.http.refusals;
                refusals.set_status(Reason::InProgress, status);
            })
            .gate(&gate)
            .open()
            .await;
        let request = post(PATH).key(uuid(1));
        let original = app.spawn(&request);
        gate.entered().await;

        let duplicate = app.send(&request).await;

        contract.assert_refused(&duplicate, Refused::later(status, "in-progress"));
        gate.open();
        assert_eq!(original.await.unwrap().run(), 1);
    }
}
