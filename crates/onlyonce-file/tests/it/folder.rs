//! One process owns a folder, and a folder that is not ours is left alone.

use std::fs;
use std::process::{Child, Command, Stdio};

use onlyonce_core::Operate as _;
use onlyonce_file::FileStore;

use super::support::{DAY, Place, answer, finish, replayed, told, until};

/// Set for a child: the folder to open and hold.
const HELD: &str = "ONLYONCE_TEST_FILE_HELD";
const HOLDER: &str = "folder::a_child_holds_a_folder_when_it_is_told_to";

/// Nothing by itself: other tests run it in a process of its own.
#[tokio::test]
async fn a_child_holds_a_folder_when_it_is_told_to() {
    let Some(folder) = std::env::var_os(HELD) else {
        return;
    };
    let _store = FileStore::open(folder).await.unwrap();
    std::future::pending::<()>().await;
}

struct Holder(Child);

impl Holder {
    async fn of(place: &Place) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", HOLDER, "--nocapture"])
            .env(HELD, place.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until("a child has opened the folder", || {
            let mark = fs::read_to_string(place.path().join("onlyonce"));
            mark.is_ok_and(|mark| !mark.contains("being made"))
        })
        .await;
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn a_second_process_is_refused_and_told_who_has_the_folder() {
    let place = Place::new();
    let holder = Holder::of(&place).await;

    let told = place.refusal().await;

    let owner = format!("in use by process {} on ", holder.0.id());
    assert!(told.contains(&owner), "{told}");
    assert!(
        told.contains(" since 2") && told.contains("file store"),
        "{told}"
    );
}

/// Whatever is deleted in it, the folder itself stays locked.
#[tokio::test]
async fn a_second_process_is_refused_though_the_owner_file_was_deleted() {
    let place = Place::new();
    let _holder = Holder::of(&place).await;
    fs::remove_file(place.path().join("owner")).unwrap();

    let told = place.refusal().await;

    assert!(told.contains("in use by another process"), "{told}");
    assert!(!place.path().join("owner").exists());
}

#[tokio::test]
async fn a_killed_process_does_not_block_the_folder() {
    let place = Place::new();
    drop(Holder::of(&place).await);

    place.open().await.ping().await.unwrap();
}

#[tokio::test]
async fn a_second_store_in_the_same_process_is_refused() {
    let place = Place::new();
    let store = place.open().await;
    finish(&store, 1, &answer(1, 10), DAY).await;

    let told = place.refusal().await;

    let owner = format!("in use by process {} on ", std::process::id());
    assert!(told.contains(&owner), "{told}");
    assert!(replayed(&store, 1).await.is_some());
}

#[tokio::test]
async fn a_second_store_is_refused_though_the_owner_file_was_deleted() {
    let place = Place::new();
    let store = place.open().await;
    fs::remove_file(place.path().join("owner")).unwrap();

    let told = place.refusal().await;

    assert!(told.contains("in use by another process"), "{told}");
    finish(&store, 1, &answer(1, 10), DAY).await;
    drop(store);
    assert!(replayed(&place.open().await, 1).await.is_some());
}

#[tokio::test]
async fn a_folder_with_somebody_elses_files_is_left_untouched() {
    let place = Place::new();
    fs::write(place.path().join("thesis.txt"), "ten years of work").unwrap();

    let told = place.refusal().await;

    assert!(told.contains("thesis.txt"), "{told}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_folder_of_another_format_is_refused() {
    let place = Place::new();
    drop(place.open().await);
    let marker = place.path().join("onlyonce");
    let text = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, text.replace("format 2", "format 7")).unwrap();

    let told = place.refusal().await;

    assert!(
        told.contains("has format 7, this build reads format 2"),
        "{told}"
    );
}

#[tokio::test]
async fn a_folder_whose_mark_is_not_ours_is_refused() {
    for mark in ["", "something else", "onlyonce file store, format one"] {
        let place = Place::new();
        fs::write(place.path().join("onlyonce"), mark).unwrap();

        let told = place.refusal().await;

        assert!(told.contains("is not a store"), "{told}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}

#[tokio::test]
async fn a_crash_while_a_folder_was_made_does_no_harm() {
    let place = Place::new();
    fs::write(place.path().join("owner"), "").unwrap();
    fs::write(place.path().join("onlyonce.tmp"), "onlyo").unwrap();

    let store = place.open().await;

    finish(&store, 1, &answer(1, 10), DAY).await;
}

#[tokio::test]
async fn a_path_that_cannot_be_a_folder_is_told() {
    let place = Place::new();
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();

    let error = FileStore::open(&file).await.err().unwrap();

    let told = told(&error);
    assert!(told.contains("cannot be made"), "{told}");
}

#[tokio::test]
async fn strange_files_in_a_store_are_ignored() {
    let place = Place::new();
    let store = place.open().await;
    finish(&store, 1, &answer(1, 10), DAY).await;
    drop(store);
    for name in ["notes.txt", "1.log", "x.log", "0000000001.idx", "core.1234"] {
        fs::write(place.path().join(name), "garbage").unwrap();
    }

    let store = place.open().await;

    assert!(replayed(&store, 1).await.is_some());
    drop(store);
    assert!(place.path().join("notes.txt").exists());
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_else_may_read_what_is_stored() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let path = place.path().join("new").join("store");
    let store = FileStore::open(&path).await.unwrap();
    finish(&store, 1, &answer(1, 10), DAY).await;
    store.agree("secret", b"value").await.unwrap();

    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o077;
    assert_eq!(mode(&path), 0);
    for entry in fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap().path();
        assert_eq!(mode(&entry), 0, "{}", entry.display());
    }
}
