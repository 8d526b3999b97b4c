//! A machine's clock that is set between two processes: within one boot the time since the boot
//! counts, whatever the date is.

use std::process::Stdio;

use onlyonce_file::FileStore;
use onlyonce_testkit::servers::faketime::{self, Skew};

use super::support::{DAY, MINUTE, Place, answer, finish, replayed};

/// Set for a child: the folder to store in.
const FOLDER: &str = "ONLYONCE_TEST_FILE_CLOCK";
const CHILD: &str = "clocks::a_child_stores_an_answer_when_it_is_told_to";

/// Nothing by itself: the other test runs it in a process whose clock is wrong.
#[tokio::test]
async fn a_child_stores_an_answer_when_it_is_told_to() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let store = FileStore::open(folder).await.unwrap();
    finish(&store, 1, &answer(1, 10), DAY).await;
}

#[tokio::test]
async fn a_clock_that_is_set_right_between_two_processes_expires_nothing() {
    for skew in [Skew::Behind(2 * DAY), Skew::Ahead(2 * DAY)] {
        let place = Place::new();
        let status = faketime::command(std::env::current_exe().unwrap(), skew)
            .unwrap()
            .args(["--exact", CHILD, "--nocapture"])
            .env(FOLDER, place.path())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());

        let store = FileStore::open(place.path()).await.unwrap();

        let record = replayed(&store, 1).await;
        let left = record.unwrap_or_else(|| panic!("gone: {skew:?}")).keep_left;
        assert!(
            left <= DAY && left > DAY - 10 * MINUTE,
            "{skew:?}: {left:?}"
        );
    }
}
