//! What is counted is true: the number of each replay over all processes, every wait, and a
//! refusal without the store once.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::event::About;
use onlyonce_core::{Engine, Event, Reason, Subscriber};

use crate::support::{
    Fault, Node, Probe, Work, bed, eventually, node, node_of, policy, ran, refused, replayed,
    settle,
};

/// The numbers of replays, in the order in which they were told.
#[derive(Default)]
struct Numbers(Mutex<Vec<Option<u64>>>);

impl Numbers {
    fn told(&self) -> Vec<Option<u64>> {
        self.0.lock().unwrap().clone()
    }
}

impl Subscriber for Numbers {
    fn on_event(&self, _: &About<'_>, event: &Event) {
        if let Event::ReplayCounted { number, .. } = event {
            self.0.lock().unwrap().push(*number);
        }
    }

    fn wants_replay_numbers(&self) -> bool {
        true
    }
}

async fn numbered(store: &Arc<Probe>) -> (Node, Arc<Numbers>) {
    let numbers = Arc::new(Numbers::default());
    let builder = Engine::builder(Arc::clone(store)).subscribe(Arc::clone(&numbers) as _);
    (node_of(builder).await, numbers)
}

#[tokio::test(start_paused = true)]
async fn each_replay_has_a_number_of_its_own_over_two_processes() {
    let store = Arc::new(Probe::default());
    let ((one, of_one), (two, of_two)) = (numbered(&store).await, numbered(&store).await);
    let work = Work::new();
    assert_eq!(ran(&one.once("key", &policy(), &work).await), "run 1");

    for round in 1..=3 {
        for node in [&one, &two, &one] {
            replayed(&node.once("key", &policy(), &work).await);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        eventually(|| of_one.told().len() == 2 * round && of_two.told().len() == round).await;
    }

    let mut all = [of_one.told(), of_two.told()].concat();
    for told in [of_one.told(), of_two.told()] {
        assert!(told.is_sorted(), "in their order: {told:?}");
    }
    all.sort_unstable();
    assert_eq!(all, (1..=9).map(Some).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn numbers_cost_no_round_trip_for_each_replay_and_none_is_made_up() {
    let (store, node) = bed().await;
    let (numbered, told) = numbered(&store).await;
    let work = Work::new();
    node.once("key", &policy(), &work).await;
    let claims = store.claims.count();

    for _ in 0..100 {
        replayed(&numbered.once("key", &policy(), &work).await);
    }
    // Gone before it was counted.
    let slot = *node.call("key", "the same", &policy()).slot();
    node.engine
        .store()
        .operate()
        .unwrap()
        .forget(&slot)
        .await
        .unwrap();
    eventually(|| told.told().len() == 100).await;

    assert_eq!(
        store.claims.count(),
        claims + 100,
        "a claim for each replay, and no more"
    );
    assert_eq!(told.told(), vec![None; 100]);
}

/// How long waits took, and how many were before each.
fn waits(node: &Node, wanted: impl Fn(Duration, usize, bool) -> bool) -> usize {
    node.heard.count(|event| match event {
        Event::Waited {
            waited,
            queue_depth,
            claimed,
            ..
        } => wanted(*waited, *queue_depth, *claimed),
        _ => false,
    })
}

#[tokio::test(start_paused = true)]
async fn every_wait_is_told_with_its_length_depth_and_holder() {
    let (_store, node) = bed().await;
    let work = Work::new().gated();
    let leader = node.start("key", &policy(), &work);
    work.started().await;
    let first = node.start("key", &policy(), &work);
    settle().await;
    let gone = node.start("key", &policy(), &work);
    settle().await;

    tokio::time::advance(Duration::from_millis(700)).await;
    gone.abort();
    let _ = gone.await;
    tokio::time::advance(Duration::from_millis(300)).await;
    work.open();
    ran(&leader.await.unwrap());
    replayed(&first.await.unwrap());

    let ms = Duration::from_millis;
    assert_eq!(waits(&node, |_, _, _| true), 2);
    assert_eq!(
        waits(&node, |waited, depth, _| waited >= ms(1000) && depth == 1),
        1
    );
    let left = |waited, depth, _| (ms(700)..ms(1000)).contains(&waited) && depth == 2;
    assert_eq!(waits(&node, left), 1, "one who goes away has waited too");
}

#[tokio::test(start_paused = true)]
async fn one_who_waits_for_another_process_is_told_whose_claim_it_was() {
    let (store, one) = bed().await;
    let two = node(&store).await;
    let work = Work::new().gated();
    let leader = one.start("key", &policy(), &work);
    work.started().await;

    let waiting = two.start("key", &policy(), &work);
    let attached = two.start("key", &policy(), &work);
    settle().await;
    tokio::time::advance(Duration::from_millis(500)).await;
    work.open();
    ran(&leader.await.unwrap());
    replayed(&waiting.await.unwrap());
    replayed(&attached.await.unwrap());

    let slot = *one.call("key", "the same", &policy()).slot();
    let operate = one.engine.store().operate().unwrap();
    let record = operate.get(&slot).await.unwrap().unwrap();
    let of_one = |event: &Event| matches!(event, Event::Waited { holder, claimed: false, .. } if *holder == record.meta.holder);
    assert_eq!(two.heard.count(of_one), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_without_asking_the_store_is_refused_once_and_at_once() {
    let (store, node) = bed().await;
    store.claims.fail_next([Fault::Unsent]);
    let work = Work::new();
    let began = tokio::time::Instant::now();

    let answer = node.once("key", &policy(), &work).await;

    assert_eq!(refused(&answer), Reason::StoreDown);
    assert_eq!(store.claims.count(), 1);
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(!store.down.load(Ordering::SeqCst));
    let failed = |event: &Event| matches!(event, Event::StoreFailed { .. });
    assert_eq!(node.heard.count(failed), 1);
}
