//! What happens at a gateway: its hottest keys, and every event as it comes.

use futures_util::StreamExt as _;
use onlyonce_gateway::{EventLine, TopView};

use crate::said::{give, legible, say};
use crate::source::{Source, SourceError};
use crate::table::Table;

/// Which events to watch.
#[derive(clap::Args, Debug)]
pub(super) struct Watch {
    /// Only these events, as in --event replayed,refused
    #[arg(long)]
    event: Option<String>,
    /// Only of this route or job
    #[arg(long)]
    operation: Option<String>,
    /// Only by this actor
    #[arg(long)]
    actor: Option<String>,
    /// Only of slots that start with these hex digits
    #[arg(long)]
    slot: Option<String>,
    /// Stop after this many
    #[arg(long)]
    count: Option<usize>,
}

/// Prints the keys that are replayed, refused or waited for most.
pub(super) async fn top(source: &Source, limit: u16, json: bool) -> Result<(), SourceError> {
    let path = format!("/api/v1/top?limit={limit}");
    let top: TopView = source.admin()?.ask(http::Method::GET, &path, None).await?;
    if json {
        give(format_args!("{}", serde_json::json!(top.keys)));
        return Ok(());
    }
    let headings = [
        "SLOT",
        "KEY",
        "OPERATION",
        "ACTOR",
        "REPLAYS",
        "REFUSALS",
        "WAITERS",
    ];
    let mut table = Table::new(&headings);
    for key in &top.keys {
        table.row(vec![
            super::short(&key.slot),
            key.key.clone(),
            key.operation.clone(),
            key.actor.clone().unwrap_or_else(|| "-".to_owned()),
            key.replays.to_string(),
            key.refusals.to_string(),
            key.waiters.to_string(),
        ]);
    }
    give(format_args!("{table}"));
    Ok(())
}

/// Prints events as they come, until it is stopped or the gateway ends.
pub(super) async fn watch(source: &Source, watch: &Watch, json: bool) -> Result<(), SourceError> {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in [
        ("event", &watch.event),
        ("operation", &watch.operation),
        ("actor", &watch.actor),
        ("slot", &watch.slot),
    ] {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    let path = format!("/api/v1/events?{}", query.finish());
    let mut events = source.admin()?.stream(&path).await?;
    say(format_args!("watching; Ctrl-C ends it"));
    let (mut text, mut left) = (Vec::new(), watch.count.unwrap_or(usize::MAX));
    while left > 0 {
        let Some(bytes) = events.next().await else {
            break;
        };
        let Ok(bytes) = bytes else {
            break;
        };
        text.extend_from_slice(&bytes);
        while left > 0
            && let Some(end) = text.windows(2).position(|it| it == b"\n\n")
        {
            let event: Vec<u8> = text.drain(..end + 2).collect();
            if print(&String::from_utf8_lossy(&event), json) {
                left -= 1;
            }
        }
    }
    if left > 0 && watch.count.is_some() {
        return Err(SourceError::Refused("the gateway has ended".to_owned()));
    }
    Ok(())
}

/// Prints one event; false if it was only a sign of life.
fn print(event: &str, json: bool) -> bool {
    let Some(data) = event.lines().find_map(|line| line.strip_prefix("data:")) else {
        return false;
    };
    let data = data.trim_start();
    if event.lines().any(|line| line == "event: missed") {
        say(format_args!(
            "{data} events were missed: too many for this terminal"
        ));
        return false;
    }
    if json {
        give(format_args!("{data}"));
        return true;
    }
    match serde_json::from_str::<EventLine>(data) {
        Ok(line) => {
            let actor = line.actor.as_deref().unwrap_or("-");
            let told = format!(
                "{}  {:<15}  {}  {}  {actor}  {}",
                line.at, line.event, line.key, line.operation, line.detail
            );
            give(format_args!("{}", legible(&told)));
        }
        Err(_) => give(format_args!("{}", legible(data))),
    }
    true
}
