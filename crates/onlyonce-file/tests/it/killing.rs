//! A process that is killed while it stores: what it was told was stored is there afterwards, as
//! it was; what it was not told is there whole or not at all.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Claimed, Completed, Operate as _, Release, Response, Store as _};
use onlyonce_file::FileStore;

use super::support::{DAY, SEGMENT_BYTES, claim, slot};

/// Set for a child: the folder to store in, and the first number.
const FOLDER: &str = "ONLYONCE_TEST_FILE_KILLED";
const FIRST: &str = "ONLYONCE_TEST_FILE_FIRST";
const CHILD: &str = "killing::a_child_stores_until_it_is_killed_when_it_is_told_to";
/// How many kills, if more than the usual ones are wanted:
/// `ONLYONCE_TEST_FILE_KILLS=1000 cargo test -p onlyonce-file --test it -- killing`.
const KILLS: &str = "ONLYONCE_TEST_FILE_KILLS";
const KILLS_USUAL: u64 = 200;
/// How many numbers each child has for itself.
const NUMBERS: u64 = 1_000_000;
const WORKERS: u64 = 8;

/// The answer to number `n`: anyone can say what it must be.
fn answer(n: u64) -> Arc<Response> {
    let body: Vec<u8> = (0..200 + n % 800).map(|at| (n + at) as u8).collect();
    Arc::new(Response::new(http::StatusCode::OK, body))
}

async fn open(folder: &std::path::Path) -> FileStore {
    FileStore::builder(folder)
        .segment_bytes(4 * SEGMENT_BYTES)
        .open()
        .await
        .unwrap()
}

/// Nothing by itself: the other test runs it in a process of its own, and kills it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_stores_until_it_is_killed_when_it_is_told_to() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let store = Arc::new(open(folder.as_ref()).await);
    say("open", 0);
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in (first + worker..first + NUMBERS).step_by(WORKERS as usize) {
                    work(&store, n).await;
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
}

/// Claims number `n`; then completes it, gives it back or forgets it. Says what it was told.
async fn work(store: &FileStore, n: u64) {
    let Ok(Claimed::Granted { lease, .. }) = store.claim(&claim(n)).await else {
        panic!("number {n} was not granted");
    };
    say("claimed", n);
    if n % 10 == 3 {
        store.release(&lease, Release::NotRun).await.unwrap();
        return say("gone", n);
    }
    let completed = store.complete(&lease, &answer(n), DAY).await;
    assert!(matches!(completed, Ok(Completed::Stored(_))));
    say("stored", n);
    if n % 10 == 7 {
        // From here on it may be there or not, until that is said.
        say("leaving", n);
        store.forget(&slot(n)).await.unwrap();
        say("gone", n);
    }
}

/// One line, in one write: the parent reads whole lines only.
fn say(what: &str, n: u64) {
    let line = format!("\n!{what} {n}\n");
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())
        .and_then(|()| out.flush())
        .unwrap();
}

/// What a child was told last of each number.
type Told = BTreeMap<u64, String>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stored_survives_two_hundred_kills() {
    let folder = tempfile::tempdir().unwrap();
    let kills = match std::env::var(KILLS) {
        Ok(kills) => kills.parse().unwrap(),
        Err(_) => KILLS_USUAL,
    };
    let mut told = Told::new();
    for kill in 0..kills {
        let heard = run_and_kill(folder.path(), kill);
        told.extend(heard);
        // All of it in the end; every time, only what is newest.
        let is_last = kill + 1 == kills;
        let since = if is_last { 0 } else { kill * NUMBERS };
        if is_last || kill % 10 == 0 {
            check(folder.path(), told.range(since..)).await;
        }
    }
    let stored = told.values().filter(|told| *told == "stored").count();
    assert!(stored as u64 > kills, "only {stored} were stored");
}

fn run_and_kill(folder: &std::path::Path, kill: u64) -> Told {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", CHILD, "--nocapture", "--test-threads", "1"])
        .env(FOLDER, folder)
        .env(FIRST, (kill * NUMBERS).to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut told = Told::new();
    let mut hear = |line: String| {
        if let Some((what, n)) = line.strip_prefix('!').and_then(|it| it.split_once(' ')) {
            told.insert(n.parse().unwrap(), what.to_owned());
        }
    };
    // It lives until it has done a little, and then a moment that is never the same.
    let mut left = 10 + kill % 40;
    while left > 0 {
        let line = lines.next().expect("the child went on").unwrap();
        left -= u64::from(line.starts_with("!stored"));
        hear(line);
    }
    std::thread::sleep(Duration::from_micros(kill * 137 % 5000));
    child.kill().unwrap();
    child.wait().unwrap();
    lines.map_while(Result::ok).for_each(hear);
    told.retain(|_, what| what != "open");
    told
}

async fn check(folder: &std::path::Path, told: impl Iterator<Item = (&u64, &String)>) {
    let store = open(folder).await;
    for (n, told) in told {
        let found = store.get(&slot(*n)).await.unwrap();
        let response = found.as_ref().and_then(|record| record.response());
        if let Some(response) = response {
            assert_eq!(*response, answer(*n), "number {n} is another answer");
        }
        match told.as_str() {
            "claimed" => assert!(found.is_some() || n % 10 == 3, "number {n} was claimed"),
            "stored" => assert!(response.is_some(), "number {n} was stored: {found:?}"),
            "gone" => assert!(found.is_none(), "number {n} was gone: {found:?}"),
            "leaving" => assert!(found.is_none() || response.is_some()),
            other => panic!("the child said {other}"),
        }
    }
}
