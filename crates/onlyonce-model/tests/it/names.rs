//! The rules of the models are the simulator's, by name.

use std::fs;
use std::path::Path;

use onlyonce_model::{engines, quorum};

/// The simulator's sources, with every text that goes over several lines on one.
fn simulator() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../onlyonce-testkit/src/sim");
    let folders = [folder.join("rules"), folder];
    let files = folders.iter().flat_map(|it| fs::read_dir(it).unwrap());
    let files = files.map(|it| it.unwrap().path());
    let sources = files.filter(|it| it.extension().is_some_and(|it| it == "rs"));
    let sources: Vec<_> = sources.map(|it| fs::read_to_string(it).unwrap()).collect();
    let lines = sources.iter().flat_map(|it| it.lines()).map(str::trim);
    let lines = lines.map(|line| match line.strip_suffix('\\') {
        Some(first) => first.to_owned(),
        None => format!("{line}\n"),
    });
    lines.collect()
}

#[test]
fn every_rule_of_a_model_is_one_of_the_simulators_by_name() {
    let simulator = simulator();
    let engines = engines::Rule::ALL.iter().map(|rule| rule.name());
    let quorum = quorum::Rule::ALL.iter().map(|rule| rule.name());

    let strangers: Vec<_> = engines
        .chain(quorum)
        .filter(|name| !simulator.contains(&format!("\"{name}\"")))
        .collect();

    assert_eq!(strangers, Vec::<&str>::new());
}
