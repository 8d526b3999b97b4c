//! Whether a server may vote at all: recent enough, a master, and one that keeps what it has
//! acknowledged.

use std::collections::BTreeMap;

use ::redis::{Cmd, Pipeline, Value};
use onlyonce_quorum::Fault;

use super::member::{Member, bytes};
use super::url::Persistence;
use crate::check::{field, version};
use crate::eviction::Evicts;
use crate::url::Eviction;

/// Looks at the server's settings; an error is why it does not vote.
pub(super) async fn check(
    member: &Member,
    persistence: Persistence,
    eviction: Eviction,
) -> Result<(), Fault> {
    let info = info(member).await?;
    let unsafe_because = |why: &str| Err(Fault::Unsafe(why.to_owned()));
    match version(&info) {
        Ok(version) if version.is_native() => {}
        Ok(_) => return unsafe_because("a quorum needs Redis 7.0 or later"),
        Err(error) => return unsafe_because(&error.to_string()),
    }
    if field(&info, "role") == Some("slave") {
        return unsafe_because("it is a replica: a quorum is of independent servers");
    }
    if field(&info, "cluster_enabled") == Some("1") {
        return unsafe_because("it belongs to a cluster: a quorum is of independent servers");
    }
    match (Evicts::of(&info), eviction) {
        (Some(evicts), Eviction::Refuse) => return unsafe_because(&evicts.to_string()),
        (Some(_) | None, Eviction::Refuse | Eviction::Warn | Eviction::Allow) => {}
    }
    match persistence {
        Persistence::Trusted => Ok(()),
        Persistence::Required => persists(member).await,
    }
}

async fn info(member: &Member) -> Result<String, Fault> {
    let mut commands = Pipeline::new();
    for section in ["server", "memory", "replication", "cluster"] {
        let mut command = Cmd::new();
        command.arg("INFO").arg(section);
        commands.add_command(command);
    }
    let mut told = String::new();
    for answer in member.ask(commands).await? {
        told.push_str(&String::from_utf8_lossy(bytes(&answer).unwrap_or_default()));
        told.push('\n');
    }
    Ok(told)
}

/// Whether everything is on disk before it is acknowledged.
async fn persists(member: &Member) -> Result<(), Fault> {
    let mut command = Cmd::new();
    command.arg("CONFIG").arg("GET").arg("*append*");
    let mut commands = Pipeline::new();
    commands.add_command(command);
    let settings = match member.ask(commands).await {
        Ok(answers) => settings(&answers),
        Err(Fault::Away(why)) if why.contains("NOPERM") || why.contains("ERR") => {
            let why = "its user may not see whether it keeps its data: allow +config|get, or vouch \
                       for it with persistence=trust";
            return Err(Fault::Unsafe(why.to_owned()));
        }
        Err(fault) => return Err(fault),
    };
    let wanted = [
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("no-appendfsync-on-rewrite", "no"),
    ];
    for (name, value) in wanted {
        if settings.get(name).map(String::as_str) != Some(value) {
            let why = format!(
                "it may lose what it has acknowledged: set {name} to {value}, or accept that with \
                 persistence=trust"
            );
            return Err(Fault::Unsafe(why));
        }
    }
    Ok(())
}

/// Names and values take turns.
fn settings(answers: &[Value]) -> BTreeMap<String, String> {
    let [Value::Array(told)] = answers else {
        return BTreeMap::new();
    };
    let text = |value| String::from_utf8_lossy(bytes(value).unwrap_or_default()).into_owned();
    let pairs = told.chunks_exact(2);
    pairs.map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}
