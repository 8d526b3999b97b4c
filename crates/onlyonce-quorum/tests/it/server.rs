//! A simulated server and the wire to it: its own clock, and messages that are late, lost or come
//! twice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::{Clock, SystemClock, async_trait};
use onlyonce_quorum::{
    Accept, Accepted, Acceptor, Bell, Cursor, Deed, Fault, Identity, Look, Model, ModelServer,
    Names, Pass, Prepare, Prepared, Seat, Seen, ServerTime, SharedEpoch, Turned,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::watch;

/// The set of servers that all of them belong to.
pub(super) const MEMBERS: &str = "simulated";
const EPOCH: Duration = Duration::from_secs(1_700_000_000);
/// How long a proposer waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a server keeps, and how it is.
pub(super) struct Shelf {
    pub(super) model: ModelServer,
    /// For plain Redlock: values with their ends.
    pub(super) plain: BTreeMap<Vec<u8>, (Bytes, Duration)>,
    pub(super) is_up: bool,
    offset_ms: i64,
}

pub(super) struct Server {
    pub(super) shelf: Mutex<Shelf>,
    seat: String,
    clock: SystemClock,
}

impl Server {
    pub(super) fn new(seat: usize) -> Arc<Self> {
        let seat = seat.to_string();
        let shelf = Shelf {
            model: ModelServer::founder(&seat, MEMBERS),
            plain: BTreeMap::new(),
            is_up: true,
            offset_ms: 0,
        };
        Arc::new(Self {
            shelf: Mutex::new(shelf),
            seat,
            clock: SystemClock::new(),
        })
    }

    /// Its own time.
    pub(super) fn now(&self, shelf: &Shelf) -> Duration {
        let now = EPOCH + self.clock.now();
        let offset = Duration::from_millis(shelf.offset_ms.unsigned_abs());
        match shelf.offset_ms < 0 {
            true => now - offset,
            false => now + offset,
        }
    }

    fn date(&self) -> Duration {
        self.now(&self.shelf.lock().unwrap())
    }

    pub(super) fn set_clock(&self, offset_ms: i64) {
        self.shelf.lock().unwrap().offset_ms = offset_ms;
    }

    /// Loses all it kept; `votes` on, if that bug is planted.
    pub(super) fn lose_disk(&self, votes: bool) {
        let mut shelf = self.shelf.lock().unwrap();
        shelf.model = match votes {
            true => ModelServer::founder(&self.seat, MEMBERS),
            false => ModelServer::default(),
        };
        shelf.plain.clear();
    }
}

/// How badly messages fare, in a thousand each.
#[derive(Clone, Copy, Default)]
pub(super) struct Weather {
    pub(super) lost: u32,
    pub(super) late: u32,
    pub(super) twice: u32,
    pub(super) delay_ms_max: u64,
}

/// A bug planted in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// What it asks counts however late it is heard.
    NeverLate,
    /// It asks the same again in a new epoch, on the promises of the old one.
    FollowsEpoch,
}

/// A process's wire to one server.
pub(super) struct Wire {
    pub(super) server: Arc<Server>,
    /// The epoch that the process knows.
    epoch: Arc<SharedEpoch>,
    /// What it knows of the server's clock.
    time: ServerTime,
    clock: SystemClock,
    flaw: Flaw,
    pub(super) weather: Arc<Mutex<Weather>>,
    pub(super) dice: Mutex<ChaCha8Rng>,
    pub(super) is_cut: Mutex<bool>,
    /// What stays in the server's socket until this changes.
    pub(super) held: watch::Sender<Held>,
    /// Counts the questions.
    pub(super) asked: AtomicUsize,
}

/// Whether prepares and questions that are no votes pass.
pub(super) fn passes(held: Held) -> bool {
    held != Held::Everything
}

/// What waits in a server's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Nothing,
    Accepts,
    Everything,
    /// It is lost, with what waited so far.
    Lost,
}

enum Fate {
    Well,
    Lost,
    Late(Duration),
    ReplyLost,
    Twice(Duration),
}

impl Wire {
    pub(super) fn new(
        server: &Arc<Server>,
        epoch: &Arc<SharedEpoch>,
        weather: &Arc<Mutex<Weather>>,
        flaw: Flaw,
        seed: u64,
    ) -> Arc<Self> {
        let (time, clock) = (ServerTime::default(), SystemClock::new());
        time.heard(server.date(), clock.now());
        Arc::new(Self {
            server: Arc::clone(server),
            epoch: Arc::clone(epoch),
            time,
            clock,
            flaw,
            weather: Arc::clone(weather),
            dice: Mutex::new(ChaCha8Rng::seed_from_u64(seed)),
            is_cut: Mutex::new(false),
            held: watch::Sender::new(Held::Nothing),
            asked: AtomicUsize::new(0),
        })
    }

    fn delay(&self) -> Duration {
        let most = self.weather.lock().unwrap().delay_ms_max;
        Duration::from_micros(self.dice.lock().unwrap().random_range(0..=most * 1000))
    }

    fn fate(&self) -> Fate {
        let weather = *self.weather.lock().unwrap();
        let mut dice = self.dice.lock().unwrap();
        let mut happens = |chance: u32| dice.random_range(0..1000) < chance;
        let (lost, reply_lost, late, twice) = (
            happens(weather.lost),
            happens(weather.lost),
            happens(weather.late),
            happens(weather.twice),
        );
        let later = Duration::from_millis(dice.random_range(0..40_000));
        match (lost, reply_lost, late, twice) {
            (true, ..) => Fate::Lost,
            (_, true, ..) => Fate::ReplyLost,
            (_, _, true, _) => Fate::Late(later),
            (_, _, _, true) => Fate::Twice(later),
            _ => Fate::Well,
        }
    }

    /// One question on its way to the server and back.
    pub(super) async fn send<R: Send + 'static>(
        &self,
        passes: fn(Held) -> bool,
        step: impl Fn(&mut Shelf, Duration) -> Result<R, Fault> + Clone + Send + 'static,
    ) -> Result<R, Fault> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let fate = self.fate();
        let server = Arc::clone(&self.server);
        let arrive = move |server: &Server| {
            let mut shelf = server.shelf.lock().unwrap();
            let now = server.now(&shelf);
            shelf.is_up.then(|| step(&mut shelf, now))
        };
        let again = arrive.clone();
        let later = |after: Duration| {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                drop(again(&server));
            });
        };
        tokio::time::sleep(self.delay()).await;
        let is_lost = match fate {
            Fate::Lost => true,
            Fate::Late(after) => {
                later(after);
                true
            }
            Fate::Twice(after) => {
                later(after);
                false
            }
            Fate::Well | Fate::ReplyLost => false,
        };
        let away = || Fault::Away("no answer in time".to_owned());
        if is_lost || *self.is_cut.lock().unwrap() {
            tokio::time::sleep(PATIENCE).await;
            return Err(away());
        }
        let mut held = self.held.subscribe();
        let server = Arc::clone(&self.server);
        let arrival = async move {
            let end = held.wait_for(|held| *held == Held::Lost || passes(*held));
            match end.await.is_ok_and(|held| *held != Held::Lost) {
                true => arrive(&server),
                false => None,
            }
        };
        let is_held = !passes(*self.held.borrow());
        let answer = match is_held {
            false => arrival.await,
            // It stays in the socket, whether its proposer waits for it or not.
            true => match tokio::time::timeout(PATIENCE, tokio::spawn(arrival)).await {
                Ok(answer) => answer.unwrap(),
                Err(_) => return Err(away()),
            },
        };
        tokio::time::sleep(self.delay()).await;
        match answer {
            Some(answer) if !matches!(fate, Fate::ReplyLost) => answer,
            Some(_) | None => {
                tokio::time::sleep(PATIENCE).await;
                Err(away())
            }
        }
    }

    /// The same as a vote: only of the server that was meant, in its epoch, and in time.
    async fn vote<R: Send + 'static>(
        &self,
        mut epoch: u64,
        passes: fn(Held) -> bool,
        step: impl Fn(&mut Model, Duration) -> R + Clone + Send + 'static,
    ) -> Result<R, Fault> {
        let mut was_behind = false;
        loop {
            let asked = self.clock.now();
            let until = self.time.until(asked);
            let pass = Pass {
                seat: self.server.seat.clone(),
                members: MEMBERS.to_owned(),
                epoch,
                until: until.filter(|_| self.flaw != Flaw::NeverLate),
            };
            let step = step.clone();
            let voted = self.send(passes, move |shelf, now| {
                let voted = shelf.model.vote(&pass, now);
                Ok((now, voted.map(|registers| step(registers, now))))
            });
            let (date, voted) = voted.await?;
            self.time.heard(date, self.clock.now());
            match voted {
                Ok(voted) => return Ok(voted),
                Err(Turned::Stranger(Fault::Raised(to))) if self.flaw == Flaw::FollowsEpoch => {
                    self.epoch.heard(to);
                    epoch = to;
                }
                Err(Turned::Stranger(Fault::Behind(_))) if !was_behind => {
                    was_behind = true;
                    let was = MEMBERS.to_owned();
                    self.identify(MEMBERS, &Deed::Raise { epoch, was }).await?;
                }
                Err(Turned::Stranger(fault)) => return Err(fault),
                Err(Turned::Late) if ServerTime::has_jumped(asked, self.clock.now()) => {}
                Err(Turned::Late) => return Err(Fault::late()),
            }
        }
    }
}

#[async_trait]
impl Acceptor for Wire {
    async fn prepare(&self, ask: &Prepare) -> Result<Prepared, Fault> {
        let ask = ask.clone();
        self.vote(ask.epoch, passes, move |model, now| {
            model.prepare(&ask, now)
        })
        .await
    }

    async fn accept(&self, ask: &Accept) -> Result<Accepted, Fault> {
        let ask = ask.clone();
        let passes = |held| held == Held::Nothing;
        self.vote(ask.epoch, passes, move |model, now| model.accept(&ask, now))
            .await
    }

    async fn look(&self, ask: &Look) -> Result<Seen, Fault> {
        let key = Arc::clone(&ask.key);
        self.vote(ask.epoch, passes, move |model, now| model.look(&key, now))
            .await
    }

    async fn names(&self, epoch: u64, _: Option<Cursor>) -> Result<Names, Fault> {
        self.vote(epoch, passes, |model, _| Names {
            keys: model.keys().map(<[u8]>::to_vec).collect(),
            next: None,
        })
        .await
    }

    async fn listen(&self, _: &Arc<[u8]>) -> Result<Box<dyn Bell>, Fault> {
        Err(Fault::Away("nobody rings here".to_owned()))
    }

    async fn ping(&self) -> Result<(), Fault> {
        self.vote(self.epoch.get(), passes, |_, _| ()).await
    }
}

#[async_trait]
impl Seat for Wire {
    fn name(&self) -> &str {
        &self.server.seat
    }

    async fn identify(&self, members: &str, deed: &Deed) -> Result<Identity, Fault> {
        let (seat, members, deed) = (self.server.seat.clone(), members.to_owned(), deed.clone());
        self.send(passes, move |shelf, now| {
            Ok(shelf.model.identify(&seat, &members, &deed, now))
        })
        .await
    }
}

/// Randomness from a seed.
pub(super) struct Seeded(pub(super) Mutex<ChaCha8Rng>);

impl Seeded {
    pub(super) fn new(seed: u64) -> Self {
        Self(Mutex::new(ChaCha8Rng::seed_from_u64(seed)))
    }
}

impl onlyonce_core::Entropy for Seeded {
    fn fill(&self, out: &mut [u8]) {
        self.0.lock().unwrap().fill_bytes(out);
    }
}
