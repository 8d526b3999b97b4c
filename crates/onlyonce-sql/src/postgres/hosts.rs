//! Several servers, of which one takes writes: which one that is now, and connections to it.
//!
//! All are asked every two seconds, and whenever a connection to the one in use cannot be made. A
//! primary that was cut off and replaced may stay alive without knowing it: of two that take writes,
//! the one on the newer timeline is right.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::standing::{Chosen, Standing, choose, cluster};
use super::trouble::{Then, Trouble};

/// How often all servers are asked: so soon a promotion is followed.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// One server.
#[derive(Clone)]
pub(super) struct Host {
    connect: PgConnectOptions,
}

impl Host {
    pub(super) fn new(connect: PgConnectOptions) -> Self {
        Self { connect }
    }
}

/// Where it listens, without who we are there.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.connect.get_socket() {
            Some(path) => write!(f, "{}", path.display()),
            None => write!(f, "{}:{}", self.connect.get_host(), self.connect.get_port()),
        }
    }
}

pub(super) struct Hosts {
    hosts: Vec<Host>,
    connect_timeout: Duration,
    /// Nothing before the first look.
    chosen: watch::Sender<Option<Chosen>>,
    /// What the last look found. Held while somebody looks.
    last: Mutex<Option<Result<Chosen, Trouble>>>,
    looks: AtomicU64,
}

impl Hosts {
    /// These servers, looked after for as long as this value lives.
    pub(super) fn new(hosts: Vec<Host>, connect_timeout: Duration) -> Arc<Self> {
        let hosts = Arc::new(Self {
            hosts,
            connect_timeout,
            chosen: watch::Sender::new(None),
            last: Mutex::default(),
            looks: AtomicU64::new(0),
        });
        tokio::spawn({
            let hosts = Arc::downgrade(&hosts);
            async move {
                tokio::time::sleep(LOOK_EVERY).await;
                while let Some(hosts) = hosts.upgrade() {
                    if let Err(trouble) = hosts.look().await {
                        tracing::debug!(error = %trouble.to_error(), "no server takes writes");
                    }
                    drop(hosts);
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
        });
        hosts
    }

    /// Which server takes writes, as far as is known.
    pub(super) fn chosen(&self) -> Option<Chosen> {
        *self.chosen.borrow()
    }

    /// Returns once another one than `chosen` does.
    pub(super) async fn left(&self, chosen: Option<Chosen>) {
        let mut changes = self.chosen.subscribe();
        // It cannot end before this value does.
        let _ = changes.wait_for(|now| *now != chosen).await;
    }

    /// How to connect to the server at this place.
    pub(super) fn options(&self, host: usize) -> &PgConnectOptions {
        &self.hosts[host].connect
    }

    /// Connects to the server that takes writes.
    pub(super) async fn connect(&self) -> Result<(PgConnection, Chosen), Trouble> {
        let looks = self.looks.load(Ordering::Acquire);
        if let Some(chosen) = self.chosen()
            && let Ok((connection, standing)) = self.reach(chosen.host).await
            && standing.confirms(chosen)
        {
            return Ok((connection, chosen));
        }
        let chosen = self.look_after(looks).await?;
        let (connection, standing) = self.reach(chosen.host).await?;
        if standing.confirms(chosen) {
            Ok((connection, chosen))
        } else {
            let cause = format!("{} takes no writes any more", self.hosts[chosen.host]);
            Err(Trouble::unavailable(Then::Tell, &cause))
        }
    }

    async fn look(&self) -> Result<Chosen, Trouble> {
        self.look_after(self.looks.load(Ordering::Acquire)).await
    }

    /// Asks all servers. `looks` is how often that was done when the caller found out that it is needed:
    /// if it was done again since then, the caller gets what that found.
    async fn look_after(&self, looks: u64) -> Result<Chosen, Trouble> {
        let mut last = self.last.lock().await;
        if self.looks.load(Ordering::Acquire) != looks
            && let Some(found) = &*last
        {
            return found.clone();
        }
        let asking = (0..self.hosts.len()).map(async |host| Ok(self.reach(host).await?.1));
        let seen: Vec<Result<Standing, Trouble>> = join_all(asking).await;
        let found = self.judge(&seen);
        self.looks.fetch_add(1, Ordering::Release);
        *last = Some(found.clone());
        found
    }

    async fn reach(&self, host: usize) -> Result<(PgConnection, Standing), Trouble> {
        let reaching = async {
            let mut connection = PgConnection::connect_with(&self.hosts[host].connect).await?;
            let standing = Standing::of(&mut connection).await?;
            Ok::<_, sqlx::Error>((connection, standing))
        };
        let reached = timeout(self.connect_timeout, reaching).await;
        let reached = reached.map_err(|_| Trouble::late())?;
        Ok(reached?)
    }

    fn judge(&self, seen: &[Result<Standing, Trouble>]) -> Result<Chosen, Trouble> {
        let former = self.chosen();
        let standings: Vec<_> = seen.iter().map(|it| it.as_ref().ok().copied()).collect();
        let Some(chosen) = choose(&standings, former) else {
            let cause = self.why_none(seen, cluster(&standings, former), former);
            return Err(Trouble::unavailable(Then::Tell, &cause));
        };
        if former != Some(chosen) {
            if former.is_some() {
                let (address, timeline) = (&self.hosts[chosen.host], chosen.timeline);
                tracing::warn!(%address, timeline, "another PostgreSQL server takes writes now");
            }
            self.chosen.send_replace(Some(chosen));
        }
        Ok(chosen)
    }

    fn why_none(
        &self,
        seen: &[Result<Standing, Trouble>],
        cluster: Option<i64>,
        former: Option<Chosen>,
    ) -> String {
        let newest = former.map_or(0, |former| former.timeline);
        let each = self.hosts.iter().zip(seen).map(|(host, seen)| match seen {
            Err(trouble) => format!("{host}: {}", trouble.cause()),
            Ok(standing) => match cluster {
                Some(cluster) => {
                    let why = standing.refusal(cluster, newest);
                    format!("{host} {}", why.unwrap_or_default())
                }
                None => format!("{host} is of cluster {}", standing.cluster),
            },
        });
        let each: Vec<_> = each.collect();
        let what = if cluster.is_none() && seen.iter().any(Result::is_ok) {
            "these are not one primary and its standbys"
        } else {
            "no server takes writes"
        };
        format!("{what}: {}", each.join("; "))
    }
}
