//! The file store: the whole conformance suite, and what only a store on a disk can get wrong.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, in its support too"
)]

mod bed;
mod churning;
mod clocks;
mod damage;
mod filling;
mod folder;
mod killing;
mod missing;
mod reference;
mod reopening;
mod support;

use bed::FileBed;

onlyonce_testkit::conformance_suite!(FileBed::new().await);
