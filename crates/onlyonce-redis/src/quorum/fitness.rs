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

/// An append-only file is not rewritten by itself before it is larger than this.
const FIRST_REWRITE_BYTES_MIN: u64 = 32 * 1024 * 1024;

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
        Persistence::Required => {
            whole(&info)?;
            persists(member).await
        }
    }
}

async fn info(member: &Member) -> Result<String, Fault> {
    let mut commands = Pipeline::new();
    for section in ["server", "memory", "replication", "cluster", "persistence"] {
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

/// Whether its append-only file is written to, and has all that the server has: after `CONFIG SET
/// appendonly yes` it does not until the first rewrite has ended. Whether a restart will load it is not to
/// be seen from here: a setting that is not in the configuration file is gone then.
fn whole(info: &str) -> Result<(), Fault> {
    let unsafe_because = |why: &str| Err(Fault::Unsafe(why.to_owned()));
    if field(info, "aof_enabled") != Some("1") {
        return unsafe_because(
            "it may lose what it has acknowledged: set appendonly to yes, also in its configuration \
             file, or accept that with persistence=trust",
        );
    }
    if field(info, "aof_last_write_status") != Some("ok") {
        return unsafe_because("it could not write its append-only file");
    }
    let bytes = |name| field(info, name).and_then(|it| it.parse::<u64>().ok());
    let is_under_way = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"]
        .iter()
        .any(|name| field(info, name) == Some("1"));
    let has_failed = field(info, "aof_last_bgrewrite_status") != Some("ok");
    // One that was there from the start is rewritten only once it is larger.
    let is_first = bytes("aof_base_size") == Some(0)
        && bytes("aof_current_size").is_some_and(|it| it < FIRST_REWRITE_BYTES_MIN);
    match is_first && (is_under_way || has_failed) {
        true => unsafe_because("its append-only file does not have all of its data yet"),
        false => Ok(()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[&str]) -> Option<String> {
        let mut info = vec![
            "aof_enabled:1",
            "aof_rewrite_in_progress:0",
            "aof_rewrite_scheduled:0",
            "aof_last_bgrewrite_status:ok",
            "aof_last_write_status:ok",
            "aof_current_size:0",
            "aof_base_size:0",
        ];
        for line in lines {
            let (name, _) = line.split_once(':').expect("a field");
            info.retain(|it| !it.starts_with(name));
            info.push(line);
        }
        whole(&info.join("\r\n")).err().map(|it| it.to_string())
    }

    #[test]
    fn a_file_that_was_begun_just_now_is_not_believed() {
        assert_eq!(told(&[]), None);
        let under_way = told(&["aof_rewrite_in_progress:1", "aof_current_size:2000"]);
        assert!(under_way.is_some_and(|it| it.contains("does not have all")));
        assert!(told(&["aof_last_bgrewrite_status:err"]).is_some());
        assert!(told(&["aof_enabled:0"]).is_some_and(|it| it.contains("set appendonly to yes")));
        assert!(told(&["aof_last_write_status:err"]).is_some());
        // A rewrite of one that was whole before.
        let rewritten = ["aof_rewrite_in_progress:1", "aof_base_size:88"];
        assert_eq!(told(&rewritten), None);
        let large = ["aof_rewrite_in_progress:1", "aof_current_size:67108864"];
        assert_eq!(told(&large), None);
    }
}
