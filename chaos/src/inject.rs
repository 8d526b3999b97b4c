//! Injects one fault and heals it: every fault begins and ends here.

use std::time::Duration;

use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Redis, RedisSentinel, Server, ServerError};
use onlyonce_testkit::sim::dice::Dice;
use tokio::time::sleep;

use crate::client::Clients;
use crate::failure::Failure;
use crate::fault::Kind;
use crate::gateway::Gateway;
use crate::history::{Answer, Trouble};
use crate::stage::Place;
use crate::store::{AnyServer, Store};
use crate::watch::Watch;

/// A clock is off by at most this.
const CLOCK_SECONDS_MAX: u64 = 3600;
/// Late by at most this, in milliseconds.
const DELAY_MS: std::ops::RangeInclusive<u64> = 20..=400;
const REPLIES_MAX: u64 = 40;
/// How long a full disk may take to be noticed.
const FULL_MAX: Duration = Duration::from_secs(120);

/// Where faults happen.
pub(crate) struct Scene<'a> {
    pub(crate) store: &'a Store,
    pub(crate) places: &'a mut [Place],
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
        let place = &mut self.places[index];
        let back = place.back.as_ref().ok_or_else(|| unfit(kind));
        let mut missed = None;
        match kind {
            Kind::Kill => kill(&mut place.gateway, lasts).await?,
            Kind::Pause => pause(&place.gateway, lasts).await?,
            Kind::Clock => shift(&place.gateway, lasts, dice).await?,
            Kind::Partition => {
                let net = place.net.as_ref().ok_or_else(|| unfit(kind))?;
                net.cut()?;
                sleep(lasts).await;
                net.heal()?;
            }
            Kind::StoreCut => cut(back?, lasts).await?,
            Kind::StoreStall => stall(back?, lasts).await?,
            Kind::StoreSlow => slow(back?, lasts, dice).await,
            Kind::StoreLoss => lose(back?, lasts, dice).await,
            Kind::ClientCut => cut(&place.front, lasts).await?,
            Kind::ClientSlow => slow(&place.front, lasts, dice).await,
            Kind::ClientLoss => lose(&place.front, lasts, dice).await,
            Kind::StoreKill => self.with_server(kind, lasts, |it| it.kill()).await?,
            Kind::StoreRestart => self.with_server(kind, lasts, |it| it.terminate()).await?,
            Kind::StoreHang => self.with_server(kind, lasts, |it| it.pause()).await?,
            Kind::Failover => self.fail_over(dice.chance(500)).await?,
            Kind::DiskFull => missed = self.fill(lasts).await?,
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

    /// Breaks the store's server, and lets it go on or start again.
    async fn with_server(
        &self,
        kind: Kind,
        lasts: Duration,
        break_it: fn(&AnyServer) -> Result<(), ServerError>,
    ) -> Result<(), Failure> {
        let Store::Server(server) = self.store.clone() else {
            return Err(unfit(kind));
        };
        blocking(move || {
            break_it(&server)?;
            std::thread::sleep(lasts);
            match server.pid() {
                Some(_) => server.resume(),
                None => server.start_again(),
            }
        })
        .await
    }

    async fn fail_over(&self, crashes: bool) -> Result<(), Failure> {
        let Store::Sentinel(group) = self.store.clone() else {
            return Err(unfit(Kind::Failover));
        };
        blocking(move || fail_over(&group, crashes)).await
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

/// The master dies or hangs, another takes over, and the old one comes back as its replica. Blocks.
fn fail_over(group: &RedisSentinel, crashes: bool) -> Result<(), ServerError> {
    let master: &Redis = group.master()?;
    if crashes {
        master.kill()?;
    } else {
        master.pause()?;
    }
    group.wait_until_replaced(master)?;
    if crashes {
        master.start_again()?;
    } else {
        master.resume()?;
    }
    group.wait_until_whole()
}

async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, ServerError> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(call).await;
    Ok(done.map_err(Failure::doing("break a server"))??)
}

fn unfit(kind: Kind) -> Failure {
    Failure::new(format!("the fault {kind} does not fit this store"))
}
