//! Each target over random bytes, and over what its corpus becomes when it is cut and changed.

use std::fs;
use std::path::Path;

use onlyonce_fuzz::{TARGETS, Target};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;

const CASES: u32 = 300;

/// The bytes of a target's corpus.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("a corpus")
        .map(|it| it.expect("a file of the corpus").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| fs::read(file).expect("a file of the corpus"))
        .collect()
}

/// The start of one seed and the end of another, with some bytes changed, put in or taken out.
fn mutated(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let seed = prop::sample::select(seeds);
    let changes = vec((any::<Index>(), any::<u8>(), 0..3_u8), 0..6);
    (seed.clone(), seed, any::<Index>(), any::<Index>(), changes).prop_map(
        |(one, other, cut, glue, changes)| {
            let mut bytes = one[..cut.index(one.len() + 1)].to_vec();
            bytes.extend(&other[glue.index(other.len() + 1)..]);
            for (at, byte, kind) in changes {
                let at = at.index(bytes.len() + 1);
                let taken = usize::from(kind > 0 && at < bytes.len());
                bytes.splice(at..at + taken, (kind < 2).then_some(byte));
            }
            bytes
        },
    )
}

fn holds_for(name: &str) {
    let (_, target): (_, Target) = TARGETS
        .into_iter()
        .find(|it| it.0 == name)
        .expect("a target of this name");
    let inputs = prop_oneof![1 => vec(any::<u8>(), 0..200), 4 => mutated(seeds(name))];
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(CASES)
    };

    let result = TestRunner::new(config).run(&inputs, |bytes| {
        target(&bytes);
        Ok(())
    });

    if let Err(found) = result {
        panic!("{name}: {found}");
    }
}

#[test]
fn any_request_to_the_admin_api_is_answered_or_refused_with_a_problem() {
    holds_for("admin");
}

#[test]
fn any_stored_bytes_are_read_with_certainty_or_refused() {
    holds_for("codec");
}

#[test]
fn any_text_is_settings_or_an_error_that_says_where_and_why() {
    holds_for("config");
}

#[test]
fn any_request_passes_is_refused_in_words_or_runs_once() {
    holds_for("header");
}

#[test]
fn any_json_text_has_one_canonical_spelling() {
    holds_for("json");
}

#[test]
fn any_header_is_read_as_a_key_like_a_second_reader_reads_it() {
    holds_for("key");
}

#[test]
fn any_policy_stores_replays_and_refuses_exactly_what_it_says() {
    holds_for("policy");
}
