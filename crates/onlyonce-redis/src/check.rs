//! What is checked before the store opens: that the servers are recent enough, and that they do
//! not throw live records away.

use std::sync::Arc;

use ::redis::{Cmd, Pipeline, Value};

use super::NAME;
use super::eviction::{EvictionWatch, Evicts};
use super::fleet::Fleet;
use super::node::{Node, Want};
use super::scripts::Dialect;
use super::trouble::{Trouble, refusal};
use super::url::{ClaimBy, Eviction, Servers, Settings};
use onlyonce_storekit::OpenError;

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

    /// Whether scripts have flags here.
    pub(super) fn is_native(self) -> bool {
        self >= NATIVE
    }

    pub(super) fn dialect(self, settings: &Settings) -> Dialect {
        Dialect {
            flags: self >= NATIVE && settings.claim_by == ClaimBy::Version,
            sharded: self >= NATIVE && matches!(settings.servers, Servers::Cluster(_)),
            covering: settings.wait.is_some(),
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

/// Checks every server that has keys. What of it may change is watched from then on.
pub(super) async fn servers(
    fleet: &Fleet,
    settings: &Settings,
) -> Result<(Version, EvictionWatch), OpenError> {
    let masters = fleet.masters().await.map_err(unreachable)?;
    let (mut lowest, mut evicts) = (None, None);
    for master in masters {
        let info = info(&master).await?;
        if field(&info, "role") == Some("slave") {
            let why =
                "it is a replica: name its master, or the sentinels or the cluster that know it";
            return Err(refused(why));
        }
        evicts = evicts.or(Evicts::of(&info));
        let version = version(&info)?;
        tracing::info!(
            target: "onlyonce",
            event = "idempotency.storage.server",
            store = NAME,
            server = software(&info),
            "the store is on this server"
        );
        lowest = Some(lowest.map_or(version, |lowest: Version| lowest.min(version)));
    }
    let version = lowest.ok_or_else(|| refused("the cluster has no masters"))?;
    match (evicts, settings.eviction) {
        (Some(evicts), Eviction::Refuse) => Err(refused(&evicts.to_string())),
        (evicts, wanted) => Ok((version, EvictionWatch::new(wanted, evicts))),
    }
}

/// What the server is, by its own name: Valkey also gives the version of Redis that it behaves as.
pub(super) fn software(info: &str) -> String {
    let is_valkey = field(info, "server_name") == Some("valkey");
    let (name, version) = match field(info, "valkey_version") {
        Some(version) => ("Valkey", version),
        None if is_valkey => ("Valkey", "of an unknown version"),
        None => (
            "Redis",
            field(info, "redis_version").unwrap_or("of an unknown version"),
        ),
    };
    format!("{name} {version}")
}

pub(super) fn version(info: &str) -> Result<Version, OpenError> {
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

pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
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

    #[test]
    fn a_server_is_called_by_its_own_name() {
        let valkey = "server_name:valkey\r\nredis_version:7.2.4\r\nvalkey_version:8.1.1\r\n";

        assert_eq!(software(valkey), "Valkey 8.1.1");
        assert_eq!(software("redis_version:7.0.15\r\n"), "Redis 7.0.15");
    }

    #[test]
    fn a_server_before_6_2_is_refused_with_what_to_do() {
        let old = version("redis_version:6.0.16\r\n").unwrap_err().to_string();

        assert!(old.contains("6.0") && old.contains("upgrade"), "{old}");
        assert!(version("redis_version:6.2.14\r\n").is_ok());
        assert!(version("redis_version:255.255.255\r\n").is_ok());
    }
}
