//! A process that is killed in the middle of its work loses nothing that it was told is stored.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use futures_util::future::join_all;
use onlyonce_core::{Completed, Operate, Slot, State, Store};
use onlyonce_sql::SqliteStore;

use crate::sql::{LONG, answer, body, fresh, lease};

/// Where the process that is to be killed finds its database.
const DATABASE: &str = "ONLYONCE_TEST_CRASHING_DATABASE";
const ROUNDS: usize = 10;
const LINES_A_ROUND: usize = 150;
const TASKS: usize = 16;

#[tokio::test]
async fn a_killed_process_loses_nothing_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("records.db").display());
    let (mut granted, mut stored) = (Vec::new(), Vec::new());

    for _ in 0..ROUNDS {
        let mut child = start(&url);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        // What it still said after it was killed, it said before.
        for line in lines.map_while(Result::ok) {
            match line.split_once(' ') {
                Some(("granted", slot)) => granted.push(Slot::from_hex(slot).unwrap()),
                Some(("stored", slot)) => stored.push(Slot::from_hex(slot).unwrap()),
                Some(_) | None => continue,
            }
            seen += 1;
            if seen == LINES_A_ROUND {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(seen >= LINES_A_ROUND, "the child ended by itself");
    }

    let store = SqliteStore::open(&url).await.unwrap();
    for slot in &granted {
        assert!(store.get(slot).await.unwrap().is_some(), "a claim is lost");
    }
    for slot in &stored {
        let record = store.get(slot).await.unwrap().expect("an answer is lost");
        assert!(matches!(record.state, State::Done(_)));
        assert_eq!(body(&record), slot.to_string().as_bytes());
    }
    assert!(
        stored.len() > ROUNDS * LINES_A_ROUND / 4,
        "{}",
        stored.len()
    );
}

fn start(url: &str) -> Child {
    let module = module_path!().split_once("::").unwrap().1;
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "--quiet"])
        .arg(format!("{module}::works_until_it_is_killed"))
        .env(DATABASE, url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The process that is killed; on its own it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn works_until_it_is_killed() {
    let Ok(url) = std::env::var(DATABASE) else {
        return;
    };
    let store = Arc::new(SqliteStore::open(&url).await.unwrap());
    let tasks = (0..TASKS).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            loop {
                let claim = fresh();
                let held = lease(&*store, &claim).await;
                say("granted", &claim.slot);
                let response = answer(&claim.slot.to_string());
                let completed = store.complete(&held, &response, 100 * LONG).await.unwrap();
                assert!(matches!(completed, Completed::Stored(_)));
                say("stored", &claim.slot);
            }
        })
    });
    join_all(tasks).await;
}

fn say(what: &str, slot: &Slot) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what} {slot}").unwrap();
    out.flush().unwrap();
}
