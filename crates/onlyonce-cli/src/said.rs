//! Words for the person at the terminal: data to stdout, everything else to stderr.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

/// A "no": not found, not conformant.
pub(crate) const NO: u8 = 1;
/// A wrong call or a failure.
pub(crate) const FAILED: u8 = 2;

/// Not yet: something is left to be done later.
pub(crate) const LATER: u8 = 3;

/// Says something. Nobody there to hear it is no failure.
pub(crate) fn say(words: fmt::Arguments<'_>) {
    drop(writeln!(std::io::stderr(), "{words}"));
}

/// Gives data.
pub(crate) fn give(data: fmt::Arguments<'_>) {
    drop(writeln!(std::io::stdout(), "{data}"));
}

/// Text that others chose, in a line for a person. What moves a cursor, sets a title, ends a line or turns
/// the direction of reading comes as an escape: a caller's name must not change what a terminal shows.
pub(crate) fn legible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return text.into();
    }
    let mut told = String::with_capacity(text.len());
    for it in text.chars() {
        if is_hidden(it) {
            told.extend(it.escape_unicode());
        } else {
            told.push(it);
        }
    }
    told.into()
}

/// A body that others chose: byte for byte for a program, and for a person at a terminal without what that
/// would obey but lines and tabs.
pub(crate) fn body_for(body: &str, is_terminal: bool) -> Cow<'_, str> {
    if !is_terminal || !body.contains(is_hidden) {
        return body.into();
    }
    let cell = |cell: &str| legible(cell).into_owned();
    let line = |line: &str| line.split('\t').map(cell).collect::<Vec<_>>().join("\t");
    body.split('\n')
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
        .into()
}

fn is_hidden(it: char) -> bool {
    let turns =
        matches!(it, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || it.is_control() || matches!(it, '\u{2028}' | '\u{2029}')
}

/// Says what failed, with its causes; gives the exit code for it.
pub(crate) fn failed(error: &dyn std::error::Error) -> ExitCode {
    let mut words = format!("onlyonce: {error}");
    let mut cause = error.source();
    while let Some(next) = cause {
        words.push_str(&format!(": {next}"));
        cause = next.source();
    }
    say(format_args!("{words}"));
    FAILED.into()
}

#[cfg(test)]
mod tests {
    use super::{body_for, legible};

    #[test]
    fn a_body_is_sent_on_as_it_is_but_not_to_a_terminal() {
        let hostile = "{\n\t\"id\": \"\u{1b}]0;x\u{7}\u{1b}[2J\"\r\n}";

        assert_eq!(body_for(hostile, false), hostile);
        assert_eq!(
            body_for(hostile, true),
            "{\n\t\"id\": \"\\u{1b}]0;x\\u{7}\\u{1b}[2J\"\\u{d}\n}"
        );
        assert_eq!(body_for("a\tb\n", true), "a\tb\n");
    }

    #[test]
    fn what_a_terminal_would_obey_is_written_out_and_all_else_is_as_it_was() {
        for text in ["", "/orders", "ada@example.org", "Zoë 名 🚲"] {
            assert_eq!(legible(text), text);
        }
        let hostile = "a\u{1b}[2Jb\u{9b}31mc\nd\u{202e}e\u{7f}";
        assert_eq!(
            legible(hostile),
            r"a\u{1b}[2Jb\u{9b}31mc\u{a}d\u{202e}e\u{7f}"
        );
    }
}
