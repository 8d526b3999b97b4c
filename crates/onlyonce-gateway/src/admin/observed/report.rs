//! What was observed as a report in sentences, so that its reader needs no table of terms: for the
//! console and for `onlyonce observe report`.

use super::super::console::{grouped, to_second};
use super::{ObservedRouteView, ObservedView, SeenView};

#[cfg(test)]
mod tests;

/// What requests that no route matches are called.
const REST: &str = "*";
/// Repeats of a request: what was seen of it, and what would have become of it.
const REPEATS: [(&str, &str); 6] = [
    ("replay", "would have got the stored answer"),
    (
        "attached",
        "came while the first one ran, and would have waited for its answer",
    ),
    (
        "rerun",
        "would have run again, because the first one failed in a way that is not stored",
    ),
    (
        "in-progress",
        "came while the first one ran, and would have been refused as in progress",
    ),
    (
        "outcome-unknown",
        "would not have run, because the outcome of the first one is unknown (held for a decision, or looked up where `reconcile` is set)",
    ),
    (
        "response-too-large",
        "would have been told that it ran, without its answer, which was too large to store",
    ),
];
/// Requests that would have been refused, and why.
const REFUSALS: [(&str, &str); 10] = [
    (
        "mismatch",
        "would have been refused as conflicts: the same key with another payload",
    ),
    (
        "other-credential",
        "would have been refused as conflicts: the same key with another credential",
    ),
    (
        "missing-key",
        "would have been refused, because the contract needs a key and there was none",
    ),
    (
        "bad-key",
        "would have been refused, because the contract does not take such a key",
    ),
    (
        "bad-ttl",
        "would have been refused, because their time to live is no number",
    ),
    (
        "unscoped",
        "would have been refused, because their caller cannot be told apart from others",
    ),
    (
        "unverified",
        "would have been refused, because their token does not verify",
    ),
    (
        "request-too-large",
        "would have been refused, because their body is larger than `request_bytes_max`",
    ),
    (
        "request-unreadable",
        "broke off while they were sent, and would not have run",
    ),
    (
        "request-encoded",
        "would have been refused, because their body has a `Content-Encoding` and decides which key counts or \
         whose request it is",
    ),
];
/// What requests and answers were like besides.
const FINDINGS: [(&str, &str); 3] = [
    (
        "ran-again",
        "ran a second time under the same key: enforcing would have kept them from it",
    ),
    (
        "answer-too-large",
        "had an answer that is too large to store (`response_bytes_max`)",
    ),
    (
        "weak-key",
        "had a key that looks easy to guess: clients should send random ones, such as a UUID",
    ),
];

/// What is said of all observed routes.
#[derive(Debug)]
pub struct ObservedReport {
    pub(in crate::admin) head: String,
    pub(in crate::admin) routes: Vec<RouteReport>,
}

/// What is said of one of them.
#[derive(Debug)]
pub(in crate::admin) struct RouteReport {
    pub(in crate::admin) title: String,
    /// Sentences, each with the requests that it is an example of.
    pub(in crate::admin) lines: Vec<(String, Vec<String>)>,
    pub(in crate::admin) ending: String,
}

impl ObservedReport {
    /// The report of what was seen.
    pub fn of(view: &ObservedView) -> Self {
        let head = if view.routes.is_empty() {
            "Nothing is observed: set `mode = \"observe\"`, for a route or for all.".to_owned()
        } else {
            format!(
                "What enforcing would have done, since {}.",
                to_second(&view.since)
            )
        };
        let mut report = Self {
            head,
            routes: view.routes.iter().map(RouteReport::of).collect(),
        };
        if view.keys_forgotten > 0 {
            report.head.push_str(&format!(
                " {} were forgotten for lack of room ({} can be remembered): some repeats count as \
                 first requests.",
                keys(view.keys_forgotten),
                grouped(view.keys_max as u64),
            ));
        }
        report
    }

    /// Lines for a terminal.
    pub fn text(&self) -> String {
        let mut text = self.head.clone();
        for route in &self.routes {
            text.push_str(&format!("\n\n{}\n", route.title));
            for (line, examples) in &route.lines {
                text.push_str(&format!("  {line}\n"));
                for example in examples {
                    text.push_str(&format!("      {example}\n"));
                }
            }
            text.push_str(&format!("  {}", route.ending));
        }
        text
    }

    /// A page for a ticket or a pull request.
    pub fn markdown(&self) -> String {
        let mut text = format!("# Observed\n\n{}", self.head);
        for route in &self.routes {
            text.push_str(&format!("\n\n## {}\n\n", route.title));
            for (line, examples) in &route.lines {
                text.push_str(&format!("- {line}\n"));
                for example in examples {
                    text.push_str(&format!("  - {example}\n"));
                }
            }
            text.push_str(&format!("\n{}", route.ending));
        }
        text
    }
}

impl RouteReport {
    fn of(route: &ObservedRouteView) -> Self {
        let name = match route.route.as_str() {
            REST => "Requests that no route matches",
            name => name,
        };
        Self {
            title: format!("{name} (observed since {})", to_second(&route.since)),
            lines: lines(route),
            ending: ending(route),
        }
    }
}

fn lines(route: &ObservedRouteView) -> Vec<(String, Vec<String>)> {
    let verdict = |name: &str| route.verdicts.iter().find(|it| it.seen == name);
    let count = |name: &str| verdict(name).map_or(0, |it| it.count);
    if route.requests == 0 {
        return vec![("No request yet.".to_owned(), Vec::new())];
    }
    let repeats: u64 = REPEATS.iter().map(|(name, _)| count(name)).sum();
    let repeated = format!(
        "{} of {} keyed requests were repeats.",
        grouped(repeats),
        grouped(route.keyed)
    );
    let mut lines = vec![(repeated, Vec::new())];
    let mut say = |seen: Option<&SeenView>, words: &str| {
        if let Some(seen) = seen {
            let line = format!("{} {words}.", grouped(seen.count));
            lines.push((line, examples(seen)));
        }
    };
    for (name, words) in REPEATS.iter().chain(&REFUSALS) {
        say(verdict(name), words);
    }
    for (name, words) in &FINDINGS {
        say(route.findings.iter().find(|it| it.seen == *name), words);
    }
    say(
        verdict("unkeyed"),
        "had no key, and would have passed unprotected",
    );
    say(
        verdict("unseen"),
        "could not be looked at: nobody read their body to its end, or there was no room for it",
    );
    lines
}

/// What to do next.
fn ending(route: &ObservedRouteView) -> String {
    if !route.observed {
        return "It is not observed any more.".to_owned();
    }
    let place = match route.route.as_str() {
        REST => "for all requests".to_owned(),
        name => format!("in the [[route]] with match = \"{name}\""),
    };
    format!(
        "To enforce: mode = \"enforce\" {place}, then reload. Keys seen until then count as new."
    )
}

fn examples(seen: &SeenView) -> Vec<String> {
    let newest = seen.examples.iter().rev();
    newest
        .map(|example| {
            let key = example.key.as_ref().map(|key| format!(", key {key}"));
            let detail = example.detail.as_ref().map(|it| format!(": {it}"));
            format!(
                "{}{}{}",
                to_second(&example.at),
                key.unwrap_or_default(),
                detail.unwrap_or_default()
            )
        })
        .collect()
}

fn keys(count: u64) -> String {
    match count {
        1 => "1 key".to_owned(),
        more => format!("{} keys", grouped(more)),
    }
}
