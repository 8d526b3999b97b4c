//! What was found or thought of before holds.

use std::fs;
use std::path::Path;

use onlyonce_fuzz::TARGETS;

/// More would slow every clone down, and find no more.
const CORPUS_BYTES_MAX: u64 = 300 * 1024;

fn files(name: &str) -> Vec<fs::DirEntry> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<_> = entries.map(Result::unwrap).collect();
    files.sort_by_key(fs::DirEntry::path);
    files
}

#[test]
fn everything_in_the_corpus_holds() {
    for (name, target) in TARGETS {
        for file in files(name) {
            let bytes = fs::read(file.path()).unwrap();

            let held = std::panic::catch_unwind(|| target(&bytes));

            assert!(held.is_ok(), "{:?}", file.path());
        }
    }
}

#[test]
fn every_target_has_a_small_corpus() {
    let mut bytes = 0;
    for (name, _) in TARGETS {
        let files = files(name);
        assert!(files.len() >= 10, "{name}: {}", files.len());
        bytes += files
            .iter()
            .map(|file| file.metadata().unwrap().len())
            .sum::<u64>();
    }

    assert!(bytes <= CORPUS_BYTES_MAX, "{bytes}");
}

#[test]
fn every_target_has_a_program() {
    for (name, _) in TARGETS {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz_targets/{name}.rs"));

        assert!(program.is_file(), "{program:?}");
    }
}
