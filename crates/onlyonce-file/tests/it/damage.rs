//! Files that were cut off, changed or lost: what was stored is there as it was, or its loss is
//! told. Nothing is lost or changed in silence, and nothing panics.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use onlyonce_core::{Operate as _, Record, Response, StoreErrorKind};
use onlyonce_file::FileStore;

use super::support::{DAY, Place, answer, claim, finish, grant, slot, until};

/// A store with these answers, closed in order.
struct Stored {
    place: Place,
    answers: BTreeMap<u64, Arc<Response>>,
}

impl Stored {
    async fn new(records: u64, body_bytes: usize) -> Self {
        Self::made(records, body_bytes).await.1
    }

    /// The same as a crash leaves it.
    async fn crashed(records: u64, body_bytes: usize) -> Self {
        let (crashed, Self { answers, .. }) = Self::made(records, body_bytes).await;
        let place = crashed;
        Self { place, answers }
    }

    /// What a crash would have left, and what is there now that it was closed.
    async fn made(records: u64, body_bytes: usize) -> (Place, Self) {
        let place = Place::new();
        let store = place.open().await;
        let mut answers = BTreeMap::new();
        for n in 0..records {
            let answer = answer(n, body_bytes);
            finish(&store, n, &answer, DAY).await;
            answers.insert(n, answer);
        }
        until("the full segments are listed", || {
            place.files("idx").len() + 1 >= place.segments().len()
        })
        .await;
        let crashed = place.crashed();
        drop(store);
        (crashed, Self { place, answers })
    }

    /// How many records are as they were, how many say that they are damaged, and how many are
    /// gone. None may have changed.
    async fn count(&self, store: &FileStore) -> (usize, usize, usize) {
        let (mut whole, mut damaged, mut gone) = (0, 0, 0);
        for (n, answer) in &self.answers {
            match store.get(&slot(*n)).await {
                Ok(Some(record)) => {
                    assert_is(&record, answer);
                    whole += 1;
                }
                Ok(None) => gone += 1,
                Err(error) => {
                    assert_eq!(error.kind, StoreErrorKind::Corrupt);
                    damaged += 1;
                }
            }
        }
        (whole, damaged, gone)
    }
}

fn assert_is(record: &Record, answer: &Arc<Response>) {
    match record.response() {
        Some(found) => assert_eq!(found, answer),
        // Its completion was cut off; the claim before it was not.
        None => assert!(record.completed_at.is_none()),
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1 << (at % 8);
    fs::write(path, bytes).unwrap();
}

fn cut(path: &Path, length: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(length).unwrap();
}

/// Places in a file: all over it, but not the same in every part.
fn places(length: usize, how_many: usize) -> impl Iterator<Item = usize> {
    (0..how_many).map(move |n| (n * length / how_many + n * 7919 % 97) % length)
}

/// What a crash may do to the end of a log, as far as it had not been noted how far it reached.
#[tokio::test]
async fn a_log_that_was_cut_off_has_everything_before_the_cut() {
    let stored = Stored::crashed(40, 300).await;
    let log = stored.place.segments().remove(0);
    let length = fs::metadata(&log).unwrap().len();
    let mut last = 0;
    for at in places(length as usize - 64, 60) {
        let copy = stored.place.crashed();
        cut(&copy.segments()[0], 64 + at as u64);

        let store = copy.open().await;

        let (whole, damaged, gone) = stored.count(&store).await;
        assert_eq!(damaged, 0);
        assert!(whole + gone == 40 && whole + 2 >= last, "{whole} at {at}");
        last = last.max(whole);
        finish(&store, 1000, &answer(1000, 10), DAY).await;
        drop(store);
        let store = copy.open().await;
        assert_eq!(stored.count(&store).await.0, whole);
        assert!(store.get(&slot(1000)).await.unwrap().is_some());
    }
    assert!(last > 35);
}

#[tokio::test]
async fn garbage_behind_the_end_is_not_read() {
    let stored = Stored::new(20, 300).await;
    for garbage in [vec![0; 5000], vec![0xff; 70], b"1Of1 and more".repeat(9)] {
        let copy = stored.place.crashed();
        let log = &copy.segments()[0];
        let mut bytes = fs::read(log).unwrap();
        bytes.extend(garbage);
        fs::write(log, bytes).unwrap();

        let store = copy.open().await;

        assert_eq!(stored.count(&store).await, (20, 0, 0));
    }
}

#[tokio::test]
async fn a_changed_byte_in_the_newest_segment_is_told() {
    let stored = Stored::new(40, 300).await;
    let length = fs::metadata(&stored.place.segments()[0]).unwrap().len() as usize;
    let mut refused = 0;
    for at in places(length, 150) {
        let copy = stored.place.crashed();
        flip(&copy.segments()[0], at);

        match copy.try_open().await {
            Ok(store) => assert_eq!(stored.count(&store).await, (40, 0, 0), "byte {at}"),
            Err(error) => {
                let told = error.to_string();
                assert!(told.contains("is damaged at byte"), "{told}");
                assert!(told.contains("restore"), "{told}");
                refused += 1;
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[tokio::test]
async fn a_changed_byte_in_a_full_segment_costs_one_record_and_says_so() {
    let stored = Stored::new(300, 1000).await;
    assert!(stored.place.segments().len() > 3);
    let length = fs::metadata(&stored.place.segments()[1]).unwrap().len() as usize;
    let mut hit = 0;
    for at in places(length - 64, 60) {
        let copy = stored.place.crashed();
        flip(&copy.segments()[1], 64 + at);

        let store = copy.open().await;

        let (whole, damaged, gone) = stored.count(&store).await;
        assert!(whole >= 299 && whole + damaged == 300, "byte {at}");
        assert_eq!(gone, 0, "byte {at}");
        hit += damaged;
    }
    assert!(hit > 30, "{hit}");
}

#[tokio::test]
async fn a_changed_header_is_told() {
    let stored = Stored::new(300, 1000).await;
    for segment in 0..stored.place.segments().len() {
        let copy = stored.place.crashed();
        flip(&copy.segments()[segment], 20);

        assert!(copy.refusal().await.contains("is damaged at byte 0"));
    }
}

#[tokio::test]
async fn a_damaged_record_can_be_forgotten() {
    let stored = Stored::new(300, 1000).await;
    let length = fs::metadata(&stored.place.segments()[1]).unwrap().len() as usize;
    let mut at = length / 2;
    // A frame that was replaced since hurts nobody: then a later byte.
    let (place, store, damaged) = loop {
        assert!(at < length, "no byte hits a record");
        let place = stored.place.crashed();
        flip(&place.segments()[1], at);
        let store = place.open().await;
        let mut damaged = Vec::new();
        for n in stored.answers.keys() {
            if store.get(&slot(*n)).await.is_err() {
                damaged.push(*n);
            }
        }
        if let [damaged] = damaged[..] {
            break (place, store, damaged);
        }
        at += 100;
    };
    let claimed = onlyonce_core::Store::claim(&store, &claim(damaged)).await;
    assert_eq!(claimed.unwrap_err().kind, StoreErrorKind::Corrupt);

    assert!(store.forget(&slot(damaged)).await.unwrap());

    grant(&store, &claim(damaged)).await;
    drop(store);
    let store = place.open().await;
    assert!(store.get(&slot(damaged)).await.unwrap().is_some());
    assert_eq!(stored.count(&store).await, (300, 0, 0));
}

/// What cannot be read may be alive: its segment waits until it would have expired.
#[tokio::test]
async fn a_damaged_record_is_not_cleaned_away() {
    let stored = Stored::new(300, 1000).await;
    let first = stored.place.segments().remove(0);
    flip(&first, fs::metadata(&first).unwrap().len() as usize / 2);
    let store = stored.place.open().await;
    for n in 0..300 {
        if store.get(&slot(n)).await.is_ok() {
            store.forget(&slot(n)).await.unwrap();
        }
    }
    store.sweep(usize::MAX).await.unwrap();

    let (_, damaged, gone) = stored.count(&store).await;
    assert_eq!((damaged, gone), (1, 299));
    drop(store);
    let store = stored.place.open().await;
    assert_eq!(stored.count(&store).await, (0, 1, 299));
}

#[tokio::test]
async fn a_changed_list_is_made_again() {
    let stored = Stored::new(300, 1000).await;
    let list = stored.place.files("idx").remove(0);
    let length = fs::metadata(list).unwrap().len() as usize;
    for at in places(length, 40) {
        let copy = stored.place.crashed();
        flip(&copy.files("idx")[0], at);
        cut(&copy.files("idx")[1], at as u64 / 2);

        let store = copy.open().await;

        assert_eq!(stored.count(&store).await, (300, 0, 0), "byte {at}");
    }
}

#[tokio::test]
async fn a_missing_or_short_segment_is_told() {
    let stored = Stored::new(300, 1000).await;
    let copy = stored.place.crashed();
    fs::remove_file(&copy.segments()[1]).unwrap();
    let told = copy.refusal().await;
    assert!(told.contains("0000000002.log is missing"), "{told}");

    let copy = stored.place.crashed();
    cut(&copy.segments()[1], 5000);
    let told = copy.refusal().await;
    assert!(told.contains("is damaged at byte 5000"), "{told}");

    let copy = stored.place.crashed();
    fs::write(&copy.segments()[1], "garbage".repeat(10_000)).unwrap();
    let told = copy.refusal().await;
    assert!(told.contains("is damaged at byte 0"), "{told}");
}

#[tokio::test]
async fn a_segment_that_was_hardly_begun_is_begun_again() {
    let stored = Stored::new(300, 1000).await;
    let next = format!("{:010}.log", stored.place.segments().len() + 1);
    for begun in [0, 10, 64] {
        let copy = stored.place.crashed();
        fs::write(copy.path().join(&next), vec![0; begun]).unwrap();

        let store = copy.open().await;

        assert_eq!(stored.count(&store).await, (300, 0, 0));
        finish(&store, 1000, &answer(1000, 10), DAY).await;
    }
}

/// A crash may leave the later pages of a write without the earlier ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_last_write_with_a_hole_is_cut_off_at_the_hole() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    finish(&store, 0, &answer(0, 100), DAY).await;
    // Asked at once, they wait while the first of them is written, and go together.
    let claims: Vec<_> = (1..200)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { grant(&store, &claim(n)).await })
        })
        .collect();
    for claim in claims {
        claim.await.unwrap();
    }
    let crashed = place.crashed();
    let log = crashed.segments().remove(0);
    let mut bytes = fs::read(&log).unwrap();
    let mut begins = beginnings(&bytes);
    begins.push(bytes.len());
    let longest = begins.windows(2).max_by_key(|pair| pair[1] - pair[0]);
    let [from, to] = longest.unwrap() else {
        panic!("there is no pair of commits");
    };
    assert!(to - from > 1000, "no commit holds several claims");

    bytes.truncate(*to);
    bytes[from + 300..from + 500].fill(0);
    fs::write(&log, &bytes).unwrap();

    let store = crashed.open().await;
    assert!(store.get(&slot(0)).await.unwrap().is_some());
    finish(&store, 500, &answer(500, 100), DAY).await;
    drop(store);
    let store = crashed.open().await;
    assert!(store.get(&slot(500)).await.unwrap().is_some());
}

/// Where commits begin: a mark, and a one behind the kind.
fn beginnings(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len().saturating_sub(64))
        .filter(|at| bytes[*at..].starts_with(b"1Of1") && bytes[at + 21] == 1)
        .collect()
}

#[tokio::test]
async fn a_damaged_agreement_is_told() {
    let place = Place::new();
    let store = place.open().await;
    store.agree("secret", b"value").await.unwrap();
    drop(store);
    let agreed = place.path().join("agreed");
    let length = fs::metadata(&agreed).unwrap().len() as usize;
    for at in 0..length {
        let copy = place.crashed();
        flip(&copy.path().join("agreed"), at);

        let told = copy.refusal().await;

        assert!(
            told.contains("agreed") && told.contains("restore"),
            "{told}"
        );
    }
    fs::write(&agreed, "").unwrap();
    assert!(place.refusal().await.contains("agreed"));
}
