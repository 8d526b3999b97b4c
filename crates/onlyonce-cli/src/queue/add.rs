//! `onlyonce queue add`: a request, or a group of them, onto the disk.

use std::io::Read as _;
use std::process::ExitCode;

use onlyonce_client::{BODY_BYTES_MAX, Group, Key, Operation, Queue};
use serde_json::json;

use super::CommandError;
use super::wanted::{self, WantedGroup, wrong};
use crate::said::{give, say};

/// The largest file of a group, or of headers.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What to add.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Prints the request's number and its key on one line. The same request under the same key is queued
once, also after it was done, for a day.

Headers and the body of a request lie in the queue's folder, readable by you alone, until it is done.
What is on a command line can be seen by others on this machine: put secrets into a file and give
-H @FILE.

A group is a JSON file. Its steps are done in order; when one fails for good, those before it are
undone, the last one first:
  {\"name\": \"sign-up-7\", \"steps\": [
    {\"do\":   {\"method\": \"PUT\", \"url\": \"https://api.example.org/users/7\", \"json\": {\"name\": \"Ada\"}},
     \"undo\": {\"method\": \"DELETE\", \"url\": \"https://api.example.org/users/7\"}},
    {\"do\":   {\"method\": \"POST\", \"url\": \"https://api.example.org/users/7/rooms\"}}]}

Examples:
  onlyonce queue add POST https://api.example.org/orders -d '{\"item\":\"tea\"}'
  id=$(onlyonce queue add POST https://api.example.org/orders -d @order.json | cut -d' ' -f1)
  onlyonce queue add --group sign-up.json")]
pub(super) struct Args {
    /// The request's method, like POST
    method: Option<String>,
    /// Where it goes
    url: Option<String>,
    /// A header, like 'Name: value', or @FILE with one per line; may be repeated
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    headers: Vec<String>,
    /// The body: text, @FILE, or @- for stdin
    #[arg(long, short = 'd', value_name = "BODY")]
    body: Option<String>,
    /// What the body is [default: application/json if it is JSON, else application/octet-stream]
    #[arg(long, value_name = "TYPE", requires = "body")]
    content_type: Option<String>,
    /// The key [default: a new random one]
    #[arg(long)]
    key: Option<String>,
    /// A group of requests, as JSON: a file, or - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "url", "headers", "body", "key"])]
    group: Option<String>,
}

/// What was read from the command line, files and stdin, before the queue is opened.
pub(super) enum Added {
    One(Option<Key>, Box<Operation>),
    Group(Group),
}

impl Args {
    pub(super) fn read(&self) -> Result<Added, CommandError> {
        if let Some(file) = &self.group {
            let text = read_file(file, FILE_BYTES_MAX)?;
            let group: WantedGroup = serde_json::from_slice(&text)
                .map_err(|why| wrong(&format!("the group {file} cannot be read: {why}")))?;
            return Ok(Added::Group(group.group()?));
        }
        let (Some(method), Some(url)) = (&self.method, &self.url) else {
            return Err(wrong("give a method and a URL, or --group"));
        };
        let mut operation = Operation::new(wanted::method(method)?, url)?;
        if let Some(body) = &self.body {
            let body = read_body(body)?;
            operation = wanted::with_body(operation, self.content_type.as_deref(), body)?;
        }
        operation = with_headers(operation, &self.headers)?;
        let key = self.key.as_deref().map(wanted::key).transpose()?;
        Ok(Added::One(key, Box::new(operation)))
    }
}

/// The same with headers as they stand on a command line.
pub(super) fn with_headers(
    mut operation: Operation,
    lines: &[String],
) -> Result<Operation, CommandError> {
    for line in lines {
        let text = match line.strip_prefix('@') {
            Some(file) => String::from_utf8(read_file(file, FILE_BYTES_MAX)?)
                .map_err(|_| wrong(&format!("{file} is not text")))?,
            None => line.clone(),
        };
        for header in text.lines().filter(|header| !header.trim().is_empty()) {
            // The line is not shown: it may be a secret.
            let parts = header.split_once(':');
            let (name, value) = parts.ok_or_else(|| wrong("write headers like 'Name: value'"))?;
            operation = wanted::with_header(operation, name.trim(), value.trim())?;
        }
    }
    Ok(operation)
}

/// A body as it stands on a command line.
pub(super) fn read_body(body: &str) -> Result<Vec<u8>, CommandError> {
    match body.strip_prefix('@') {
        Some(file) => read_file(file, BODY_BYTES_MAX),
        None => Ok(body.as_bytes().to_vec()),
    }
}

fn read_file(file: &str, bytes_max: usize) -> Result<Vec<u8>, CommandError> {
    let unreadable = || CommandError::io(format!("{file} cannot be read"));
    let mut bytes = Vec::new();
    let at_most = bytes_max as u64 + 1;
    if file == "-" {
        let stdin = std::io::stdin().lock();
        stdin.take(at_most).read_to_end(&mut bytes)
    } else {
        let opened = std::fs::File::open(file).map_err(unreadable())?;
        opened.take(at_most).read_to_end(&mut bytes)
    }
    .map_err(unreadable())?;
    if bytes.len() > bytes_max {
        let why = format!("{file} is too large: at most {bytes_max} bytes are allowed");
        return Err(CommandError::Wrong(why));
    }
    Ok(bytes)
}

/// Puts it in, and prints its number and its key once it is on disk.
pub(super) async fn add(queue: &Queue, added: Added, json: bool) -> Result<ExitCode, CommandError> {
    let (key, operation) = match added {
        Added::One(key, operation) => (key, operation),
        Added::Group(group) => {
            let group = queue.enqueue_group(group).await?.number();
            if json {
                give(format_args!("{}", json!({ "group": group })));
            } else {
                give(format_args!("group {group}"));
            }
            return Ok(ExitCode::SUCCESS);
        }
    };
    let key = key.unwrap_or_else(|| onlyonce_client::Keys::default().v4());
    let queued = queue.enqueue_as(&key, *operation).await?;
    let (id, key) = (queued.id.number(), key.expose());
    if json {
        let told = json!({"id": id, "key": key, "new": queued.is_new});
        give(format_args!("{told}"));
    } else {
        if !queued.is_new {
            say(format_args!("this request is in the queue already"));
        }
        give(format_args!("{id} {key}"));
    }
    Ok(ExitCode::SUCCESS)
}
