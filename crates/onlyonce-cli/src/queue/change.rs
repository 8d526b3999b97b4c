//! `onlyonce queue edit`, `retry` and `drop`: what a person may change about requests that are not done.

use std::process::ExitCode;

use http::header::{CONTENT_TYPE, HeaderName};
use onlyonce_client::{Entries, Operation, OperationId, Queue, QueueError, State};
use serde_json::json;

use super::CommandError;
use super::add::{read_body, with_headers};
use super::wanted::{self, wrong};
use crate::said::{NO, give, say};

/// What to change.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
What is not given stays as it is. An edited request is another request: it gets a new key, which is
printed, and starts anew. If the old version may have reached the service, that is said: then both may
take effect.

Example:
  onlyonce queue edit 17 -d '{\"item\":\"coffee\"}'")]
pub(super) struct Edit {
    /// Which request
    id: i64,
    /// Another method
    #[arg(long)]
    method: Option<String>,
    /// Another address
    #[arg(long)]
    url: Option<String>,
    /// A header to add or change, like 'Name: value', or @FILE with one per line; may be repeated
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    headers: Vec<String>,
    /// A header to remove; may be repeated
    #[arg(long = "without", value_name = "NAME")]
    without: Vec<HeaderName>,
    /// Another body: text, @FILE, or @- for stdin
    #[arg(long, short = 'd', value_name = "BODY")]
    body: Option<String>,
    /// What the body is
    #[arg(long, value_name = "TYPE", requires = "body")]
    content_type: Option<String>,
}

impl Edit {
    fn apply(&self, old: &Operation) -> Result<Operation, CommandError> {
        let method = match &self.method {
            Some(method) => wanted::method(method)?,
            None => old.method().clone(),
        };
        let url = self.url.as_deref().unwrap_or(old.url().as_str());
        let mut new = Operation::new(method, url)?;
        let old_type = old.headers().get(CONTENT_TYPE);
        let old_type = old_type.and_then(|value| value.to_str().ok());
        if let Some(body) = &self.body {
            let given = self.content_type.as_deref().or(old_type);
            new = wanted::with_body(new, given, read_body(body)?)?;
        } else if !old.bytes().is_empty() {
            new = wanted::with_body(new, old_type, old.bytes().to_vec())?;
        }
        for (name, value) in old.headers() {
            if name != CONTENT_TYPE && !self.without.contains(name) {
                let value = value.to_str().map_err(|_| wrong("a header is not text"))?;
                new = wanted::with_header(new, name.as_str(), value)?;
            }
        }
        with_headers(new, &self.headers)
    }
}

pub(super) async fn edit(queue: &Queue, edit: &Edit, json: bool) -> Result<ExitCode, CommandError> {
    let id = OperationId::from_number(edit.id);
    let entry = queue.entry(id).await?.ok_or(QueueError::NotThere)?;
    if State::of(&entry.status) == State::Done {
        return Err(QueueError::NotThere.into());
    }
    let old = entry.operation.ok_or(QueueError::NotThere)?;
    let edited = queue.edit(id, edit.apply(&old)?).await?;
    let key = edited.key.expose();
    if json {
        let told = json!({"id": edit.id, "key": key, "may_have_run": edited.may_have_run});
        give(format_args!("{told}"));
    } else {
        if edited.may_have_run {
            let warning = "the request as it was before may have taken effect: then both will have";
            say(format_args!("{warning}"));
        }
        give(format_args!("{id} {key}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Each one; what cannot be done for one is said and does not hold up the others.
pub(super) async fn retry(
    queue: &Queue,
    ids: &[i64],
    all: bool,
    json: bool,
) -> Result<ExitCode, CommandError> {
    let mut ids: Vec<_> = ids.iter().copied().map(OperationId::from_number).collect();
    if all {
        ids = failed(queue).await?;
    }
    let mut tally = Tally::new(json);
    for id in ids {
        let done = queue.retry(id).await.map(|()| json!({"id": id.number()}));
        tally.add(id, "waits again, under its key", done)?;
    }
    Ok(tally.code())
}

pub(super) async fn discard(
    queue: &Queue,
    ids: &[i64],
    json: bool,
) -> Result<ExitCode, CommandError> {
    let mut tally = Tally::new(json);
    for id in ids.iter().copied().map(OperationId::from_number) {
        let (done, words) = match queue.discard(id).await {
            Ok(true) => (
                Ok(json!({"id": id.number(), "may_have_run": true})),
                "is forgotten; it may have taken effect before",
            ),
            Ok(false) => (
                Ok(json!({"id": id.number(), "may_have_run": false})),
                "is forgotten",
            ),
            Err(error) => (Err(error), ""),
        };
        tally.add(id, words, done)?;
    }
    Ok(tally.code())
}

/// All that failed, but for steps of groups, which stand or fall with their group.
async fn failed(queue: &Queue) -> Result<Vec<OperationId>, CommandError> {
    let mut ids = Vec::new();
    let mut wanted = Entries {
        state: Some(State::Failed),
        ..Entries::default()
    };
    loop {
        let page = queue.entries(wanted).await?;
        let Some(last) = page.last() else {
            return Ok(ids);
        };
        wanted.after = Some(last.id);
        let can_be_retried = page
            .iter()
            .filter(|entry| entry.group.is_none() || entry.is_undo);
        ids.extend(can_be_retried.map(|entry| entry.id));
    }
}

/// What was said about several requests.
struct Tally {
    json: bool,
    refused: usize,
}

impl Tally {
    fn new(json: bool) -> Self {
        Self { json, refused: 0 }
    }

    fn add(
        &mut self,
        id: OperationId,
        words: &str,
        done: Result<serde_json::Value, QueueError>,
    ) -> Result<(), CommandError> {
        match done {
            Ok(told) if self.json => give(format_args!("{told}")),
            Ok(_) => say(format_args!("{id} {words}")),
            Err(error @ (QueueError::NotThere | QueueError::InGroup)) => {
                say(format_args!("{id}: {error}"));
                self.refused += 1;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn code(&self) -> ExitCode {
        match self.refused {
            0 => ExitCode::SUCCESS,
            _ => NO.into(),
        }
    }
}
