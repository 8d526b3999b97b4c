//! The same steps in the same order give what the reference store gives. Durations are long or
//! none, so that time decides nothing.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Resolved, StateName};
use onlyonce_core::{
    Claim, Claimed, Completed, Fingerprint, MemoryStore, OnLapse, Record, Release, Released,
    Renewed, Store, Token,
};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::servers::Server;

use super::claims::{answer, fresh};
use super::private::start;

const LONG: Duration = Duration::from_secs(1000);
/// How far two clocks may be apart after a run.
const SLACK_SECS: u64 = 100;
const RUNS: u64 = 40;
const STEPS: usize = 60;

#[tokio::test]
async fn every_verb_answers_as_the_reference_store_does() {
    compare("").await;
}

#[tokio::test]
async fn every_verb_answers_so_with_scripted_claims_too() {
    compare("?claim=script").await;
}

async fn compare(options: &str) {
    let server = start(&[]);
    let store = RedisStore::open(&(server.url() + options)).await.unwrap();
    let reference = MemoryStore::new();
    for seed in 1..=RUNS {
        let mut dice = Dice(seed);
        let claim = fresh();
        let mut history = Vec::new();
        for _ in 0..STEPS {
            let step = Step::draw(&mut dice, &claim);
            history.push(format!("{step:?}").replace("POST /payments", ""));
            let wanted = step.take(&reference).await;
            let got = step.take(&store).await;
            // What is over now is over a millisecond later where time is counted in those.
            tokio::time::sleep(Duration::from_millis(3)).await;
            let there = look(&reference, &claim).await;
            // A dead token may hear what is there instead.
            let excused = wanted == "dead" && got == format!("taken {there}");
            assert!(
                got == wanted || excused,
                "seed {seed}: {got} != {wanted}: {history:#?}"
            );
            let found = look(&store, &claim).await;
            assert_eq!(found, there, "seed {seed}: {history:#?}");
        }
    }
}

#[derive(Debug)]
enum Step {
    Claim(Claim),
    Renew(Claim, Duration),
    Complete(Claim, Duration),
    Release(Claim, Release),
    Resolve(Claim, Duration),
    Forget(Claim),
    Extend(Claim),
    Count(Claim),
}

impl Step {
    fn draw(dice: &mut Dice, claim: &Claim) -> Self {
        let short_or_long = |dice: &mut Dice| {
            if dice.one_in(3) { Duration::ZERO } else { LONG }
        };
        let claim = Claim {
            token: Token::from_bytes([dice.below(4) as u8; Token::BYTES]),
            fingerprint: Fingerprint::new(1, [u8::from(dice.one_in(6)); 32]),
            on_lapse: if dice.one_in(3) {
                OnLapse::Hold
            } else {
                OnLapse::Rerun
            },
            lease_for: short_or_long(dice),
            keep_for: if dice.one_in(8) { Duration::ZERO } else { LONG },
            ..claim.clone()
        };
        // A token has one lease: how long it is dead does not change.
        let released = Claim {
            lease_for: if claim.token == Token::from_bytes([3; Token::BYTES]) {
                Duration::ZERO
            } else {
                LONG
            },
            ..claim.clone()
        };
        match dice.below(16) {
            0..6 => Self::Claim(claim),
            6..8 => Self::Renew(claim, short_or_long(dice)),
            8..10 => Self::Complete(claim, short_or_long(dice)),
            10 => Self::Release(released, Release::NotRun),
            11 => Self::Release(released, Release::Unknown),
            12 => Self::Resolve(claim, short_or_long(dice)),
            13 => Self::Forget(claim),
            14 => Self::Extend(claim),
            _ => Self::Count(claim),
        }
    }

    async fn take(&self, store: &dyn Store) -> String {
        let operate = store.operate().unwrap();
        match self {
            Self::Claim(claim) => match store.claim(claim).await.unwrap() {
                Claimed::Granted { lease, overtook } => {
                    assert_eq!(lease.token, claim.token);
                    format!("granted {} {}", lease.attempt, overtook.is_some())
                }
                Claimed::Taken(record) => format!("taken {}", shape(&record)),
                Claimed::Dead => "dead".to_owned(),
            },
            Self::Renew(claim, lease_for) => {
                match store.renew(&claim.lease(), *lease_for).await.unwrap() {
                    Renewed::Kept => "kept".to_owned(),
                    Renewed::Lost => "lost".to_owned(),
                    Renewed::Busy => "busy".to_owned(),
                }
            }
            Self::Complete(claim, keep_for) => {
                let completed = store
                    .complete(&claim.lease(), &answer("x"), *keep_for)
                    .await;
                match completed.unwrap() {
                    Completed::Stored(_) => "stored".to_owned(),
                    Completed::Found(record) => format!("found {}", shape(&record)),
                    Completed::Absent => "absent".to_owned(),
                }
            }
            Self::Release(claim, why) => match store.release(&claim.lease(), *why).await.unwrap() {
                Released::Ended => "ended".to_owned(),
                Released::Found(record) => format!("found {}", shape(&record)),
            },
            Self::Resolve(claim, keep_for) => {
                let response = Arc::new(onlyonce_core::Response::new(
                    http::StatusCode::BAD_GATEWAY,
                    "resolved",
                ));
                match operate
                    .resolve(&claim.slot, &response, *keep_for)
                    .await
                    .unwrap()
                {
                    Resolved::Stored => "stored".to_owned(),
                    Resolved::Found(record) => format!("found {}", shape(&record)),
                    Resolved::Absent => "absent".to_owned(),
                }
            }
            Self::Forget(claim) => operate.forget(&claim.slot).await.unwrap().to_string(),
            Self::Extend(claim) => operate.extend(&claim.slot, LONG).await.unwrap().to_string(),
            Self::Count(claim) => {
                operate.count_replays(&[(claim.slot, 3)]).await.unwrap();
                String::new()
            }
        }
    }
}

async fn look(store: &dyn Store, claim: &Claim) -> String {
    let record = store.operate().unwrap().get(&claim.slot).await.unwrap();
    record.map_or_else(String::new, |record| shape(&record))
}

/// All of a record that does not depend on the moment.
fn shape(record: &Record) -> String {
    let lease_left = match record.state {
        onlyonce_core::State::Pending { lease_left } => lease_left,
        onlyonce_core::State::Done(_)
        | onlyonce_core::State::Failed(_)
        | onlyonce_core::State::Unknown => Duration::ZERO,
    };
    let rounded = |left: Duration| (left.as_secs() + SLACK_SECS) / LONG.as_secs();
    format!(
        "{:?} {:?} {:?} {:?} {} {} {:?} lease {} keep {} {}",
        record.token,
        record.fingerprint,
        record.on_lapse,
        StateName::of(record),
        record.attempt,
        record.replays,
        record.response().map(|response| response.body.to_vec()),
        rounded(lease_left),
        rounded(record.keep_left),
        record.completed_at.is_some(),
    )
}

/// A small generator: the same seed, the same run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let mixed = (self.0 ^ self.0 >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 33) % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
