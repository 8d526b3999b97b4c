//! That a cache takes as much memory as it says.

use std::fs;
use std::process::Command;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use onlyonce_core::key::Hint;
use onlyonce_core::{Entropy, Fingerprint, OsEntropy, Timestamp};

use super::*;

/// Set for a child: what it remembers, and at most how much.
const SHAPE: &str = "ONLYONCE_TEST_CACHE_SHAPE";
const CHILD: &str = "cached::results::tests::a_child_fills_a_cache_when_it_is_told_to";
const SAID: &str = "taken and said: ";
const PAGE_BYTES: f64 = 4096.0;
const DAY: Duration = Duration::from_secs(86_400);

/// A record as a gateway stores it, all of it read into memory of its own.
fn record(headers: usize, has_trailers: bool, body_bytes: usize) -> Record {
    let holder = "10.0.0.7:4711".into();
    let names = ["content-type", "etag", "location", "vary", "x-request-id"];
    let map = |headers: usize| -> HeaderMap {
        let header = |n: usize| {
            let name = match names.get(n) {
                Some(name) => (*name).to_owned(),
                None => format!("x-header-{n}"),
            };
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            (name, HeaderValue::from_str(&"v".repeat(20 + n)).unwrap())
        };
        (0..headers).map(header).collect()
    };
    let response = Response {
        headers: map(headers),
        trailers: has_trailers.then(|| map(2)),
        ..Response::new(StatusCode::OK, Bytes::from(vec![7; body_bytes]))
    };
    let meta = Meta {
        hint: Hint::default(),
        operation: "POST /payments".into(),
        actor: Some("user:alice".into()),
        holder,
        trace: Some("4bf92f3577b34da6a3ce929d0e0e4736".into()),
        credential: None,
    };
    Record {
        token: Token::generate(&OsEntropy::new()),
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
        on_lapse: OnLapse::Rerun,
        attempt: 1,
        meta: Arc::new(meta),
        created_at: Timestamp::from_millis(1),
        completed_at: Some(Timestamp::from_millis(2)),
        expires_at: Timestamp::from_millis(3),
        keep_left: DAY,
        replays: 0,
        state: State::finished(Arc::new(response)),
    }
}

fn slot() -> Slot {
    let mut slot = [0; Slot::BYTES];
    OsEntropy::new().fill(&mut slot);
    Slot::from_bytes(slot)
}

/// The memory that this process has.
fn resident() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * PAGE_BYTES
}

/// Nothing by itself: the other test runs it in a process of its own, which has nothing else in memory.
#[test]
fn a_child_fills_a_cache_when_it_is_told_to() {
    let Ok(shape) = std::env::var(SHAPE) else {
        return;
    };
    let shape: Vec<u64> = shape.split(' ').map(|it| it.parse().unwrap()).collect();
    let [headers, trailers, body_bytes, bytes_max, records] = shape[..] else {
        panic!("a shape has five parts");
    };
    let (headers, body_bytes) = (headers as usize, body_bytes as usize);
    // As many entries as the default has room for, by what the smallest takes.
    let results = Results::new(bytes_max as usize / 768, bytes_max);
    let before = resident();
    for _ in 0..records {
        let reading = results.reading(&slot(), Duration::ZERO);
        results.keep(reading, &record(headers, trailers > 0, body_bytes));
    }
    println!("{SAID}{} {}", resident() - before, results.tally().bytes);
}

/// With few entries and with many, before and after others had to leave for them.
#[test]
fn a_cache_takes_what_it_says() {
    const ROOM: u64 = 256 << 20;
    const FULL: u64 = 16 << 20;
    for shape in [
        [0, 0, 200, ROOM, 20_000],
        [1, 0, 200, ROOM, 20_000],
        [5, 0, 200, ROOM, 20_000],
        [5, 0, 200, FULL, 30_000],
        [3, 0, 1024, FULL, 20_000],
        [12, 1, 4096, ROOM, 3_000],
    ] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", CHILD, "--nocapture", "--test-threads", "1"])
            .env(SHAPE, shape.map(|it: u64| it.to_string()).join(" "))
            .output()
            .unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        let (_, said) = output.split_once(SAID).unwrap();
        let (taken, said) = said.lines().next().unwrap().split_once(' ').unwrap();
        let ratio = taken.parse::<f64>().unwrap() / said.parse::<f64>().unwrap();

        assert!((0.8..1.25).contains(&ratio), "{shape:?}: {ratio}");
    }
}
