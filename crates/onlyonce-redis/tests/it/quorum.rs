//! A quorum of real servers: the conformance suite on three and on five of them, and what becomes of
//! it when servers are killed, hang, lose their data or are replaced.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onlyonce_core::{Store, async_trait};
use onlyonce_redis::RedisQuorum;
use onlyonce_testkit::conformance::TestBed;
use onlyonce_testkit::servers::{Redis, RedisOptions, Server};

use super::unique;

mod history;
mod losing;
mod replacing;

/// Some servers that know nothing of each other.
pub(super) struct Group {
    pub(super) servers: Vec<Redis>,
}

impl Group {
    pub(super) fn start(count: usize, durable: bool) -> Self {
        let start = || {
            Redis::start(RedisOptions {
                durable,
                ..RedisOptions::default()
            })
        };
        let servers = (0..count).map(|_| start().expect("a server starts"));
        Self {
            servers: servers.collect(),
        }
    }

    pub(super) fn seat(&self, at: usize) -> String {
        format!("127.0.0.1:{}", self.servers[at].port())
    }

    pub(super) fn url(&self, seats: &[usize], options: &str) -> String {
        let seats: Vec<_> = seats.iter().map(|at| self.seat(*at)).collect();
        format!(
            "redis+quorum://{}?timeout_ms=3000{options}",
            seats.join(",")
        )
    }

    /// Kills a server and starts it again without what it kept.
    pub(super) fn lose_disk(&self, at: usize) {
        self.servers[at].lose_disk().unwrap();
    }
}

struct QuorumBed {
    quorum: RedisQuorum,
}

impl QuorumBed {
    async fn open(group: &'static Group, options: &str) -> Self {
        let all: Vec<usize> = (0..group.servers.len()).collect();
        let options = format!("&prefix={}{options}", unique("quorum"));
        let quorum = RedisQuorum::open(&group.url(&all, &options)).await;
        Self {
            quorum: quorum.expect("the test servers take us"),
        }
    }
}

#[async_trait]
impl TestBed for QuorumBed {
    fn name(&self) -> &str {
        "quorum"
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.quorum.store()) as _
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }

    fn expires_by_itself(&self) -> bool {
        true
    }
}

/// Servers that all tests of a suite share; they end with the process.
fn three() -> &'static Group {
    static GROUP: OnceLock<Group> = OnceLock::new();
    GROUP.get_or_init(|| Group::start(3, true))
}

fn five() -> &'static Group {
    static GROUP: OnceLock<Group> = OnceLock::new();
    GROUP.get_or_init(|| Group::start(5, false))
}

mod of_three {
    use super::*;
    onlyonce_testkit::conformance_suite!(QuorumBed::open(three(), "").await);
}

mod of_five {
    use super::*;
    onlyonce_testkit::conformance_suite!(QuorumBed::open(five(), "&persistence=trust").await);
}
