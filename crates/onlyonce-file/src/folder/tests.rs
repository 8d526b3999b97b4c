use std::cell::RefCell;

use super::*;

/// Makes the folder; gives the others that were made durable meanwhile.
fn made(path: &Path) -> Vec<PathBuf> {
    let synced = RefCell::new(Vec::new());
    let sync = |folder: &Path| {
        assert!(path.is_dir(), "made durable before it was made");
        synced.borrow_mut().push(folder.to_owned());
        Ok(())
    };
    make(path, sync).unwrap();
    synced.into_inner()
}

#[test]
fn every_folder_that_gets_a_new_name_is_made_durable() {
    let temporary = tempfile::tempdir().unwrap();
    let above = temporary.path().to_owned();
    let path = above.join("a/b/c");

    let first = made(&path);
    let again = made(&path);

    assert_eq!(first, [above.join("a/b"), above.join("a"), above]);
    assert!(again.is_empty(), "{again:?}");
}

#[test]
fn a_folder_that_is_not_made_durable_is_not_made() {
    let temporary = tempfile::tempdir().unwrap();
    let failed = make(&temporary.path().join("a"), |_| {
        Err(io::ErrorKind::Other.into())
    });

    assert!(failed.is_err());
}
