//! Whatever is asked, in whatever order, the answers are those of the reference store.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Filter, Page, Resolved, StateName};
use onlyonce_core::{
    Claim, Claimed, Completed, Fingerprint, Lease, MemoryStore, OnLapse, Record, Release, Released,
    Response, Slot, Store, Token,
};

use super::bed::Bed;
use super::support::{LONG, fresh};

const STEPS: usize = 400;
const SLOTS: usize = 3;
const TOKENS: usize = 5;

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % 1_000_003).unwrap() % sides
    }

    fn bool(&mut self) -> bool {
        self.roll(2) == 0
    }

    /// No time is decided by the speed of the machine: it is none, or more than there is.
    fn time(&mut self) -> Duration {
        if self.roll(3) == 0 {
            Duration::ZERO
        } else {
            LONG
        }
    }

    fn slot(&mut self) -> Slot {
        Slot::from_bytes([u8::try_from(self.roll(SLOTS)).unwrap(); Slot::BYTES])
    }

    /// Few slots, tokens and fingerprints, so that every case comes up.
    fn claim(&mut self) -> Claim {
        let token = u8::try_from(self.roll(TOKENS)).unwrap();
        let other = self.roll(8) == 0;
        Claim {
            slot: self.slot(),
            token: Token::from_bytes([token; Token::BYTES]),
            fingerprint: Fingerprint::new(Fingerprint::RECIPE, [u8::from(other); 32]),
            on_lapse: if self.roll(4) == 0 {
                OnLapse::Hold
            } else {
                OnLapse::Rerun
            },
            lease_for: self.time(),
            keep_for: self.time(),
            ..fresh()
        }
    }

    fn response(&mut self) -> Arc<Response> {
        let status = if self.bool() { 200 } else { 500 };
        let status = http::StatusCode::from_u16(status).unwrap();
        Arc::new(Response::new(status, self.roll(1000).to_string()))
    }
}

#[derive(Debug)]
enum Step {
    Claim(Claim),
    Renew(Lease, Duration),
    Complete(Lease, Arc<Response>, Duration),
    Release(Lease, Release),
    Get(Slot),
    Forget(Slot),
    Extend(Slot, Duration),
    Resolve(Slot, Arc<Response>, Duration),
    Count(Slot, u64),
    List,
    Sweep,
}

fn next(dice: &mut Dice) -> Step {
    match dice.roll(20) {
        0..=6 => Step::Claim(dice.claim()),
        7..=8 => Step::Renew(dice.claim().lease(), dice.time()),
        9..=11 => Step::Complete(dice.claim().lease(), dice.response(), dice.time()),
        12 => Step::Release(dice.claim().lease(), Release::NotRun),
        13 => Step::Release(dice.claim().lease(), Release::Unknown),
        14 => Step::Get(dice.slot()),
        15 if dice.roll(3) == 0 => Step::Forget(dice.slot()),
        15 => Step::Sweep,
        16 => Step::Extend(dice.slot(), dice.time()),
        17 => Step::Resolve(dice.slot(), dice.response(), dice.time()),
        18 => Step::Count(dice.slot(), 3),
        _ => Step::List,
    }
}

/// What an answer says, without when.
async fn answer(store: &dyn Store, step: &Step) -> String {
    let operate = store.operate().unwrap();
    match step {
        Step::Claim(claim) => match store.claim(claim).await.unwrap() {
            Claimed::Granted { lease, overtook } => {
                told(&("granted", lease, overtook.map(|it| it.meta)))
            }
            Claimed::Taken(record) => told(&("taken", timeless(&record))),
            Claimed::Dead => told(&"dead"),
        },
        Step::Renew(lease, lease_for) => told(&store.renew(lease, *lease_for).await.unwrap()),
        Step::Complete(lease, response, keep_for) => {
            match store.complete(lease, response, *keep_for).await.unwrap() {
                Completed::Stored(_) => told(&"stored"),
                Completed::Found(record) => told(&("found", timeless(&record))),
                Completed::Absent => told(&"absent"),
            }
        }
        Step::Release(lease, why) => match store.release(lease, *why).await.unwrap() {
            Released::Ended => told(&"ended"),
            Released::Found(record) => told(&("found", timeless(&record))),
        },
        Step::Get(slot) => told(&operate.get(slot).await.unwrap().as_ref().map(timeless)),
        Step::Forget(slot) => told(&operate.forget(slot).await.unwrap()),
        Step::Extend(slot, extra) => told(&operate.extend(slot, *extra).await.unwrap()),
        Step::Resolve(slot, response, keep_for) => {
            match operate.resolve(slot, response, *keep_for).await.unwrap() {
                Resolved::Stored => told(&"stored"),
                Resolved::Found(record) => told(&("found", timeless(&record))),
                Resolved::Absent => told(&"absent"),
            }
        }
        Step::Count(slot, count) => told(&operate.count_replays(&[(*slot, *count)]).await.unwrap()),
        Step::List => {
            let page = Page {
                after: None,
                records_max: 100,
            };
            let listed = operate.list(&Filter::default(), &page).await.unwrap();
            let stats = operate.stats().await.unwrap();
            let listed = listed.iter().map(|(slot, record)| (slot, timeless(record)));
            let listed: Vec<_> = listed.collect();
            told(&(listed, stats.records, stats.pending))
        }
        // The reference store drops what has expired as it goes.
        Step::Sweep => {
            operate.sweep(100).await.unwrap();
            String::new()
        }
    }
}

fn told(what: &dyn Debug) -> String {
    format!("{what:?}")
}

fn timeless(record: &Record) -> String {
    let whole_left = record.keep_left > LONG / 2;
    told(&(
        (
            record.token,
            record.fingerprint,
            record.on_lapse,
            record.attempt,
        ),
        (&record.meta, record.completed_at.is_some(), record.replays),
        (
            StateName::of(record),
            record.response().map(|it| (it.status, it.body.clone())),
        ),
        (whole_left, record.keep_left > LONG + LONG / 2),
    ))
}

async fn compare(bed: Bed, seed: u64) {
    let reference = MemoryStore::new();
    let mut dice = Dice(seed);
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..STEPS {
        let step = next(&mut dice);
        let (ours, theirs) = (
            answer(&*bed.store, &step).await,
            answer(&reference, &step).await,
        );
        steps.push(step);
        if ours != theirs {
            let last = &steps[steps.len().saturating_sub(12)..];
            panic!("seed {seed}: {ours}, not {theirs}, after {last:#?}");
        }
    }
}

#[tokio::test]
async fn every_answer_is_that_of_the_reference_store() {
    for seed in [1, 0xdead_beef, 0x0123_4567_89ab_cdef, 42, 7_777_777] {
        compare(Bed::direct().await, seed).await;
    }
}

#[tokio::test]
async fn every_answer_is_that_of_the_reference_store_behind_a_pooler() {
    compare(Bed::pooled().await, 2_025).await;
}
