use std::fs::File;

use super::*;

/// As after a fork of the process that opened it.
fn opened_by_a_parent(path: &Path) -> u32 {
    let parent = process::id() + 1;
    lock().insert(path.to_owned(), parent);
    parent
}

#[test]
fn what_a_parent_has_open_is_not_opened_in_its_child_until_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join(QUEUE);
    let inherited = File::create(&path).unwrap();
    let opened_in = opened_by_a_parent(&path);

    let refused = opens_queue(folder.path());
    let refused_as_store = opens_store(&format!("sqlite:{}?mode=rwc", path.display()));
    drop(inherited);
    let taken = opens_queue(folder.path());
    let _own = File::open(&path).unwrap();
    let again = opens_queue(folder.path());

    assert_eq!(refused, Err(OpenInParent { path, opened_in }));
    assert_eq!(refused_as_store, refused);
    assert_eq!((taken, again), (Ok(()), Ok(())));
}

#[test]
fn a_file_has_one_name_before_and_after_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new").join("records.db");
    let roundabout = folder.path().join(".").join("new").join("records.db");

    let before = canonical(&roundabout);
    fs::create_dir(folder.path().join("new")).unwrap();
    fs::write(&path, "").unwrap();

    assert_eq!(before, canonical(&path));
    assert_eq!(opens_store("redis://127.0.0.1"), Ok(()));
}
