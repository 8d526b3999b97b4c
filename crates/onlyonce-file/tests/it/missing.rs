//! A folder that lacks a file it must have is refused, and told what is missing and what can be
//! done; a crash at any point leaves nothing that looks like that. Files that are taken away from an
//! open store end it: nothing is acknowledged that would not be found again.

use std::fs;
use std::path::Path;

use onlyonce_core::{Operate as _, Store as _};

use super::support::{DAY, Place, SECOND, answer, claim, finish, replayed, slot, told, until};

/// A store with these many answers in several segments and with an agreement, closed in order.
async fn stored(records: u64) -> Place {
    let place = Place::new();
    let store = place.open().await;
    store.agree("secret", b"value").await.unwrap();
    for n in 0..records {
        finish(&store, n, &answer(n, 1000), DAY).await;
    }
    drop(store);
    place
}

fn remove(place: &Place, name: &str) {
    fs::remove_file(place.path().join(name)).unwrap();
}

fn copy(name: &str, from: &Place, to: &Place) {
    fs::copy(from.path().join(name), to.path().join(name)).unwrap();
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_store_without_its_agreement_is_refused_by_name() {
    let place = stored(1).await;
    remove(&place, "agreed");

    let told = place.refusal().await;

    assert!(
        told.contains("agreed (what its keys are found by) is missing"),
        "{told}"
    );
    assert!(
        told.contains("put back") && told.contains("new folder"),
        "{told}"
    );
}

#[tokio::test]
async fn a_store_without_its_only_segment_is_refused_by_name() {
    let place = stored(1).await;
    remove(&place, "0000000001.log");

    let told = place.refusal().await;

    assert!(told.contains("0000000001.log is missing"), "{told}");
    assert!(place.segments().is_empty(), "one was begun all the same");
}

#[tokio::test]
async fn a_store_without_its_first_or_last_segment_is_refused_by_name() {
    let place = stored(300).await;
    let segments = place.segments();
    assert!(segments.len() > 3);
    for missing in [segments.first(), segments.last()] {
        let missing = name(missing.unwrap());
        let copy = place.crashed();
        remove(&copy, &missing);

        let told = copy.refusal().await;

        assert!(told.contains(&format!("{missing} is missing")), "{told}");
    }
}

#[tokio::test]
async fn all_that_is_missing_is_named_at_once() {
    let place = stored(300).await;
    for path in place.segments() {
        fs::remove_file(path).unwrap();
    }
    remove(&place, "agreed");

    let told = place.refusal().await;

    for missing in ["0000000001.log", "0000000002.log", "agreed", "are missing"] {
        assert!(told.contains(missing), "{told}");
    }
}

#[tokio::test]
async fn a_segment_that_was_emptied_is_damaged() {
    let place = stored(1).await;
    fs::write(&place.segments()[0], "").unwrap();

    let told = place.refusal().await;

    assert!(
        told.contains("0000000001.log is damaged at byte 0"),
        "{told}"
    );
}

#[tokio::test]
async fn a_newest_segment_that_was_cut_off_after_it_was_closed_is_refused() {
    let place = stored(3).await;
    let log = place.segments().remove(0);
    let whole = fs::read(&log).unwrap();
    for length in [64, whole.len() / 2, whole.len() - 1] {
        fs::write(&log, &whole[..length]).unwrap();

        let told = place.refusal().await;

        assert!(told.contains("0000000001.log was cut off"), "{told}");
        assert_eq!(fs::read(&log).unwrap().len(), length, "it was changed");
    }
    fs::write(&log, &whole).unwrap();
    let store = place.open().await;
    assert!(replayed(&store, 2).await.is_some());
}

#[tokio::test]
async fn an_older_copy_of_the_newest_segment_is_refused() {
    for records in [1, 300] {
        let place = stored(records).await;
        let copied = place.crashed();
        let newest = name(place.segments().last().unwrap());
        let store = place.open().await;
        finish(&store, 1000, &answer(1000, 10), DAY).await;
        drop(store);
        copy(&newest, &copied, &place);

        let told = place.refusal().await;

        assert!(told.contains("is an older copy"), "{told}");
        assert!(told.contains("restore the whole folder"), "{told}");
    }
}

/// Without a close only what was noted is known, and that is not older than a minute.
#[tokio::test]
async fn an_older_copy_is_known_after_a_crash_too() {
    let place = stored(1).await;
    let copied = place.crashed();
    let store = place.open().await;
    finish(&store, 1000, &answer(1000, 10), DAY).await;
    let noted = fs::read(place.path().join("manifest")).unwrap();
    place.clock.advance(61 * SECOND);
    until("the end of the log is noted", || {
        fs::read(place.path().join("manifest")).unwrap() != noted
    })
    .await;
    let crashed = place.crashed();
    copy("0000000001.log", &copied, &crashed);

    let told = crashed.refusal().await;

    assert!(told.contains("is an older copy"), "{told}");
    assert!(place.crashed().try_open().await.is_ok());
}

#[tokio::test]
async fn a_segment_that_was_cut_off_before_an_empty_one_is_refused() {
    let place = Place::new();
    let store = place.open().await;
    finish(&store, 1, &answer(1, 1000), DAY).await;
    place.clock.advance(DAY / 8);
    until("the next segment is begun", || {
        let manifest = fs::read_to_string(place.path().join("manifest"));
        manifest.unwrap().contains("segments 1 2")
    })
    .await;
    let crashed = place.crashed();
    let log = crashed.segments().remove(0);
    let whole = fs::read(&log).unwrap();
    fs::write(&log, &whole[..500]).unwrap();

    let told = crashed.refusal().await;

    assert!(told.contains("0000000001.log is damaged"), "{told}");
}

#[tokio::test]
async fn the_newest_segment_of_another_store_is_refused() {
    let (place, other) = (stored(1).await, stored(2).await);
    copy("0000000001.log", &other, &place);

    let told = place.refusal().await;

    assert!(
        told.contains("0000000001.log is of another store"),
        "{told}"
    );
}

#[tokio::test]
async fn a_missing_or_damaged_manifest_is_told_and_can_be_made_anew() {
    for damage in ["missing", "damaged"] {
        let place = stored(3).await;
        match damage {
            "missing" => remove(&place, "manifest"),
            _ => fs::write(place.path().join("manifest"), "garbage").unwrap(),
        }

        let told = place.refusal().await;

        let wanted = format!("manifest is {damage}");
        assert!(told.contains(&wanted), "{told}");
        let (_, line) = told.split_once('`').unwrap();
        let (line, _) = line.split_once('`').unwrap();
        fs::write(place.path().join("onlyonce"), line).unwrap();
        let store = place.open().await;
        assert!(replayed(&store, 2).await.is_some());
        assert_eq!(store.agree("secret", b"other").await.unwrap(), b"value");
    }
}

#[tokio::test]
async fn a_missing_mark_is_told_and_can_be_written_again() {
    let place = stored(3).await;
    remove(&place, "onlyonce");

    let told = place.refusal().await;

    assert!(told.contains("\"onlyonce\" is missing"), "{told}");
    let (_, line) = told.split_once('`').unwrap();
    let (line, _) = line.split_once('`').unwrap();
    fs::write(place.path().join("onlyonce"), line).unwrap();
    assert!(replayed(&place.open().await, 2).await.is_some());
}

#[tokio::test]
async fn an_older_agreement_is_told() {
    let place = stored(1).await;
    let older = place.crashed();
    let store = place.open().await;
    store.agree("another", b"value").await.unwrap();
    drop(store);
    copy("agreed", &older, &place);

    let told = place.refusal().await;

    assert!(told.contains("has 1 of the 2 values"), "{told}");
}

/// What the version before manifests left: the same files, but for the manifest and the mark.
fn make_old(place: &Place) {
    remove(place, "manifest");
    fs::write(
        place.path().join("onlyonce"),
        "onlyonce file store, format 1\n",
    )
    .unwrap();
}

#[tokio::test]
async fn a_store_of_the_version_before_manifests_is_opened_and_gets_one() {
    let place = stored(300).await;
    make_old(&place);

    let store = place.open().await;

    for n in 0..300 {
        assert!(replayed(&store, n).await.is_some(), "number {n}");
    }
    drop(store);
    let last = name(place.segments().last().unwrap());
    remove(&place, &last);
    let told = place.refusal().await;
    assert!(told.contains(&format!("{last} is missing")), "{told}");
}

#[tokio::test]
async fn an_old_store_with_an_agreement_and_no_log_is_refused() {
    let place = stored(1).await;
    make_old(&place);
    remove(&place, "0000000001.log");

    let told = place.refusal().await;

    assert!(told.contains("*.log (its records) is missing"), "{told}");
}

#[tokio::test]
async fn a_crash_at_any_point_of_making_a_store_does_no_harm() {
    let whole = Place::new();
    drop(whole.open().await);
    let mark = fs::read_to_string(whole.path().join("onlyonce")).unwrap();
    let being_made = mark.trim_end().to_owned() + ", being made\n";
    let log = fs::read(&whole.segments()[0]).unwrap();
    let manifest = fs::read(whole.path().join("manifest")).unwrap();
    let log = |bytes: usize| ("0000000001.log", log[..bytes].to_vec());
    let steps = [
        vec![("owner", Vec::new())],
        vec![("onlyonce.tmp", b"only".to_vec())],
        vec![("onlyonce", being_made.into_bytes())],
        vec![log(0)],
        vec![log(10)],
        vec![log(64)],
        vec![("manifest.tmp", manifest[..20].to_vec())],
        vec![("manifest", manifest)],
        vec![("onlyonce.tmp", b"only".to_vec())],
    ];
    for done in 0..=steps.len() {
        let place = Place::new();
        for (name, bytes) in steps[..done].iter().flatten() {
            fs::write(place.path().join(name), bytes).unwrap();
        }

        let store = place.open().await;

        finish(&store, 1, &answer(1, 10), DAY).await;
        drop(store);
        assert!(
            replayed(&place.open().await, 1).await.is_some(),
            "{done} steps"
        );
    }
}

/// Opens what a crash has left; everything that was stored must be in it.
async fn assert_opens(crashed: &Place, records: u64, when: &str) {
    for opening in 0..2 {
        let store = crashed.try_open().await;
        let store = store.unwrap_or_else(|error| panic!("{when}, {opening}: {}", told(&error)));
        for n in 0..records {
            let found = replayed(&store, n).await;
            assert!(found.is_some(), "{when}: number {n} is lost");
        }
        finish(&store, 10_000 + opening, &answer(0, 10), DAY).await;
    }
}

#[tokio::test]
async fn a_crash_at_any_point_of_beginning_a_segment_does_no_harm() {
    let place = stored(20).await;
    let before = place.crashed();
    let store = place.open().await;
    let mut n = 20;
    while place.segments().len() < 2 {
        finish(&store, n, &answer(n, 1000), DAY).await;
        n += 1;
    }
    let named = place.crashed();
    drop(store);
    let next = name(&place.segments()[1]);
    let header = fs::read(place.path().join(&next)).unwrap()[..64].to_vec();
    let with = |manifest: &Place, next_bytes: &[u8]| {
        let crashed = place.crashed();
        copy("manifest", manifest, &crashed);
        fs::write(crashed.path().join(&next), next_bytes).unwrap();
        crashed
    };

    // The segment comes first, then the manifest names it, then it gets its first frame.
    for bytes in [&header[..0], &header[..10], &[0; 64], &header[..]] {
        assert_opens(&with(&before, bytes), 20, "before it is named").await;
    }
    assert_opens(&with(&named, &header), 20, "after it is named").await;
    let crashed = place.crashed();
    fs::write(crashed.path().join("manifest.tmp"), "onlyo").unwrap();
    assert_opens(&crashed, n, "while the manifest is written").await;
    let crashed = place.crashed();
    copy("manifest", &before, &crashed);
    assert_opens(&crashed, n, "with an older manifest").await;
}

#[tokio::test]
async fn a_crash_at_any_point_of_dropping_a_segment_does_no_harm() {
    let place = Place::new();
    let store = place.open().await;
    for n in 1000..1200 {
        finish(&store, n, &answer(n, 1000), SECOND).await;
    }
    for n in 0..20 {
        finish(&store, n, &answer(n, 1000), DAY).await;
    }
    drop(store);
    let before = place.crashed();
    let store = place.open().await;
    place.clock.advance(2 * SECOND);
    until("expired segments are dropped", || {
        !place.path().join("0000000001.log").exists()
    })
    .await;
    drop(store);

    let kept: Vec<_> = place.segments().iter().map(|path| name(path)).collect();
    let dropped: Vec<_> = before
        .segments()
        .iter()
        .map(|path| name(path))
        .filter(|name| !kept.contains(name))
        .collect();
    // The manifest no longer names them before they are deleted, oldest first.
    for from in 0..=dropped.len() {
        let crashed = place.crashed();
        for name in &dropped[from..] {
            copy(name, &before, &crashed);
        }
        assert_opens(&crashed, 20, "before they are deleted").await;
        for name in &dropped {
            assert!(!crashed.path().join(name).exists(), "{name} came back");
        }
    }
    // A deletion may be on disk before the one that came earlier.
    let crashed = place.crashed();
    copy(&dropped[0], &before, &crashed);
    assert_opens(&crashed, 20, "with the oldest one back").await;
}

#[tokio::test]
async fn a_crash_between_an_agreement_and_the_manifest_does_no_harm() {
    let place = Place::new();
    drop(place.open().await);
    let before = place.crashed();
    let store = place.open().await;
    store.agree("secret", b"value").await.unwrap();
    drop(store);
    let crashed = place.crashed();
    copy("manifest", &before, &crashed);

    let store = crashed.open().await;

    assert_eq!(store.agree("secret", b"other").await.unwrap(), b"value");
    drop(store);
    remove(&crashed, "agreed");
    assert!(crashed.refusal().await.contains("agreed"));
}

#[tokio::test]
async fn a_crash_while_an_old_store_gets_its_manifest_does_no_harm() {
    let place = stored(300).await;
    let later = place.crashed();
    let store = later.open().await;
    for n in 300..600 {
        finish(&store, n, &answer(n, 1000), DAY).await;
    }
    drop(store);
    // A manifest that was written, and a mark that was not; then the older version went on.
    fs::write(
        later.path().join("onlyonce"),
        "onlyonce file store, format 1\n",
    )
    .unwrap();
    copy("manifest", &place, &later);

    assert_opens(&later, 600, "with the manifest of an interrupted start").await;
}

#[tokio::test]
async fn a_folder_that_is_moved_away_ends_its_store() {
    let place = Place::new();
    let path = place.path().join("store");
    let store = onlyonce_file::FileStore::open(&path).await.unwrap();
    finish(&store, 1, &answer(1, 10), DAY).await;
    fs::rename(&path, place.path().join("moved")).unwrap();

    let claimed = store.claim(&claim(2)).await;

    let told = told(&claimed.unwrap_err());
    assert!(told.contains("was deleted, moved or replaced"), "{told}");
    fs::create_dir(&path).unwrap();
    assert!(store.ping().await.is_err());
    assert!(store.claim(&claim(3)).await.is_err());
}

#[tokio::test]
async fn a_folder_that_is_deleted_and_made_again_ends_its_store() {
    let place = Place::new();
    let path = place.path().join("store");
    let store = onlyonce_file::FileStore::open(&path).await.unwrap();
    finish(&store, 1, &answer(1, 10), DAY).await;
    fs::remove_dir_all(&path).unwrap();
    let other = onlyonce_file::FileStore::open(&path).await.unwrap();
    finish(&other, 2, &answer(2, 10), DAY).await;

    let claimed = store.claim(&claim(2)).await;

    let told = told(&claimed.unwrap_err());
    assert!(told.contains("was deleted, moved or replaced"), "{told}");
}

#[tokio::test]
async fn a_segment_that_is_deleted_ends_its_store_before_anything_is_acknowledged() {
    let place = Place::new();
    let store = place.open().await;
    finish(&store, 1, &answer(1, 10), DAY).await;
    remove(&place, "0000000001.log");

    let claimed = store.claim(&claim(2)).await;

    let told = told(&claimed.unwrap_err());
    assert!(told.contains("0000000001.log was deleted"), "{told}");
    drop(store);
    assert!(place.refusal().await.contains("0000000001.log is missing"));
}

#[tokio::test]
async fn whatever_is_deleted_is_noticed_by_a_sweep() {
    for missing in ["agreed", "manifest", "onlyonce", "0000000001.log"] {
        let place = stored(300).await;
        let store = place.open().await;
        remove(&place, missing);

        let swept = store.sweep(1).await;

        let told = told(&swept.unwrap_err());
        assert!(told.contains(&format!("{missing} was deleted")), "{told}");
        assert!(store.get(&slot(1)).await.is_err());
    }
}
