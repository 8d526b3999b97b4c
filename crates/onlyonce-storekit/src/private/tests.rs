#![cfg(unix)]

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn loosen(path: &Path) {
    fs::write(path, "text").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn a_new_file_is_for_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");

    file(&path).unwrap();

    assert_eq!(mode(&path), 0o600);
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn an_existing_file_is_tightened_and_keeps_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    loosen(&path);

    file(&path).unwrap();

    assert_eq!(mode(&path), 0o600);
    assert_eq!(fs::read(&path).unwrap(), b"text");
}

#[test]
fn what_is_beside_a_database_is_tightened_and_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    loosen(&path);
    loosen(&beside(&path, "-wal"));

    database(&path).unwrap();

    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&beside(&path, "-wal")), 0o600);
    assert!(!beside(&path, "-shm").exists());
}

#[test]
fn what_is_not_a_regular_file_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();

    file(folder.path()).unwrap();
    file(Path::new("/dev/null")).unwrap();

    assert_eq!(mode(folder.path()), 0o755);
}

#[test]
fn a_link_leads_to_the_file_that_is_tightened() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("data"), folder.path().join("link"));
    loosen(&path);
    std::os::unix::fs::symlink(&path, &link).unwrap();

    file(&link).unwrap();

    assert_eq!(mode(&path), 0o600);
}
