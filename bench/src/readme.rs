//! The table of the project's README: written from the JSON results of a run, and from nothing else.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::failure::Failure;

const BEGIN: &str = "<!-- Written by `cargo xtask bench` from docs/benchmarks/results.json -->\n";
const END: &str = "<!-- /bench -->\n";
const HEAD: &str = "\
| | keeps answers in | new keys/s | replays/s | handler ran; served |
|---|---|---|---|---|
";
/// Who keeps its answers alike stands together.
const KEEPS: [&str; 3] = ["memory", "Redis", "disk"];
const DUPLICATES: f64 = 64.0;

/// Puts the table of these results in the place of the one that is there.
pub(crate) fn write(readme: &Path, results: &Path) -> Result<(), Failure> {
    let text = read(readme)?;
    let results: Value = serde_json::from_str(&read(results)?)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", results.display())))?;
    let written = with_table(&text, &results)
        .ok_or_else(|| Failure::new(format!("{} has no place for the table", readme.display())))?;
    fs::write(readme, written).map_err(Failure::doing(format!("write {}", readme.display())))
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(Failure::doing(format!("read {}", path.display())))
}

fn with_table(readme: &str, results: &Value) -> Option<String> {
    let (before, rest) = readme.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n{END}{after}", table(results)))
}

fn table(results: &Value) -> String {
    let notes = results["notes"].as_array().into_iter().flatten();
    let keeps: Vec<_> = notes
        .filter(|note| note["what"] == "keeps")
        .filter_map(|note| Some((note["subject"].as_str()?, note["text"].as_str()?)))
        .collect();
    let mut text = HEAD.to_owned();
    for kept in KEEPS {
        let alike = keeps.iter().filter(|(_, place)| place.starts_with(kept));
        text.extend(alike.filter_map(|(name, place)| line(results, name, place)));
    }
    text
}

/// Nothing for who was not measured.
fn line(results: &Value, name: &str, keeps: &str) -> Option<String> {
    let rate = |case| figure(results, name, case, "rate").map(grouped);
    let ran = figure(results, name, "64 duplicates", "handler runs")?;
    let served = figure(results, name, "64 duplicates", "served")?;
    let marked = |figure: f64, good: f64| {
        if figure == good {
            format!("{figure:.0}")
        } else {
            format!("**{figure:.0}**")
        }
    };
    Some(format!(
        "| {name}{} | {keeps} | {} | {} | {}; {} |\n",
        version(results, name),
        rate("new keys")?,
        rate("replays")?,
        marked(ran, 1.0),
        marked(served, DUPLICATES),
    ))
}

fn version(results: &Value, name: &str) -> String {
    let mut notes = results["notes"].as_array().into_iter().flatten();
    let note = notes.find(|note| note["subject"] == name && note["what"] == "version");
    let version = note.and_then(|note| note["text"].as_str());
    version.map_or_else(String::new, |it| format!(" ({it})"))
}

fn figure(results: &Value, subject: &str, case: &str, what: &str) -> Option<f64> {
    let mut rows = results["rows"].as_array()?.iter();
    let row =
        rows.find(|row| row["subject"] == subject && row["case"] == case && row["what"] == what)?;
    row["ours"].as_f64()
}

/// With a comma between thousands.
fn grouped(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{BEGIN, END, grouped, with_table};

    const README: &str = include_str!("../../README.md");
    const RESULTS: &str = include_str!("../../docs/benchmarks/results.json");

    #[test]
    fn the_readme_shows_the_published_results() {
        let results: Value = serde_json::from_str(RESULTS).expect("the results are JSON");

        assert_eq!(with_table(README, &results).as_deref(), Some(README));
    }

    #[test]
    fn a_peer_that_ran_twice_or_left_a_caller_alone_is_marked() {
        let row =
            |case, what, ours| json!({"subject": "peer", "case": case, "what": what, "ours": ours});
        let results = json!({
            "notes": [{"subject": "peer", "what": "keeps", "text": "Redis, in its memory"}],
            "rows": [
                row("new keys", "rate", 1234567.0),
                row("replays", "rate", 12.0),
                row("64 duplicates", "handler runs", 2.0),
                row("64 duplicates", "served", 64.0),
            ],
        });
        let readme = format!("before\n{BEGIN}old\n{END}after\n");

        let written = with_table(&readme, &results).expect("there is a place for it");

        let line = "| peer | Redis, in its memory | 1,234,567 | 12 | **2**; 64 |\n";
        assert!(written.contains(line), "{written}");
        assert!(written.ends_with(&format!("{END}after\n")) && !written.contains("old"));
    }

    #[test]
    fn thousands_are_told_apart() {
        assert_eq!([0.0, 999.4, 1000.0].map(grouped), ["0", "999", "1,000"]);
    }
}
