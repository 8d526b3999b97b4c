//! A Redis Cluster of three masters with a replica each.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::command::{answer, ask};
use super::patience::until;
use super::program::REDIS_CLI;
use super::redis::{Role, field_of};
use super::{Redis, RedisOptions, Server, ServerError};

const MASTERS: usize = 3;
const NODES: usize = 2 * MASTERS;
const LAST_SLOT: usize = 16_383;

/// How a Redis Cluster is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisClusterOptions {
    /// After how much silence a node counts as failed. If it is short, a busy machine may do that
    /// to a node that is well.
    pub node_timeout: Duration,
    /// Every node logs each write and syncs the log before it answers.
    pub durable: bool,
    /// Run Valkey instead, which behaves as Redis does since 7.2.
    pub valkey: bool,
}

impl Default for RedisClusterOptions {
    fn default() -> Self {
        Self {
            node_timeout: Duration::from_secs(2),
            durable: false,
            valkey: false,
        }
    }
}

/// Six nodes: the first three start as masters, the others as their replicas, in the same order.
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

/// A line of `CLUSTER NODES`.
struct Member {
    port: u16,
    is_master: bool,
    slots: Vec<(usize, usize)>,
}

impl RedisCluster {
    /// Starts a cluster that is quick to notice a failure, and waits until all of it is well.
    pub fn start() -> Result<Self, ServerError> {
        Self::start_with(&RedisClusterOptions::default())
    }

    /// Starts a cluster and waits until all of it is well.
    pub fn start_with(options: &RedisClusterOptions) -> Result<Self, ServerError> {
        let timeout = options.node_timeout.as_millis();
        let lines = vec![
            format!("cluster-node-timeout {timeout}"),
            // A replica may take over however long it was cut off.
            "cluster-replica-validity-factor 0".to_owned(),
        ];
        let node = |_| {
            let options = RedisOptions {
                lines: lines.clone(),
                durable: options.durable,
                valkey: options.valkey,
                ..RedisOptions::default()
            };
            Redis::start_as(Role::ClusterNode, options)
        };
        let nodes = (0..NODES).map(node).collect::<Result<_, _>>()?;
        let cluster = Self { nodes };
        cluster.form()?;
        cluster.wait_until_ok()?;
        Ok(cluster)
    }

    /// The addresses of three nodes.
    pub fn url(&self) -> String {
        let address = |node: &Redis| format!("127.0.0.1:{}", node.port());
        let addresses: Vec<_> = self.nodes.iter().take(MASTERS).map(address).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// All nodes, whatever they are at the moment.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The nodes that serve keys at the moment.
    pub fn masters(&self) -> Result<Vec<&Redis>, ServerError> {
        let node = self.running().next().ok_or_else(none_runs)?;
        let members = members(node)?;
        let serves = |node: &&Redis| {
            let mut members = members.iter();
            members.any(|it| it.port == node.port() && it.is_master && !it.slots.is_empty())
        };
        Ok(self.nodes.iter().filter(serves).collect())
    }

    /// The master that serves a key at the moment.
    pub fn master_of(&self, key: &str) -> Result<&Redis, ServerError> {
        let node = self.running().next().ok_or_else(none_runs)?;
        let slot = node.cli(&["CLUSTER", "KEYSLOT", key])?;
        let slot: usize = slot.parse().map_err(|_| unexpected(&slot))?;
        let serves = |member: &Member| {
            let mut slots = member.slots.iter();
            member.is_master && slots.any(|(first, last)| (first..=last).contains(&&slot))
        };
        let port = members(node)?
            .iter()
            .find(|member| serves(member))
            .map(|member| member.port);
        let mut nodes = self.nodes.iter();
        let found = nodes.find(|node| Some(node.port()) == port);
        found.ok_or_else(|| unexpected("no node serves this key"))
    }

    /// What `redis-cli` answers to a command, wherever in the cluster that is.
    pub fn cli(&self, command: &[&str]) -> Result<String, ServerError> {
        let node = self.running().next().ok_or_else(none_runs)?;
        let mut ask = ask(REDIS_CLI)?;
        ask.args(["-c", "-e", "-p", &node.port().to_string()]);
        answer(REDIS_CLI, ask.args(command))
    }

    /// Waits until every running node says that all is well, and every replica is up to date.
    pub fn wait_until_ok(&self) -> Result<(), ServerError> {
        until("all nodes of the cluster are well", || {
            self.running().try_for_each(is_well)
        })
    }

    /// Waits until all nodes are well, and every master has its replica again.
    pub fn wait_until_whole(&self) -> Result<(), ServerError> {
        until("every master of the cluster has its replica", || {
            self.nodes.iter().try_for_each(|node| {
                is_well(node)?;
                let replicas = info(node, "connected_slaves")?.unwrap_or_default();
                match info(node, "role")?.as_deref() {
                    Some("master") if replicas == "0" => {
                        Err(format!("{} has no replica", node.url()))
                    }
                    _ => Ok(()),
                }
            })
        })
    }

    /// Waits until every other running node knows that one of them serves what this one served,
    /// and is well. The lost one is not asked: if it hangs it would take all our patience.
    pub fn wait_until_replaced(&self, lost: &Redis) -> Result<(), ServerError> {
        let others = || self.running().filter(|node| node.port() != lost.port());
        until("a replica has taken over", || {
            others().try_for_each(|node| {
                let members = members(node).map_err(|error| error.to_string())?;
                let serves =
                    |member: &Member| member.port == lost.port() && !member.slots.is_empty();
                if members.iter().any(serves) {
                    return Err(format!("{} still trusts the lost one", node.url()));
                }
                is_well(node)
            })
        })
    }

    fn running(&self) -> impl Iterator<Item = &Redis> {
        self.nodes.iter().filter(|node| node.pid().is_some())
    }

    /// Makes a cluster of nodes that do not know each other.
    fn form(&self) -> Result<(), ServerError> {
        let (masters, replicas) = self.nodes.split_at(MASTERS);
        for (epoch, node) in (1..).zip(&self.nodes) {
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &i32::to_string(&epoch)])?;
        }
        for (index, master) in masters.iter().enumerate() {
            let first = index * (LAST_SLOT + 1) / MASTERS;
            let last = (index + 1) * (LAST_SLOT + 1) / MASTERS - 1;
            let [first, last] = [first, last].map(|slot| slot.to_string());
            master.cli(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
        }
        for node in &self.nodes[1..] {
            let [port, bus] = [node.port(), node.bus_port()].map(|port| port.to_string());
            self.nodes[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
        }
        for (master, replica) in masters.iter().zip(replicas) {
            let id = master.cli(&["CLUSTER", "MYID"])?;
            until("a replica has met its master", || {
                let answer = replica.cli(&["CLUSTER", "REPLICATE", &id]);
                answer.map_err(|error| error.to_string())
            })?;
        }
        until("all nodes have met", || {
            let known = |node: &Redis| cluster_info(node, "cluster_known_nodes");
            let complete = NODES.to_string();
            let mut counts = self.nodes.iter().map(known);
            counts.try_for_each(|count| match count? {
                count if count == complete => Ok(()),
                count => Err(format!("a node knows {count}")),
            })
        })
    }
}

/// Says what is not well with a node.
fn is_well(node: &Redis) -> Result<(), String> {
    let said = cluster_info(node, "cluster_state")?;
    let link = info(node, "master_link_status")?;
    match (said.as_str(), link.as_deref()) {
        ("ok", None | Some("up")) => Ok(()),
        _ => Err(format!("{}: {said}, link {link:?}", node.url())),
    }
}

fn cluster_info(node: &Redis, field: &str) -> Result<String, String> {
    let text = node
        .cli(&["CLUSTER", "INFO"])
        .map_err(|error| error.to_string())?;
    field_of(&text, field).ok_or(text)
}

/// A field of `INFO replication`; some only replicas have.
fn info(node: &Redis, field: &str) -> Result<Option<String>, String> {
    let text = node
        .cli(&["INFO", "replication"])
        .map_err(|error| error.to_string())?;
    Ok(field_of(&text, field))
}

fn members(node: &Redis) -> Result<Vec<Member>, ServerError> {
    let text = node.cli(&["CLUSTER", "NODES"])?;
    let members: Option<_> = text.lines().map(member).collect();
    members.ok_or_else(|| unexpected(&text))
}

/// Reads `id ip:port@bus flags master ping pong epoch link slots…`.
fn member(line: &str) -> Option<Member> {
    let mut fields = line.split(' ').skip(1);
    let (_, ports) = fields.next()?.split_once(':')?;
    let (port, _) = ports.split_once('@')?;
    let flags = fields.next()?;
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    Some(Member {
        port: port.parse().ok()?,
        is_master: flags.split(',').any(|flag| flag == "master"),
        slots: fields.skip(5).map(range).collect::<Option<_>>()?,
    })
}

fn unexpected(said: &str) -> ServerError {
    ServerError::Command {
        program: REDIS_CLI.name.to_owned(),
        said: said.to_owned(),
    }
}

fn none_runs() -> ServerError {
    let server = "redis";
    ServerError::NotRunning { server }
}
