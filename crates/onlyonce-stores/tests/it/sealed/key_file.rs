//! The file of a key ring: made once, whole, for its owner only.

use std::fs;
use std::sync::Barrier;

use super::*;

#[tokio::test]
async fn a_new_file_seals_and_is_the_same_ring_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let raw = Arc::new(MemoryStore::new());

    let ring = KeyRing::from_file_or_new(&path, &OsEntropy::new()).unwrap();
    let store = Sealed::open(raw.clone(), ring).await.unwrap();
    let claim = done(&store, "stored", LONG).await;
    let again = KeyRing::from_file_or_new(&path, &OsEntropy::new()).unwrap();
    let store = Sealed::open(raw, again).await.unwrap();

    assert_eq!(replayed(&store, &claim).await, b"stored");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_file_is_not_made_unless_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");

    let error = KeyRing::from_file(&path).unwrap_err();

    assert!(
        error.to_string().ends_with("keys cannot be read"),
        "{error}"
    );
    assert!(!path.exists());
}

#[cfg(unix)]
#[test]
fn a_new_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");

    KeyRing::from_file_or_new(&path, &OsEntropy::new()).unwrap();

    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
}

#[cfg(unix)]
#[test]
fn a_file_that_others_can_read_is_refused_with_what_to_do() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    fs::write(&path, KEY_A).unwrap();

    for mode in [0o644, 0o640, 0o660, 0o604, 0o602] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        for ring in [
            KeyRing::from_file(&path),
            KeyRing::from_file_or_new(&path, &OsEntropy::new()),
        ] {
            let said = ring.unwrap_err().to_string();
            assert!(said.contains(&format!("(mode {mode:o})")), "{said}");
            let command = format!("run `chmod 600 {}`", path.display());
            assert!(said.ends_with(&command), "{said}");
        }
    }
    for mode in [0o600, 0o400] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(KeyRing::from_file(&path).is_ok());
    }
}

#[test]
fn of_processes_that_make_it_at_once_one_does() {
    const RACERS: usize = 16;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let start = Barrier::new(RACERS);

    let rings: Vec<_> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    KeyRing::from_file_or_new(&path, &OsEntropy::new()).unwrap()
                })
            })
            .collect();
        racers.into_iter().map(|it| it.join().unwrap()).collect()
    });

    let ids: Vec<_> = rings.iter().map(|ring| format!("{ring:?}")).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_cannot_be_made_is_an_error_that_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("keys");

    let error = KeyRing::from_file_or_new(&path, &OsEntropy::new()).unwrap_err();

    assert!(
        error
            .to_string()
            .ends_with("missing/keys cannot be created"),
        "{error}"
    );
    assert!(std::error::Error::source(&error).is_some());
}

#[cfg(unix)]
#[test]
fn a_file_of_something_else_is_refused_without_repeating_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");

    for (text, why) in [
        ("".to_owned(), "has no key"),
        ("secret".to_owned(), "line 1 of the key ring"),
        ("a secret".to_owned(), "line 1 of the key ring"),
        ("secret\n".repeat(20_000), "cannot be read"),
    ] {
        fs::write(&path, &text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();

        let said = KeyRing::from_file(&path).unwrap_err().to_string();

        assert!(said.contains(why), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}
