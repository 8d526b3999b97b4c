//! Which server of a cluster has which keys. Learned when first needed, and again at every sign
//! that it has changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ::redis::{Cmd, Pipeline, Value};

use super::dial::Dial;
use super::lock;
use super::node::{Node, Want};
use super::trouble::{Trouble, refusal};
use super::url::{Place, Settings};

const SLOTS: u16 = 16384;

pub(super) struct Cluster {
    dial: Dial,
    seeds: Vec<Place>,
    settings: Arc<Settings>,
    map: Mutex<Arc<Map>>,
    /// Held while the map is being learned, so that one asks and the others wait for it.
    learning: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Map {
    /// Counts the maps, so that nobody asks for one that is newer than the one that failed.
    number: u64,
    nodes: BTreeMap<Place, Arc<Node>>,
    /// The last hash slot of each range and the server that has it, in order.
    ranges: Vec<Range>,
}

struct Range {
    first: u16,
    last: u16,
    node: Arc<Node>,
}

impl Map {
    fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        let at = self.ranges.partition_point(|range| range.last < slot);
        let range = self.ranges.get(at)?;
        (range.first <= slot).then_some(&range.node)
    }
}

impl Cluster {
    pub(super) fn new(dial: Dial, seeds: Vec<Place>, settings: Arc<Settings>) -> Self {
        Self {
            dial,
            seeds,
            settings,
            map: Mutex::default(),
            learning: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn connected(&self) -> u64 {
        self.dial.opened()
    }

    pub(super) async fn masters(&self) -> Result<Vec<Arc<Node>>, Trouble> {
        self.look_again().await?;
        Ok(self.map().nodes.values().cloned().collect())
    }

    pub(super) async fn node_of(&self, key: &[u8]) -> Result<Arc<Node>, Trouble> {
        let slot = hash_slot(key);
        if let Some(node) = self.map().owner(slot) {
            return Ok(Arc::clone(node));
        }
        self.look_again().await?;
        self.map().owner(slot).cloned().ok_or(Trouble::NoOwner)
    }

    /// The server at this place, known or not.
    pub(super) fn node_at(&self, place: Place) -> Arc<Node> {
        match self.map().nodes.get(&place) {
            Some(node) => Arc::clone(node),
            None => self.node(place),
        }
    }

    /// Learns the map anew, unless somebody else has just done so.
    pub(super) async fn look_again(&self) -> Result<(), Trouble> {
        let seen = self.map().number;
        let _learning = self.learning.lock().await;
        let map = self.map();
        if map.number != seen {
            return Ok(());
        }
        let known: Vec<_> = map.nodes.values().cloned().collect();
        let seeds = self.seeds.iter().map(|seed| self.node_at(seed.clone()));
        let mut trouble = Trouble::NoOwner;
        for node in known.into_iter().chain(seeds) {
            match self.learn_from(&node, &map).await {
                Ok(map) => {
                    *lock(&self.map) = Arc::new(map);
                    return Ok(());
                }
                Err(found) => trouble = found,
            }
        }
        Err(trouble)
    }

    async fn learn_from(&self, node: &Node, old: &Map) -> Result<Map, Trouble> {
        let mut command = Cmd::new();
        command.arg("CLUSTER").arg("SLOTS");
        let mut commands = Pipeline::new();
        commands.add_command(command);
        let mut answers = node.ask(&Arc::new(commands), Want::Plain).await?;
        let answer = answers.pop().ok_or(Trouble::Odd)?;
        if let Some(trouble) = refusal(&answer) {
            return Err(trouble);
        }
        let Value::Array(ranges) = answer else {
            return Err(Trouble::Odd);
        };
        let mut map = Map {
            number: old.number + 1,
            ..Map::default()
        };
        for range in &ranges {
            let (first, last, place) = read_range(range, node.dial.host()).ok_or(Trouble::Odd)?;
            let node = map.nodes.entry(place.clone()).or_insert_with(|| {
                // Its connections are kept.
                let known = old.nodes.get(&place).cloned();
                known.unwrap_or_else(|| self.node(place))
            });
            let node = Arc::clone(node);
            map.ranges.push(Range { first, last, node });
        }
        map.ranges.sort_by_key(|range| range.last);
        if map.ranges.is_empty() {
            return Err(Trouble::NoOwner);
        }
        Ok(map)
    }

    fn map(&self) -> Arc<Map> {
        Arc::clone(&lock(&self.map))
    }

    fn node(&self, place: Place) -> Arc<Node> {
        Arc::new(Node::new(self.dial.at(place), &self.settings))
    }
}

/// First and last hash slot, and the place of their master; a server that does not name its host
/// means the one it was asked at.
fn read_range(range: &Value, asked_at: &str) -> Option<(u16, u16, Place)> {
    let Value::Array(parts) = range else {
        return None;
    };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(master),
        ..,
    ] = &parts[..]
    else {
        return None;
    };
    let [host, Value::Int(port), ..] = &master[..] else {
        return None;
    };
    let host = if let Value::BulkString(host) = host
        && !host.is_empty()
        && host != b"?"
    {
        str::from_utf8(host).ok()?
    } else {
        asked_at
    };
    let place = Place {
        host: host.to_owned(),
        port: u16::try_from(*port).ok()?,
    };
    Some((
        u16::try_from(*first).ok()?,
        u16::try_from(*last).ok()?,
        place,
    ))
}

/// The hash slot of a key: of what is between its first braces, if anything is.
fn hash_slot(key: &[u8]) -> u16 {
    let tagged = || {
        let open = key.iter().position(|byte| *byte == b'{')?;
        let tag = &key[open + 1..];
        let close = tag.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &tag[..close])
    };
    crc16(tagged().unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn what_is_in_braces_decides_where_a_key_lives() {
        assert_eq!(hash_slot(b"{user1000}.following"), hash_slot(b"user1000"));
        assert_eq!(hash_slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(hash_slot(b"foo{{bar}}zap"), hash_slot(b"{bar"));
    }
}
