//! The engine alone repeats what failed: how often a store is asked that is down, hangs or loses
//! replies, by an engine whose store is guarded as a gateway's is.

use std::sync::Arc;

use http::StatusCode;
use onlyonce_core::engine::Who;
use onlyonce_core::{
    Answer, Clock as _, Engine, Fingerprint, Key, MemoryStore, Policy, Reason, Response,
    SystemClock, Verb,
};
use onlyonce_stores::Guarded;
use onlyonce_stores::guarded::BreakerState;

use super::SECOND;
use crate::rough::{DOWN, Fault, Rough};

struct Process {
    rough: Arc<Rough>,
    guarded: Arc<Guarded>,
    engine: Engine,
}

impl Process {
    async fn new() -> Self {
        let rough = Rough::new(Arc::new(MemoryStore::new()));
        let guarded = Arc::new(Guarded::new(rough.clone()));
        let engine = Engine::open(guarded.clone()).await.unwrap();
        rough.asked();
        Self {
            rough,
            guarded,
            engine,
        }
    }

    async fn send(&self, key: &str) -> Answer {
        let policy = Arc::new(Policy::default());
        let key = Key::new(key, &policy.key).unwrap();
        let fingerprint = Fingerprint::new(Fingerprint::RECIPE, [1; 32]);
        let (scope, who) = (self.engine.scope(), Who::doing("test"));
        let call = self.engine.call(&scope, &key, fingerprint, &policy, who);
        let work = async |_| Response::new(StatusCode::CREATED, "ran").into();
        self.engine.once(call, work).await
    }

    /// How often the store was asked to do this since the last look.
    fn asked(&self, verb: Verb) -> usize {
        let asked = self.rough.asked();
        asked.iter().filter(|&&it| it == verb).count()
    }
}

fn is_refused(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(refusal) if refusal.reason == Reason::StoreDown)
}

#[tokio::test(start_paused = true)]
async fn a_dead_store_sees_three_tries_of_a_claim_and_two_calls_open_the_breaker() {
    let process = Process::new().await;
    process.rough.always(DOWN);

    assert!(is_refused(&process.send("one-key-of-many").await));
    assert_eq!(process.asked(Verb::Claim), 3);
    assert_eq!(process.guarded.state(), BreakerState::Closed);

    // Five failures in a row: one of them is the release, in the background, of what the first call
    // may have claimed.
    assert!(is_refused(&process.send("another-key-of-many").await));
    assert!((1..=2).contains(&process.asked(Verb::Claim)));
    assert_eq!(process.guarded.state(), BreakerState::Open);

    assert!(is_refused(&process.send("a-third-key-of-many").await));
    assert_eq!(process.asked(Verb::Claim), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_given_up_after_three_timeouts() {
    let process = Process::new().await;
    process.rough.always(Fault::Hang);
    let clock = SystemClock::new();
    let began = clock.now();

    assert!(is_refused(&process.send("one-key-of-many").await));

    let took = clock.now() - began;
    assert!(7 * SECOND < took && took < 8 * SECOND, "{took:?}");
    assert_eq!(process.asked(Verb::Claim), 3);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_repeated_with_the_same_token() {
    let process = Process::new().await;

    process.rough.next([Fault::LoseReply]);
    let claimed_twice = process.send("one-key-of-many").await;
    assert_eq!(process.asked(Verb::Claim), 2);

    process.rough.next([Fault::Nothing, Fault::LoseReply]);
    let completed_twice = process.send("another-key-of-many").await;

    // With another token the second claim would find the first one's, and wait for it.
    for answer in [claimed_twice, completed_twice] {
        let Answer::Ran { response, .. } = answer else {
            panic!("it did not run: {answer:?}");
        };
        assert_eq!(response.body, "ran");
    }
    assert_eq!(process.asked(Verb::Complete), 2);
}
