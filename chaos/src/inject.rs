//! Injects one fault and heals it: every fault begins and ends here.

use std::time::Duration;

use onlyonce_testkit::servers::{Redis, RedisSentinel, Server, ServerError};
use onlyonce_testkit::sim::dice::Dice;
use tokio::time::sleep;

use crate::client::Clients;
use crate::failure::Failure;
use crate::fault::Kind;
use crate::history::{Answer, Trouble, Whom};
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
        let index = match kind {
            // Only this one has a network of its own.
            Kind::Partition => 1,
            _ => dice.index(self.places.len()),
        };
        let lasts = Duration::from_millis(dice.between(kind.lasts(self.lease_ms)));
        let mut missed = None;
        let whom = match kind {
            Kind::StoreKill | Kind::StoreRestart | Kind::StoreHang | Kind::Failover => {
                self.store_fault(kind, lasts, dice).await?;
                Whom::Store
            }
            Kind::DiskFull => {
                missed = self.fill(lasts).await?;
                Whom::Store
            }
            Kind::Kill | Kind::Pause | Kind::Clock | Kind::Partition => {
                self.gateway_fault(kind, index, lasts, dice).await?;
                Whom::Gateway(index)
            }
            Kind::StoreCut
            | Kind::StoreStall
            | Kind::StoreSlow
            | Kind::StoreLoss
            | Kind::ClientCut
            | Kind::ClientSlow
            | Kind::ClientLoss => {
                self.network_fault(kind, index, lasts, dice).await?;
                Whom::Gateway(index)
            }
        };
        Ok(Trouble {
            kind,
            whom,
            from,
            to: self.watch.now(),
            back_after: None,
            missed,
        })
    }

    async fn gateway_fault(
        &mut self,
        kind: Kind,
        index: usize,
        lasts: Duration,
        dice: &mut Dice,
    ) -> Result<(), Failure> {
        let Place { gateway, net, .. } = &mut self.places[index];
        match kind {
            Kind::Pause => {
                gateway.stop()?;
                sleep(lasts).await;
                gateway.go_on()
            }
            Kind::Clock => {
                let seconds = dice.between(1..=CLOCK_SECONDS_MAX).cast_signed();
                gateway.set_clock(if dice.chance(500) { seconds } else { -seconds })?;
                sleep(lasts).await;
                gateway.set_clock(0)
            }
            Kind::Partition => {
                let net = net.as_ref().ok_or_else(|| unfit(kind))?;
                net.cut()?;
                sleep(lasts).await;
                net.heal()
            }
            _ => {
                gateway.kill().await?;
                sleep(lasts).await;
                gateway.start_again().await
            }
        }
    }

    async fn network_fault(
        &self,
        kind: Kind,
        index: usize,
        lasts: Duration,
        dice: &mut Dice,
    ) -> Result<(), Failure> {
        let cannot = || Failure::doing("break the network");
        let place = &self.places[index];
        let back = || place.back.as_ref().ok_or_else(|| unfit(kind));
        let proxy = match kind {
            Kind::ClientCut | Kind::ClientSlow | Kind::ClientLoss => &place.front,
            _ => back()?,
        };
        match kind {
            Kind::StoreCut | Kind::ClientCut => proxy.refuse().await.map_err(cannot())?,
            Kind::StoreSlow | Kind::ClientSlow => {
                proxy.delay(Duration::from_millis(dice.between(DELAY_MS)));
            }
            Kind::StoreLoss | Kind::ClientLoss => {
                proxy.drop_replies(dice.between(1..=REPLIES_MAX));
            }
            _ => proxy.stall().await,
        }
        sleep(lasts).await;
        proxy.delay(Duration::ZERO);
        proxy.drop_replies(0);
        proxy.resume().await.map_err(cannot())
    }

    async fn store_fault(
        &self,
        kind: Kind,
        lasts: Duration,
        dice: &mut Dice,
    ) -> Result<(), Failure> {
        let crashes = dice.chance(500);
        match self.store.clone() {
            Store::Server(server) => blocking(move || break_server(&server, kind, lasts)).await,
            Store::Sentinel(group) => blocking(move || fail_over(&group, crashes)).await,
            Store::Folder(..) => Err(unfit(kind)),
        }
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

/// Ends with the server as it was. Blocks.
fn break_server(server: &AnyServer, kind: Kind, lasts: Duration) -> Result<(), ServerError> {
    match kind {
        Kind::StoreHang => {
            server.pause()?;
            std::thread::sleep(lasts);
            return server.resume();
        }
        Kind::StoreRestart => server.terminate()?,
        _ => server.kill()?,
    }
    std::thread::sleep(lasts);
    server.start_again()
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
