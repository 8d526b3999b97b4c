//! What happens to some of a quorum's servers, or on the way to them. Without a minority everything
//! goes on; without a majority nothing does.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_testkit::servers::{Server, ServerError};
use onlyonce_testkit::sim::dice::Dice;
use tokio::time::{sleep, timeout};

use super::{Break, CLOCK_SECONDS_MAX, DELAY_MS, REPLIES_MAX, Scene, blocking, unfit};
use crate::failure::Failure;
use crate::fault::Kind;
use crate::history::{Answer, Whom};
use crate::quorum::{self, Losing, MINORITY_MAX, Quorum, SERVERS};

/// How long a gateway may take to show that it goes on without a minority, or that it does not
/// without a majority.
const SHOWN_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a fault came to.
pub(super) struct Came {
    pub(super) whom: Whom,
    pub(super) missed: Option<&'static str>,
}

/// What gateways do meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    GoesOn,
    Refuses,
    /// Part of what is asked is answered.
    Anything,
}

impl Scene<'_> {
    /// Lets it happen to some servers; all of them are well when it returns.
    pub(super) async fn trouble_servers(
        &self,
        kind: Kind,
        quorum: &Arc<Quorum>,
        lasts: Duration,
        dice: &mut Dice,
    ) -> Result<Came, Failure> {
        let some = choose(how_many(kind, dice), dice);
        let is_minority = some.len() <= MINORITY_MAX;
        let meanwhile = match (is_minority, kind) {
            (true, _) => Meanwhile::GoesOn,
            (false, Kind::MajorityLoss) => Meanwhile::Refuses,
            (false, _) => Meanwhile::Anything,
        };
        let look = self.meanwhile(meanwhile, lasts);
        let missed = match kind {
            Kind::StoreKill => broken(quorum, &some, |it| it.kill(), look).await?,
            Kind::StoreRestart => broken(quorum, &some, |it| it.terminate(), look).await?,
            Kind::StoreHang => broken(quorum, &some, |it| it.pause(), look).await?,
            Kind::MajorityLoss if dice.chance(500) => {
                broken(quorum, &some, |it| it.kill(), look).await?
            }
            Kind::MajorityLoss => broken(quorum, &some, |it| it.pause(), look).await?,
            Kind::DiskLoss => self.lose_disks(quorum, &some, look).await?,
            Kind::StoreClock => wrong_clocks(quorum, &some, look, dice).await?,
            Kind::Partition => {
                let net = self.places[1].net.as_ref().ok_or_else(|| unfit(kind))?;
                net.cut(&some)?;
                let missed = look.await;
                net.heal(&some)?;
                missed
            }
            Kind::StoreCut | Kind::StoreStall | Kind::StoreSlow | Kind::StoreLoss => {
                self.trouble_doors(kind, &some, look, dice).await?
            }
            Kind::Kill
            | Kind::Pause
            | Kind::ClientCut
            | Kind::ClientSlow
            | Kind::ClientLoss
            | Kind::Failover
            | Kind::DiskFull
            | Kind::Clock => return Err(unfit(kind)),
        };
        let whom = match (is_minority, kind) {
            (true, _) => Whom::Minority,
            (false, Kind::Partition) => Whom::Gateway(1),
            (false, _) => Whom::Store,
        };
        Ok(Came { whom, missed })
    }

    /// On the way to some servers, of all gateways alike.
    async fn trouble_doors(
        &self,
        kind: Kind,
        some: &[usize],
        look: impl Future<Output = Option<&'static str>>,
        dice: &mut Dice,
    ) -> Result<Option<&'static str>, Failure> {
        let cannot = || Failure::doing("break the way to a server");
        let (delay, replies) = (dice.between(DELAY_MS), dice.between(1..=REPLIES_MAX));
        let doors: Vec<_> = some.iter().map(|at| &self.doors[*at]).collect();
        for door in &doors {
            if kind == Kind::StoreCut {
                door.refuse().await.map_err(cannot())?;
            } else if kind == Kind::StoreStall {
                door.stall().await;
            } else if kind == Kind::StoreSlow {
                door.delay(Duration::from_millis(delay));
            } else {
                door.drop_replies(replies);
            }
        }
        let missed = look.await;
        for door in &doors {
            door.delay(Duration::ZERO);
            door.drop_replies(0);
            door.resume().await.map_err(cannot())?;
        }
        Ok(missed)
    }

    /// They come back empty, and are admitted by an operator after a while.
    async fn lose_disks(
        &self,
        quorum: &Arc<Quorum>,
        some: &[usize],
        look: impl Future<Output = Option<&'static str>>,
    ) -> Result<Option<&'static str>, Failure> {
        let (wiped, which, how) = (Arc::clone(quorum), some.to_vec(), self.losing);
        blocking(move || wiped.lose_disks(&which, how)).await?;
        let missed = look.await;
        if how == Losing::All {
            quorum::admit(self.doors, some).await?;
        }
        Ok(missed)
    }

    /// Waits for so long, and longer until every gateway has shown what it does.
    async fn meanwhile(&self, what: Meanwhile, lasts: Duration) -> Option<&'static str> {
        let shown = async {
            let gateways = 0..self.places.len();
            match what {
                Meanwhile::Anything => None,
                Meanwhile::GoesOn => {
                    for gateway in gateways {
                        self.until(gateway, |heard| matches!(heard, Answer::Done(_)))
                            .await;
                    }
                    None
                }
                Meanwhile::Refuses => {
                    let over = |heard| matches!(heard, Answer::Done(_) | Answer::Refused(503));
                    for gateway in gateways {
                        if self.until(gateway, over).await != Answer::Refused(503) {
                            return Some("a new key was run without a majority");
                        }
                    }
                    None
                }
            }
        };
        let shown = timeout(SHOWN_MAX, shown);
        let (shown, ()) = tokio::join!(shown, sleep(lasts));
        match (shown, what) {
            (Ok(missed), _) => missed,
            (Err(_), Meanwhile::Refuses) => Some("no new key was refused with 503"),
            (Err(_), Meanwhile::GoesOn | Meanwhile::Anything) => {
                Some("a gateway ran no new key while a minority was away")
            }
        }
    }

    /// Asks a gateway for new keys until it answers so.
    async fn until(&self, gateway: usize, is_so: impl Fn(Answer) -> bool) -> Answer {
        loop {
            let heard = self.clients.probe(gateway, SHOWN_MAX).await;
            if is_so(heard) {
                return heard;
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

/// How many servers it happens to.
fn how_many(kind: Kind, dice: &mut Dice) -> usize {
    let is_on_the_way = matches!(
        kind,
        Kind::Partition | Kind::StoreCut | Kind::StoreStall | Kind::StoreSlow | Kind::StoreLoss
    );
    if kind == Kind::MajorityLoss {
        MINORITY_MAX + 1 + dice.index(SERVERS - MINORITY_MAX)
    } else if is_on_the_way {
        1 + dice.index(SERVERS)
    } else {
        1 + dice.index(MINORITY_MAX)
    }
}

fn choose(how_many: usize, dice: &mut Dice) -> Vec<usize> {
    let mut all: Vec<usize> = (0..SERVERS).collect();
    let chosen = (0..how_many).map(|_| all.swap_remove(dice.index(all.len())));
    chosen.collect()
}

/// Breaks them until `wait` is over.
async fn broken<T>(
    quorum: &Arc<Quorum>,
    some: &[usize],
    break_it: Break,
    wait: impl Future<Output = T>,
) -> Result<T, Failure> {
    each(quorum, some, move |server| break_it(server)).await?;
    let waited = wait.await;
    each(quorum, some, |server| match server.pid() {
        Some(_) => server.resume(),
        None => server.start_again(),
    })
    .await?;
    Ok(waited)
}

async fn each(
    quorum: &Arc<Quorum>,
    some: &[usize],
    act: impl Fn(&dyn Server) -> Result<(), ServerError> + Send + 'static,
) -> Result<(), Failure> {
    let (quorum, some) = (Arc::clone(quorum), some.to_vec());
    blocking(move || {
        let mut servers = some.iter().map(|at| &quorum.servers[*at]);
        Ok(servers.try_for_each(|server| act(server))?)
    })
    .await
}

/// Each is wrong by as much as it is, ahead or behind.
async fn wrong_clocks<T>(
    quorum: &Arc<Quorum>,
    some: &[usize],
    wait: impl Future<Output = T>,
    dice: &mut Dice,
) -> Result<T, Failure> {
    for at in some {
        let seconds = dice.between(1..=CLOCK_SECONDS_MAX).cast_signed();
        let seconds = if dice.chance(500) { seconds } else { -seconds };
        quorum.servers[*at].set_clock(seconds)?;
    }
    let waited = wait.await;
    for at in some {
        quorum.servers[*at].set_clock(0)?;
    }
    Ok(waited)
}
