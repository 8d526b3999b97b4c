//! What is measured of one peer, the bare handler beside it in every round.

use std::future::Future;
use std::time::Duration;

use super::who::{Bed, Peer, Started};
use super::{Options, duplicates, ours};
use crate::client::{Client, Post};
use crate::failure::Failure;
use crate::report::{Note, Report, Row, Unit};
use crate::rounds::Rounds;
use crate::say;
use crate::system::resident_mb;
use crate::wrk::{self, Keys, Load, same_key};

/// Replays are of so many keys.
const SAME_KEYS: u64 = 256;
/// Where answers belong to sessions, so many take turns: one alone would become slow.
const SESSIONS: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is asked for a first answer.
const TRIES: u32 = 50;

pub(super) fn run(peer: &Peer, bed: &Bed<'_>, options: &Options) -> Result<Report, Failure> {
    bed.redis.cli(&["FLUSHALL"])?;
    let bare = ours::handler(bed)?;
    let started = (peer.start)(bed)?;
    bed.runtime.block_on(within(answers(&started)))?;
    let at_rest = memory(&started);
    let cookies = bed.runtime.block_on(within(sessions(&started)))?;

    let name = peer.name;
    let mut report = Report::default();
    let mut case = |case: &'static str, keys| {
        let load = Load {
            path: started.pay,
            cookies: &cookies,
            ..Load::new(started.port, keys, options.seconds)
        };
        match rounds(load, &started, &bare, options) {
            Ok(rounds) => report.rows.extend([
                rounds.rate(name, case, None),
                rounds.p50(name, case),
                rounds.p99(name, case, None),
                rounds.p999(name, case),
                rounds.cpu(name, case),
            ]),
            Err(why) => {
                say(&format!("peers: {name}, {case}: {why}"));
                let note = Note::new(name, "not measured", format!("{case}: {why}"));
                report.notes.push(note);
            }
        }
    };
    if peer.keyed {
        case("new keys", Keys::New);
        bed.runtime.block_on(within(prime(&started, &cookies)))?;
        case("replays", Keys::Same(SAME_KEYS));
    } else {
        case("passed through", Keys::New);
    }
    let megabytes = |what, it| Row::alone(name, "memory", what, (it, Unit::Megabytes), None);
    report.rows.push(megabytes("at rest", at_rest));
    report
        .rows
        .push(megabytes("after the load", memory(&started)));
    let duplicates = duplicates::run(name, bed, &started, &cookies)?;
    report.rows.extend(duplicates);
    Ok(report)
}

fn rounds(
    load: Load<'_>,
    started: &Started,
    bare: &Started,
    options: &Options,
) -> Result<Rounds, Failure> {
    let mut rounds = Rounds::default();
    for _ in 0..options.rounds {
        let base = Load::new(bare.port, Keys::New, options.seconds);
        let base = wrk::run(base, &bare.pids)?;
        rounds.add(wrk::run(load, &started.pids)?, base);
    }
    Ok(rounds)
}

/// A peer that hangs does not stop the others.
async fn within<T>(step: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let done = tokio::time::timeout(PATIENCE, step).await;
    done.unwrap_or_else(|_| Err(Failure::new("it does not answer in time")))
}

/// Waits until it answers: some listen before they can.
async fn answers(started: &Started) -> Result<(), Failure> {
    let mut last = Failure::new("it does not answer");
    for n in 0..TRIES {
        let key = format!("first-{n}");
        let post = Post {
            key: Some(&key),
            ..Post::to(started.pay)
        };
        let answer = async { Client::connect(started.port).await?.post(post).await };
        match answer.await {
            Ok(answer) if answer.status.is_success() => return Ok(()),
            Ok(answer) => {
                let said = String::from_utf8_lossy(&answer.body);
                last = Failure::new(format!("it answers {}: {said}", answer.status));
            }
            Err(why) => last = why,
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(last)
}

async fn sessions(started: &Started) -> Result<Vec<String>, Failure> {
    let Some(path) = started.session else {
        return Ok(Vec::new());
    };
    let mut client = Client::connect(started.port).await?;
    let mut cookies = Vec::with_capacity(SESSIONS);
    for _ in 0..SESSIONS {
        let answer = client.post(Post::to(path)).await?;
        let cookie = answer.cookie;
        cookies.push(cookie.ok_or_else(|| Failure::new("it begins no session"))?);
    }
    Ok(cookies)
}

/// Sends once what will be replayed.
async fn prime(started: &Started, cookies: &[String]) -> Result<(), Failure> {
    let mut client = Client::connect(started.port).await?;
    for number in 0..SAME_KEYS {
        let at = usize::try_from(number).unwrap_or_default() % cookies.len().max(1);
        let post = Post {
            path: started.pay,
            key: Some(&same_key(number)),
            cookie: cookies.get(at).map(String::as_str),
        };
        let answer = client.post(post).await?;
        if !answer.status.is_success() {
            return Err(Failure::new(format!(
                "a new key is answered {}",
                answer.status
            )));
        }
    }
    Ok(())
}

fn memory(started: &Started) -> f64 {
    let pids = started.pids.iter();
    pids.map(|pid| resident_mb(&pid.to_string())).sum()
}
