//! A Redis master and its replica under the watch of three Sentinels.

use std::time::Duration;

use super::patience::until;
use super::redis::Role;
use super::{Redis, RedisOptions, Server, ServerError};

const NAME: &str = "mymaster";
const SENTINELS: usize = 3;
const QUORUM: usize = 2;

/// How the Sentinels are to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSentinelOptions {
    /// After how much silence a master counts as down. If it is short, a busy machine may do that
    /// to a master that is well.
    pub down_after: Duration,
    /// After how long a failover that got stuck is tried again.
    pub failover_timeout: Duration,
    /// Run Valkey for the two servers with data, which behaves as Redis does since 7.2.
    pub valkey: bool,
}

impl Default for RedisSentinelOptions {
    fn default() -> Self {
        Self {
            down_after: Duration::from_secs(2),
            failover_timeout: Duration::from_secs(6),
            valkey: false,
        }
    }
}

/// Two Redis servers and three Sentinels, which make one of the two the master.
pub struct RedisSentinel {
    nodes: [Redis; 2],
    sentinels: Vec<Redis>,
}

impl RedisSentinel {
    /// Starts a group that is quick to notice a failure, and waits until all of it is well.
    pub fn start() -> Result<Self, ServerError> {
        Self::start_with(&RedisSentinelOptions::default())
    }

    /// Starts all five and waits until they know each other.
    pub fn start_with(options: &RedisSentinelOptions) -> Result<Self, ServerError> {
        let master = Redis::start(RedisOptions {
            valkey: options.valkey,
            ..RedisOptions::default()
        })?;
        let port = master.port();
        let replica = Redis::start(RedisOptions {
            lines: vec![format!("replicaof 127.0.0.1 {port}")],
            valkey: options.valkey,
            ..RedisOptions::default()
        })?;
        wait_until_linked(&replica)?;

        let mut sentinels = Vec::new();
        for _ in 0..SENTINELS {
            sentinels.push(sentinel(options, port)?);
        }
        let group = Self {
            nodes: [master, replica],
            sentinels,
        };
        group.wait_until_whole()?;
        Ok(group)
    }

    /// The addresses of the Sentinels and the name they know the master by.
    pub fn url(&self) -> String {
        let address = |sentinel: &Redis| format!("127.0.0.1:{}", sentinel.port());
        let addresses: Vec<_> = self.sentinels.iter().map(address).collect();
        format!("redis+sentinel://{}/{NAME}", addresses.join(","))
    }

    /// The two servers with data; the first was the first master.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The Sentinels. What is asked of them by `cli` is a command to the Sentinel.
    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// The server that every running Sentinel takes for the master. An error if they disagree.
    pub fn master(&self) -> Result<&Redis, ServerError> {
        let mut ports = Vec::new();
        for sentinel in self.watching() {
            let said = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
            ports.push(said.lines().nth(1).unwrap_or_default().to_owned());
        }
        let agreed = |node: &&Redis| ports.iter().all(|port| *port == node.port().to_string());
        let found = self.nodes.iter().find(agreed);
        found
            .filter(|_| !ports.is_empty())
            .ok_or_else(|| ServerError::Command {
                program: "SENTINEL GET-MASTER-ADDR-BY-NAME".to_owned(),
                said: format!("{ports:?}"),
            })
    }

    /// Waits until another server than this one is the master, and knows it.
    pub fn wait_until_replaced(&self, lost: &Redis) -> Result<&Redis, ServerError> {
        until("another master was elected", || {
            let text = |error: ServerError| error.to_string();
            let master = self.master().map_err(text)?;
            // Not to be asked: one that hangs would take all our patience.
            if master.port() == lost.port() {
                return Err(format!("still {}", master.url()));
            }
            let role = master.info("role").map_err(text)?;
            if role != "master" {
                return Err(format!("{} with the role {role}", master.url()));
            }
            Ok(master)
        })
    }

    /// Waits until one of the two replicates the other, and every running Sentinel sees all
    /// others and the replica.
    pub fn wait_until_whole(&self) -> Result<(), ServerError> {
        until("the Sentinels know each other and the replica", || {
            let master = self.master().map_err(|error| error.to_string())?;
            let mut others = self
                .nodes
                .iter()
                .filter(|node| node.port() != master.port());
            others.try_for_each(is_linked)?;
            self.watching().try_for_each(sees_all)
        })
    }

    fn watching(&self) -> impl Iterator<Item = &Redis> {
        let sentinels = self.sentinels.iter();
        sentinels.filter(|sentinel| sentinel.pid().is_some())
    }
}

fn sentinel(options: &RedisSentinelOptions, master: u16) -> Result<Redis, ServerError> {
    let down_after = options.down_after.as_millis();
    let timeout = options.failover_timeout.as_millis();
    let lines = vec![
        format!("sentinel monitor {NAME} 127.0.0.1 {master} {QUORUM}"),
        format!("sentinel down-after-milliseconds {NAME} {down_after}"),
        format!("sentinel failover-timeout {NAME} {timeout}"),
    ];
    let options = RedisOptions {
        lines,
        ..RedisOptions::default()
    };
    Redis::start_as(Role::Sentinel, options)
}

fn wait_until_linked(replica: &Redis) -> Result<(), ServerError> {
    until("the replica is up to date", || is_linked(replica))
}

fn is_linked(replica: &Redis) -> Result<(), String> {
    match replica.info("master_link_status") {
        Ok(link) if link == "up" => Ok(()),
        Ok(link) => Err(format!("its link is {link}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The answer is a list of names and values, one a line.
fn sees_all(sentinel: &Redis) -> Result<(), String> {
    let said = sentinel.cli(&["SENTINEL", "MASTER", NAME]);
    let said = said.map_err(|error| error.to_string())?;
    let lines: Vec<_> = said.lines().collect();
    let value = |name| {
        let pairs = lines.chunks_exact(2);
        pairs
            .into_iter()
            .find_map(|pair| (pair[0] == name).then_some(pair[1]))
    };
    let seen = ["flags", "num-slaves", "num-other-sentinels"].map(value);
    let others = (SENTINELS - 1).to_string();
    if seen == [Some("master"), Some("1"), Some(&others)] {
        Ok(())
    } else {
        Err(format!("a Sentinel sees {seen:?}"))
    }
}
