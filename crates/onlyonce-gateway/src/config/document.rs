//! A file of settings as it was written: what is wrong in it, all of it, and the line of each
//! setting. A value that cannot be read is noted and left out, and the rest is read again.

use std::ops::Range;

use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::Config;
use super::error::Problem;
use super::load::explain;

/// More than this helps nobody.
const PROBLEMS_MAX: usize = 50;

/// A file of settings.
pub(super) struct Document<'a> {
    file: &'a str,
    text: &'a str,
    /// What could be read.
    table: Spanned<DeTable<'a>>,
    /// The paths of what could not, as in `route.0.ttl`.
    left_out: Vec<String>,
    /// Whether everything was looked at.
    is_whole: bool,
}

impl<'a> Document<'a> {
    /// Reads `text`; says what is wrong in it, and gives what is right.
    pub(super) fn read(file: &'a str, text: &'a str) -> (Self, Config, Vec<Problem>) {
        let (table, mistakes) = DeTable::parse_recoverable(text);
        let mut document = Self {
            file,
            text,
            table,
            left_out: Vec::new(),
            is_whole: false,
        };
        if mistakes.is_empty() {
            let (config, problems) = document.settings();
            return (document, config, problems);
        }
        // What follows a mistake in the notation may mean anything.
        let problems = mistakes.iter().take(PROBLEMS_MAX);
        let problems = problems.map(|it| document.problem(it.span(), None, it.message()));
        let problems = problems.collect();
        (document, Config::default(), problems)
    }

    /// Whether something at `path` could not be read, so that nothing is known of it.
    pub(super) fn leaves_out(&self, path: &str) -> bool {
        let is_part = |left_out: &String| {
            left_out
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        !self.is_whole || self.left_out.iter().any(is_part)
    }

    /// Where `path` is: its line, or that of the table it would be in.
    pub(super) fn place(&self, path: &str) -> String {
        let mut at = None;
        let mut value: Option<&DeValue<'_>> = None;
        for name in path.split('.') {
            let next = match value {
                None => entry(self.table.get_ref(), name),
                Some(DeValue::Table(table)) => entry(table, name),
                Some(DeValue::Array(items)) => {
                    let item = name.parse().ok().and_then(|index: usize| items.get(index));
                    item.map(|item| (item.span(), item.get_ref()))
                }
                Some(_) => None,
            };
            let Some((span, inner)) = next else { break };
            at = Some(span);
            value = Some(inner);
        }
        match at {
            Some(span) => format!("{}:{}", self.file, self.line(&span)),
            None => self.file.to_owned(),
        }
    }

    fn settings(&mut self) -> (Config, Vec<Problem>) {
        let mut problems = Vec::new();
        while problems.len() < PROBLEMS_MAX {
            let read = toml::Deserializer::from(self.table.clone());
            let error = match Config::deserialize(read) {
                Ok(config) => {
                    self.is_whole = true;
                    return (config, problems);
                }
                Err(error) => error,
            };
            let span = error.span();
            let path = span
                .as_ref()
                .and_then(|span| leave_out(self.table.get_mut(), span));
            problems.push(self.problem(span, path.as_deref(), error.message()));
            match path {
                Some(path) => self.left_out.push(path),
                None => break,
            }
        }
        (Config::default(), problems)
    }

    fn problem(&self, span: Option<Range<usize>>, path: Option<&str>, why: &str) -> Problem {
        let line = span.map_or(1, |span| self.line(&span));
        let place = format!("{}:{line}", self.file);
        Problem::new(place, explain(path.map(last), why))
    }

    fn line(&self, span: &Range<usize>) -> usize {
        1 + self.text[..span.start].matches('\n').count()
    }
}

/// The name of the setting at `path`.
fn last(path: &str) -> &str {
    let mut names = path.rsplit('.');
    let is_name = |name: &&str| !name.bytes().all(|it| it.is_ascii_digit());
    names.find(is_name).unwrap_or(path)
}

fn entry<'t, 'a>(table: &'t DeTable<'a>, name: &str) -> Option<(Range<usize>, &'t DeValue<'a>)> {
    let found = table.iter().find(|(key, _)| key.get_ref() == name);
    found.map(|(key, value)| (key.span(), value.get_ref()))
}

/// Takes out the innermost setting that `span` is about; gives its path.
fn leave_out(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<String> {
    for (key, value) in table.iter_mut() {
        if let Some(inner) = leave_out_of(value.get_mut(), span) {
            return Some(format!("{}.{inner}", key.get_ref()));
        }
    }
    let found = table
        .iter()
        .find(|(key, value)| covers(&key.span(), span) || covers(&value.span(), span));
    let key = found.map(|(key, _)| key.clone())?;
    table.remove(&key);
    Some(key.get_ref().to_string())
}

fn leave_out_of(value: &mut DeValue<'_>, span: &Range<usize>) -> Option<String> {
    match value {
        DeValue::Table(table) => leave_out(table, span),
        DeValue::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                if let Some(inner) = leave_out_of(item.get_mut(), span) {
                    return Some(format!("{index}.{inner}"));
                }
            }
            let index = items.iter().position(|item| covers(&item.span(), span))?;
            *items = without(items, index);
            Some(index.to_string())
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => None,
    }
}

fn without<'a>(items: &DeArray<'a>, index: usize) -> DeArray<'a> {
    let mut rest = DeArray::new();
    for (at, item) in items.iter().enumerate() {
        if at != index {
            rest.push(item.clone());
        }
    }
    rest
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
