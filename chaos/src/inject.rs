//! Injects one fault and heals it: every fault begins and ends here.

mod servers;

use std::time::Duration;

use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Redis, Server, ServerError};
use onlyonce_testkit::sim::dice::Dice;
use tokio::time::sleep;

use crate::client::Clients;
use crate::failure::Failure;
use crate::fault::Kind;
use crate::gateway::Gateway;
use crate::history::{Answer, Trouble};
use crate::quorum::Losing;
use crate::stage::Place;
use crate::store::Store;
use crate::watch::Watch;

/// A clock is off by at most this.
const CLOCK_SECONDS_MAX: u64 = 3600;
/// Late by at most this, in milliseconds.
const DELAY_MS: std::ops::RangeInclusive<u64> = 20..=400;
const REPLIES_MAX: u64 = 40;
/// Masters of a cluster to choose from.
const MASTERS_MAX: usize = 3;
/// How long a full disk may take to be noticed.
const FULL_MAX: Duration = Duration::from_secs(120);

/// What breaks a server.
type Break = fn(&dyn Server) -> Result<(), ServerError>;

/// Where faults happen.
pub(crate) struct Scene<'a> {
    pub(crate) store: &'a Store,
    pub(crate) places: &'a mut [Place],
    /// What the servers of a quorum are behind.
    pub(crate) doors: &'a [Proxy],
    pub(crate) losing: Losing,
    pub(crate) clients: &'a Clients,
    pub(crate) watch: &'a Watch,
    pub(crate) lease_ms: u64,
}

impl Scene<'_> {
    /// Lets it happen, and returns when it is over.
    pub(crate) async fn inject(&mut self, kind: Kind, dice: &mut Dice) -> Result<Trouble, Failure> {
        let from = self.watch.now();
        // Only the second has a network of its own.
        let index = if kind == Kind::Partition {
            1
        } else {
            dice.index(self.places.len())
        };
        let lasts = Duration::from_millis(dice.between(kind.lasts(self.lease_ms)));
        if let Store::Quorum(quorum) = self.store
            && kind.is_of_the_store()
        {
            let came = self.trouble_servers(kind, quorum, lasts, dice).await?;
            return Ok(Trouble {
                kind,
                whom: came.whom,
                from,
                to: self.watch.now(),
                back_after: None,
                missed: came.missed,
            });
        }
        let place = &mut self.places[index];
        let back = place.back.as_ref().ok_or_else(|| unfit(kind));
        let mut missed = None;
        match kind {
            Kind::Kill => kill(&mut place.gateway, lasts).await?,
            Kind::Pause => pause(&place.gateway, lasts).await?,
            Kind::Clock => shift(&place.gateway, lasts, dice).await?,
            Kind::Partition => {
                let net = place.net.as_ref().ok_or_else(|| unfit(kind))?;
                net.cut(&[0])?;
                sleep(lasts).await;
                net.heal(&[0])?;
            }
            Kind::StoreCut => cut(back?, lasts).await?,
            Kind::StoreStall => stall(back?, lasts).await?,
            Kind::StoreSlow => slow(back?, lasts, dice).await,
            Kind::StoreLoss => lose(back?, lasts, dice).await,
            Kind::ClientCut => cut(&place.front, lasts).await?,
            Kind::ClientSlow => slow(&place.front, lasts, dice).await,
            Kind::ClientLoss => lose(&place.front, lasts, dice).await,
            Kind::StoreKill => self.break_store(lasts, dice, |it| it.kill()).await?,
            Kind::StoreRestart => self.break_store(lasts, dice, |it| it.terminate()).await?,
            Kind::StoreHang => self.break_store(lasts, dice, |it| it.pause()).await?,
            Kind::Failover if dice.chance(500) => self.fail_over(dice, |it| it.kill()).await?,
            Kind::Failover => self.fail_over(dice, |it| it.pause()).await?,
            Kind::DiskFull => missed = self.fill(lasts).await?,
            Kind::DiskLoss | Kind::StoreClock | Kind::MajorityLoss => return Err(unfit(kind)),
        }
        Ok(Trouble {
            kind,
            whom: kind.whom(index),
            from,
            to: self.watch.now(),
            back_after: None,
            missed,
        })
    }

    /// Breaks the store's server, or a master of the cluster, for a while.
    async fn break_store(
        &self,
        lasts: Duration,
        dice: &mut Dice,
        break_it: Break,
    ) -> Result<(), Failure> {
        let (store, number) = (self.store.clone(), dice.index(MASTERS_MAX));
        let wait = move || {
            std::thread::sleep(lasts);
            Ok(())
        };
        blocking(move || match store {
            Store::Server(server) => Ok(broken_for(&*server, break_it, wait)?),
            Store::Cluster(cluster) => {
                broken_for(one_of(&cluster.masters()?, number)?, break_it, wait)?;
                Ok(cluster.wait_until_whole()?)
            }
            Store::Folder(..) | Store::Sentinel(_) | Store::Quorum(_) => {
                Err(Failure::new("no server to break"))
            }
        })
        .await
    }

    /// Breaks a master until another takes over; the old one comes back as its replica.
    async fn fail_over(&self, dice: &mut Dice, break_it: Break) -> Result<(), Failure> {
        let (store, number) = (self.store.clone(), dice.index(MASTERS_MAX));
        blocking(move || match store {
            Store::Sentinel(group) => {
                let master = group.master()?;
                let replaced = || group.wait_until_replaced(master).map(drop);
                broken_for(master, break_it, replaced)?;
                Ok(group.wait_until_whole()?)
            }
            Store::Cluster(cluster) => {
                let masters = cluster.masters()?;
                let master = one_of(&masters, number)?;
                broken_for(master, break_it, || cluster.wait_until_replaced(master))?;
                Ok(cluster.wait_until_whole()?)
            }
            Store::Folder(..) | Store::Server(_) | Store::Quorum(_) => Err(unfit(Kind::Failover)),
        })
        .await
    }

    /// Fills the disk. A file store has to refuse new keys once the room it reserved is used up;
    /// SQLite may find room in its log.
    async fn fill(&mut self, lasts: Duration) -> Result<Option<&'static str>, Failure> {
        let Store::Folder(kind, disk) = self.store else {
            return Err(unfit(Kind::DiskFull));
        };
        disk.fill()?;
        let probe = || self.clients.probe_with_bulk(0, FULL_MAX);
        let refused = async {
            loop {
                let heard = tokio::join!(probe(), probe(), probe(), probe());
                if <[Answer; 4]>::from(heard).contains(&Answer::Refused(503)) {
                    return;
                }
            }
        };
        let seen = tokio::time::timeout(FULL_MAX, async {
            if *kind == crate::store::Kind::File {
                refused.await;
            }
        });
        let missed = seen.await.err().map(|_| "no new key was refused with 503");
        sleep(lasts).await;
        disk.free()?;
        Ok(missed)
    }
}

async fn kill(gateway: &mut Gateway, lasts: Duration) -> Result<(), Failure> {
    gateway.kill().await?;
    sleep(lasts).await;
    gateway.start_again().await
}

async fn pause(gateway: &Gateway, lasts: Duration) -> Result<(), Failure> {
    gateway.stop()?;
    sleep(lasts).await;
    gateway.go_on()
}

async fn shift(gateway: &Gateway, lasts: Duration, dice: &mut Dice) -> Result<(), Failure> {
    let seconds = dice.between(1..=CLOCK_SECONDS_MAX).cast_signed();
    gateway.set_clock(if dice.chance(500) { seconds } else { -seconds })?;
    sleep(lasts).await;
    gateway.set_clock(0)
}

async fn cut(proxy: &Proxy, lasts: Duration) -> Result<(), Failure> {
    let cannot = || Failure::doing("cut connections");
    proxy.refuse().await.map_err(cannot())?;
    sleep(lasts).await;
    proxy.resume().await.map_err(cannot())
}

async fn stall(proxy: &Proxy, lasts: Duration) -> Result<(), Failure> {
    proxy.stall().await;
    sleep(lasts).await;
    let resumed = proxy.resume().await;
    resumed.map_err(Failure::doing("let connections go on"))
}

async fn slow(proxy: &Proxy, lasts: Duration, dice: &mut Dice) {
    proxy.delay(Duration::from_millis(dice.between(DELAY_MS)));
    sleep(lasts).await;
    proxy.delay(Duration::ZERO);
}

async fn lose(proxy: &Proxy, lasts: Duration, dice: &mut Dice) {
    proxy.drop_replies(dice.between(1..=REPLIES_MAX));
    sleep(lasts).await;
    proxy.drop_replies(0);
}

/// Breaks a server until `wait` returns; then it goes on, or is started again. Blocks.
fn broken_for(
    server: &dyn Server,
    break_it: Break,
    wait: impl FnOnce() -> Result<(), ServerError>,
) -> Result<(), ServerError> {
    break_it(server)?;
    wait()?;
    match server.pid() {
        Some(_) => server.resume(),
        None => server.start_again(),
    }
}

fn one_of<'a>(masters: &[&'a Redis], number: usize) -> Result<&'a Redis, Failure> {
    let master = masters.get(number % masters.len().max(1)).copied();
    master.ok_or_else(|| Failure::new("the cluster has no master"))
}

async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(call).await;
    done.map_err(Failure::doing("break a server"))?
}

fn unfit(kind: Kind) -> Failure {
    Failure::new(format!("the fault {kind} does not fit this store"))
}
