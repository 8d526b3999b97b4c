//! The scripts against the model of an acceptor: the same questions, the same answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::{Entropy, OsEntropy};
use onlyonce_quorum::{
    Accept, Acceptor, Ballot, Deed, EPOCH_FIRST, FLOOR_EVERY, Look, Model, ModelServer,
    PROMISE_KEPT, Prepare, Prepared, Seat, Seen, Votes,
};
use onlyonce_testkit::servers::{Redis, RedisOptions, Server};

use super::member::{Member, Set};
use super::scripts::Scripts;
use crate::url::Settings;

const QUESTIONS: usize = 3000;
const KEYS: u8 = 5;

async fn member(redis: &Redis) -> Member {
    let set = Set {
        members: "here".into(),
        epoch: Arc::default(),
    };
    let settings = Settings::of(&redis.url()).unwrap();
    let scripts = Arc::new(Scripts::new());
    let member = Member::new("here".to_owned(), settings, None, set, scripts).unwrap();
    let now = member.identify("here", &Deed::Read).await.unwrap().now;
    let found = Deed::Found { seen_at: now };
    member.identify("here", &found).await.unwrap();
    member.identify("here", &Deed::Seat).await.unwrap();
    member.judge(None);
    member
}

/// What does not depend on the time.
fn timeless(seen: Seen) -> (Option<Ballot>, Option<(Ballot, Bytes)>) {
    let accepted = seen.accepted.map(|held| (held.ballot, held.value));
    (seen.promised, accepted)
}

#[derive(Debug, PartialEq, Eq)]
enum Said {
    Promised(Option<Ballot>, Option<(Ballot, Bytes)>),
    Told(Option<Ballot>, Option<(Ballot, Bytes)>),
    Refused(Ballot),
}

fn told(prepared: Prepared) -> Said {
    match prepared {
        Prepared::Promised(seen) => {
            let (promised, accepted) = timeless(seen);
            Said::Promised(promised, accepted)
        }
        Prepared::Told(seen) => {
            let (promised, accepted) = timeless(seen);
            Said::Told(promised, accepted)
        }
        Prepared::Refused(ballot) => Said::Refused(ballot),
    }
}

fn look(key: &Arc<[u8]>) -> Look {
    Look {
        key: Arc::clone(key),
        epoch: EPOCH_FIRST,
    }
}

fn dice() -> impl FnMut(u8) -> u8 {
    let entropy = OsEntropy::new();
    move |sides| {
        let mut byte = [0];
        entropy.fill(&mut byte);
        byte[0] % sides
    }
}

#[tokio::test]
async fn the_scripts_and_the_model_give_the_same_answers() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let (member, mut model) = (member(&redis).await, Model::default());
    let (mut roll, entropy) = (dice(), OsEntropy::new());
    let mut ballots = vec![Ballot::after(None, &entropy)];
    let (mut promised, mut accepted) = (0, 0);

    // The floor was raised long ago: from now on neither raises it.
    let mut now = FLOOR_EVERY;
    for nth in 0..QUESTIONS {
        let key: Arc<[u8]> = Arc::from(&[b'k', b'0' + roll(KEYS)][..]);
        let promise = model.look(&key, now).promised;
        let ballot = match roll(5) {
            0 | 1 => Ballot::after(promise, &entropy),
            2 | 3 => promise.unwrap_or(ballots[0]),
            _ => ballots[usize::from(roll(u8::MAX)) % ballots.len()],
        };
        ballots.push(ballot);
        let may_be_full = roll(2) == 0;
        if roll(2) == 0 {
            let only_if_new = roll(4) == 0;
            let ask = Prepare {
                key,
                ballot,
                epoch: EPOCH_FIRST,
                only_if_new,
                may_be_full,
            };
            let (real, modelled) = (
                member.prepare(&ask).await.unwrap(),
                model.prepare(&ask, now),
            );
            promised += usize::from(matches!(modelled, Prepared::Promised(_)));
            assert_eq!(told(real), told(modelled), "question {nth}: {ask:?}");
        } else {
            let next = (roll(3) == 0).then(|| Ballot::after(Some(ballot), &entropy));
            ballots.extend(next);
            let ask = Accept {
                key: Arc::clone(&key),
                ballot,
                epoch: EPOCH_FIRST,
                value: Bytes::from(vec![roll(u8::MAX); usize::from(roll(9))]),
                keep_for: (roll(4) > 0).then_some(Duration::from_secs(3600)),
                next,
                wake: roll(2) == 0,
                may_be_full,
            };
            let (real, modelled) = (member.accept(&ask).await.unwrap(), model.accept(&ask, now));
            accepted += usize::from(modelled == onlyonce_quorum::Accepted::Yes);
            assert_eq!(real, modelled, "question {nth}: {ask:?}");
            let real = timeless(member.look(&look(&key)).await.unwrap());
            assert_eq!(
                real,
                timeless(model.look(&key, now)),
                "after question {nth}"
            );
        }
        now += Duration::from_micros(1);
    }
    assert!(promised > 100 && accepted > 100, "{promised}, {accepted}");

    // All registers vanish; what remains of them is the floor.
    for key in 0..KEYS {
        redis.cli(&["DEL", &format!("onlyonce:q:k{key}")]).unwrap();
    }
    redis
        .cli(&["HSET", "onlyonce:quorum", "floor_at", "0"])
        .unwrap();
    let ask = Prepare {
        key: Arc::from(&b"new"[..]),
        ballot: Ballot::after(None, &entropy),
        epoch: EPOCH_FIRST,
        only_if_new: false,
        may_be_full: false,
    };
    let later = now + 2 * PROMISE_KEPT;
    let (real, modelled) = (
        member.prepare(&ask).await.unwrap(),
        model.prepare(&ask, later),
    );
    assert!(matches!(modelled, Prepared::Refused(_)));
    assert_eq!(told(real), told(modelled));
}

#[tokio::test]
async fn a_server_without_its_identity_does_not_vote() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let member = member(&redis).await;
    let key: Arc<[u8]> = Arc::from(&b"key"[..]);
    member.look(&look(&key)).await.unwrap();

    redis.cli(&["FLUSHALL"]).unwrap();

    let fault = member.look(&look(&key)).await.unwrap_err();
    assert_eq!(fault, onlyonce_quorum::Fault::NotAdmitted);
}

/// Who a server is, and who it becomes: by its script, and by the model of it.
#[tokio::test]
async fn the_script_and_the_model_of_an_identity_give_the_same_answers() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let (member, mut model) = (member(&redis).await, ModelServer::default());
    redis.cli(&["FLUSHALL"]).unwrap();
    let mut roll = dice();
    let (mut joined, mut seen_at) = (Duration::ZERO, Duration::ZERO);
    let mut voted = 0;

    for nth in 0..QUESTIONS {
        if roll(100) == 0 {
            redis.cli(&["FLUSHALL"]).unwrap();
            model = ModelServer::default();
        }
        let epoch = u64::from(roll(6));
        let deed = match roll(7) {
            0 => Deed::Read,
            1 => Deed::Found { seen_at },
            2 => Deed::Seat,
            3 => Deed::Join { epoch },
            4 => Deed::Admit {
                epoch,
                round: u64::from(roll(9)),
                joined: [joined, seen_at][usize::from(roll(2))],
            },
            5 => Deed::Raise {
                epoch,
                was: ["here", "there"][usize::from(roll(2))].to_owned(),
            },
            _ => Deed::Demote { epoch },
        };
        let members = ["here", "here", "there"][usize::from(roll(3))];
        let real = member.identify(members, &deed).await.unwrap();
        let modelled = model.identify("here", members, &deed, real.now);
        assert_eq!(real, modelled, "deed {nth}: {deed:?}");
        (joined, seen_at) = (real.joined, real.now);
        voted += usize::from(real.votes == Votes::Yes);
    }

    assert!(voted > 100, "{voted}");
}
