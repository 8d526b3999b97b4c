//! The results of a run as Markdown tables.

use crate::report::{Report, Row};

const PEER_HEAD: &str = "\
| | keeps its answers in | new keys | of bare | p50 | p99 | p99.9 | CPU | replays | of bare | p50 | p99 | p99.9 | CPU | memory | after | 64 duplicates: runs | served | answers |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
";
const REST_HEAD: &str = "\
| | case | what | ours | reference | ratio | spread | goal | |
|---|---|---|---|---|---|---|---|---|
";
const LOADS: [&str; 2] = ["new keys", "replays"];

/// One row a peer, in the order they were measured.
pub(crate) fn peers(report: &Report) -> String {
    let mut text = PEER_HEAD.to_owned();
    for name in peer_names(report) {
        let mut cells = vec![name.to_owned(), note(report, name, "keeps")];
        for load in LOADS {
            let case = match load {
                "new keys" if of(report, name, load, "rate").is_none() => "passed through",
                _ => load,
            };
            let rate = of(report, name, case, "rate");
            cells.push(shown(rate));
            cells.push(rate.map_or_else(dash, |row| format!("{:.2}", row.figure)));
            for what in ["p50", "p99", "p99.9", "CPU a request"] {
                cells.push(shown(of(report, name, case, what)));
            }
        }
        for (case, what) in [
            ("memory", "at rest"),
            ("memory", "after the load"),
            ("64 duplicates", "handler runs"),
            ("64 duplicates", "served"),
            ("64 duplicates", "different answers"),
        ] {
            cells.push(shown(of(report, name, case, what)));
        }
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    let told = report.notes.iter().filter(|note| note.what != "keeps");
    let told =
        told.map(|note| format!("- {}: {}: {}\n", note.subject, note.what, line(&note.text)));
    text.push('\n');
    text.extend(told);
    text
}

/// All rows that are not a peer's.
pub(crate) fn rest(report: &Report) -> String {
    let peers = peer_names(report);
    let rows = report
        .rows
        .iter()
        .filter(|row| !peers.contains(&row.subject));
    let mut text = REST_HEAD.to_owned();
    text.extend(rows.map(|row| format!("| {} |\n", row.cells().join(" | "))));
    text
}

/// Every peer, measured or not, has said what it keeps.
pub(crate) fn peer_names(report: &Report) -> Vec<&'static str> {
    let keeps = report.notes.iter().filter(|note| note.what == "keeps");
    keeps.map(|note| note.subject).collect()
}

pub(crate) fn of<'a>(report: &'a Report, subject: &str, case: &str, what: &str) -> Option<&'a Row> {
    let mut rows = report.rows.iter();
    rows.find(|row| row.subject == subject && row.case == case && row.what == what)
}

fn note(report: &Report, subject: &str, what: &str) -> String {
    let mut notes = report.notes.iter();
    let note = notes.find(|note| note.subject == subject && note.what == what);
    note.map_or_else(dash, |note| note.text.clone())
}

fn shown(row: Option<&Row>) -> String {
    row.map_or_else(dash, |row| row.unit.show(row.ours))
}

fn dash() -> String {
    "–".to_owned()
}

/// Without what would end a line of a list.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
