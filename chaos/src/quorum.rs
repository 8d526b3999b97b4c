//! Five Redis servers that know nothing of each other. Each stands behind a proxy that all gateways
//! share: a quorum is the list of its servers, so that every process must name them alike.

use std::time::Duration;

use onlyonce_stores::redis::RedisQuorum;
use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Redis, RedisOptions};
use tokio::time::{sleep, timeout};

use crate::failure::Failure;

pub(crate) const SERVERS: usize = 5;
/// So many may be lost at a time.
pub(crate) const MINORITY_MAX: usize = 2;
/// What a server knows of itself; the gateways' prefix is the usual one.
const IDENTITY: &str = "onlyonce:quorum";
/// How long an operator tries to admit a server.
const ADMIT_MAX: Duration = Duration::from_secs(60);
const ADMIT_PAUSE: Duration = Duration::from_millis(100);

/// The servers. They end with this value.
pub(crate) struct Quorum {
    pub(crate) servers: Vec<Redis>,
}

impl Quorum {
    /// Starts them. Blocks.
    pub(crate) fn start() -> Result<Self, Failure> {
        let start = |_| {
            Redis::start(RedisOptions {
                durable: true,
                has_own_clock: true,
                ..RedisOptions::default()
            })
        };
        let servers = (0..SERVERS).map(start).collect::<Result<_, _>>()?;
        Ok(Self { servers })
    }

    /// Lets some of them come back without what they kept. Blocks.
    pub(crate) fn lose_disks(&self, some: &[usize], how: Losing) -> Result<(), Failure> {
        for server in some.iter().map(|at| &self.servers[*at]) {
            let identity = match how {
                Losing::WithIdentity => server.cli(&["HGETALL", IDENTITY])?,
                Losing::All => String::new(),
            };
            server.lose_disk()?;
            let words: Vec<_> = identity.lines().collect();
            if !words.is_empty() {
                server.cli(&[&["HSET", IDENTITY], &words[..]].concat())?;
            }
        }
        Ok(())
    }
}

/// What goes with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Losing {
    All,
    /// A planted bug: the server still knows itself, and so it votes at once.
    WithIdentity,
}

/// Where gateways find the servers, which are behind these.
pub(crate) fn url(doors: &[Proxy]) -> String {
    let seats: Vec<_> = doors.iter().map(|it| it.address().to_string()).collect();
    format!("redis+quorum://{}", seats.join(","))
}

/// Admits servers that have lost their disks, as an operator does.
pub(crate) async fn admit(doors: &[Proxy], some: &[usize]) -> Result<(), Failure> {
    for at in some {
        let seat = doors[*at].address().to_string();
        let admitted = async {
            loop {
                let tried = async {
                    let quorum = RedisQuorum::open(&url(doors)).await?;
                    quorum.admit(&seat).await
                };
                match tried.await {
                    Ok(_) => return,
                    // A connection may just have been cut.
                    Err(_) => sleep(ADMIT_PAUSE).await,
                }
            }
        };
        let admitted = timeout(ADMIT_MAX, admitted).await;
        admitted.map_err(Failure::doing("admit a server that has lost its disk"))?;
    }
    Ok(())
}
