//! What libFuzzer writes is understood.

use super::watch::Watched;
use super::*;

fn read(text: &str) -> Watched {
    let mut watched = Watched::default();
    text.lines().for_each(|line| watched.line(line));
    watched
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn a_run_is_summed_up_in_a_line() {
    let watched = read(
        "INFO: Running with entropic power schedule (0xFF, 100).\n\
         #2\tINITED cov: 11 ft: 12 corp: 1/1b exec/s: 0 rss: 40Mb\n\
         #8192\tpulse  cov: 105 ft: 300 corp: 30/2Kb lim: 4 exec/s: 4096 rss: 41Mb\n\
         stat::number_of_executed_units: 9000\n\
         stat::average_exec_per_sec:     4500\n",
    );

    let line = watched.to_string();

    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[..3], ["9000", "4500", "105"]);
}

#[test]
fn what_was_found_is_named_with_what_was_said_about_it() {
    let watched = read(
        "#2\tINITED cov: 11 ft: 12 corp: 1/1b exec/s: 0 rss: 40Mb\n\
         \n\
         thread '<unnamed>' (1) panicked at fuzz/src/key.rs:20:5:\n\
         assertion failed\n\
         note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n\
         ==77== ERROR: libFuzzer: deadly signal\n\
         NOTE: libFuzzer has rudimentary signal handlers.\n\
         artifact_prefix='/w/'; Test unit written to /w/crash-0a\n",
    );

    assert!(!watched.is_clean());
    assert_eq!(watched.found.as_deref(), Some(Path::new("/w/crash-0a")));
    assert_eq!(
        watched.why(),
        "thread '<unnamed>' (1) panicked at fuzz/src/key.rs:20:5:\nassertion failed"
    );
}

#[test]
fn an_unknown_target_is_told_with_those_there_are() {
    let all = names(&["codec", "key"]);

    assert_eq!(chosen(&[], &all).ok(), Some(all.clone()));
    assert_eq!(chosen(&names(&["key"]), &all).ok(), Some(names(&["key"])));
    let told = chosen(&names(&["kye"]), &all)
        .err()
        .map(|failure| failure.0);
    assert_eq!(
        told.as_deref(),
        Some("there is no target kye; there are codec, key")
    );
}

#[test]
fn every_target_has_a_corpus() {
    let all = all().map_err(|failure| failure.0).unwrap();

    assert!(all.len() >= 7, "{all:?}");
    for target in all {
        assert!(root().join(CORPUS).join(&target).is_dir(), "{target}");
    }
}
