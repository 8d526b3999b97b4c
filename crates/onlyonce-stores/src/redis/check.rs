//! What is checked before the store opens: that the servers are recent enough, and that they do
//! not throw live records away.

use std::sync::Arc;

use ::redis::{Cmd, Pipeline, Value};

use super::NAME;
use super::fleet::Fleet;
use super::node::{Node, Want};
use super::scripts::Dialect;
use super::trouble::{Trouble, refusal};
use super::url::{ClaimBy, Eviction, Servers, Settings};
use crate::open::OpenError;

/// The lowest version among the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    major: u32,
    minor: u32,
}

const OLDEST: Version = Version { major: 6, minor: 2 };
/// From here on: SET with NX and GET, flags of scripts, sharded channels.
const NATIVE: Version = Version { major: 7, minor: 0 };

impl Version {
    fn of(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('.').map(str::parse);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some(Self { major, minor }),
            _ => None,
        }
    }

    pub(super) fn dialect(self, settings: &Settings) -> Dialect {
        Dialect {
            flags: self >= NATIVE && settings.claim_by == ClaimBy::Version,
            sharded: self >= NATIVE && matches!(settings.servers, Servers::Cluster(_)),
        }
    }
}

/// The certificates to trust, where the URL names a file; and something to encrypt with.
pub(super) fn roots(settings: &Settings) -> Result<Option<Vec<u8>>, OpenError> {
    if !settings.tls {
        return Ok(None);
    }
    // Whatever the program has chosen before stays.
    drop(rustls::crypto::ring::default_provider().install_default());
    let Some(file) = &settings.ca else {
        return Ok(None);
    };
    let read = std::fs::read(file).map_err(|error| OpenError::Option {
        name: "ca".to_owned(),
        why: format!("the file of certificates cannot be read: {}", error.kind()),
    })?;
    Ok(Some(read))
}

/// Checks every server that has keys.
pub(super) async fn servers(fleet: &Fleet, settings: &Settings) -> Result<Version, OpenError> {
    let masters = fleet.masters().await.map_err(unreachable)?;
    let mut lowest = None;
    for master in masters {
        let info = info(&master).await?;
        if field(&info, "role") == Some("slave") {
            let why =
                "it is a replica: name its master, or the sentinels or the cluster that know it";
            return Err(refused(why));
        }
        eviction(&info, settings.eviction)?;
        let version = version(&info)?;
        lowest = Some(lowest.map_or(version, |lowest: Version| lowest.min(version)));
    }
    lowest.ok_or_else(|| refused("the cluster has no masters"))
}

fn version(info: &str) -> Result<Version, OpenError> {
    let told = field(info, "redis_version")
        .ok_or_else(|| refused("INFO does not tell the server's version"))?;
    let version =
        Version::of(told).ok_or_else(|| refused("the server's version is not a number"))?;
    if version < OLDEST {
        let why = format!(
            "Redis {}.{} is too old: upgrade it to 7.0 or later, or at least to 6.2",
            version.major, version.minor
        );
        return Err(refused(&why));
    }
    Ok(version)
}

/// All our keys have an end, so every policy but one may evict them while they matter.
fn eviction(info: &str, wanted: Eviction) -> Result<(), OpenError> {
    let policy = field(info, "maxmemory_policy").unwrap_or("noeviction");
    let bounded = field(info, "maxmemory").is_none_or(|bytes| bytes != "0");
    if policy == "noeviction" || !bounded {
        return Ok(());
    }
    let why = format!(
        "maxmemory-policy is {policy}, so Redis may throw live records away and operations run \
         twice: set it to noeviction, or accept that with eviction=warn"
    );
    match wanted {
        Eviction::Refuse => Err(refused(&why)),
        Eviction::Warn => {
            tracing::warn!(store = NAME, "{why}");
            Ok(())
        }
    }
}

/// What the server tells of itself.
async fn info(node: &Node) -> Result<String, OpenError> {
    let mut commands = Pipeline::new();
    for section in ["server", "memory", "replication"] {
        let mut command = Cmd::new();
        command.arg("INFO").arg(section);
        commands.add_command(command);
    }
    let answers = node.ask(&Arc::new(commands), Want::Plain).await;
    let answers = answers.map_err(unreachable)?;
    let mut told = String::new();
    for answer in &answers {
        match (answer, refusal(answer)) {
            (Value::BulkString(text), _) => {
                told.push_str(&String::from_utf8_lossy(text));
                told.push('\n');
            }
            (_, Some(trouble)) if trouble.is_refusal_with("NOPERM") => {
                let why = "its user may not ask for the server's version and eviction policy: \
                           allow +info";
                return Err(refused(why));
            }
            (_, Some(trouble)) => return Err(store(trouble)),
            (_, None) => return Err(store(Trouble::Odd)),
        }
    }
    Ok(told)
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

fn refused(why: &str) -> OpenError {
    OpenError::Refused {
        store: NAME,
        why: why.to_owned(),
    }
}

fn unreachable(trouble: Trouble) -> OpenError {
    if trouble == Trouble::NoMaster {
        return refused("the sentinels know no master of the name in the URL");
    }
    store(trouble)
}

fn store(trouble: Trouble) -> OpenError {
    OpenError::Store(trouble.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(policy: &str, maxmemory: &str) -> String {
        format!("# Memory\r\nmaxmemory:{maxmemory}\r\nmaxmemory_policy:{policy}\r\n")
    }

    #[test]
    fn a_server_that_may_evict_is_refused() {
        for policy in ["allkeys-lru", "volatile-ttl", "volatile-random"] {
            assert!(eviction(&told(policy, "1000"), Eviction::Refuse).is_err());
            assert!(eviction(&told(policy, "1000"), Eviction::Warn).is_ok());
            assert!(eviction(&told(policy, "0"), Eviction::Refuse).is_ok());
        }
        assert!(eviction(&told("noeviction", "1000"), Eviction::Refuse).is_ok());
    }

    #[test]
    fn a_server_before_6_2_is_refused_with_what_to_do() {
        let old = version("redis_version:6.0.16\r\n").unwrap_err().to_string();

        assert!(old.contains("6.0") && old.contains("upgrade"), "{old}");
        assert!(version("redis_version:6.2.14\r\n").is_ok());
        assert!(version("redis_version:255.255.255\r\n").is_ok());
    }
}
