//! A simulated server and the wire to it: its own clock, and messages that are late, lost or come
//! twice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::{Clock, SystemClock, async_trait};
use onlyonce_quorum::{
    Accept, Accepted, Acceptor, Bell, Cursor, Fault, Model, Names, Prepare, Prepared, Seen,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const EPOCH: Duration = Duration::from_secs(1_700_000_000);
/// How long a proposer waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a server keeps, and how it is.
pub(super) struct Shelf {
    pub(super) model: Model,
    /// For plain Redlock: values with their ends.
    pub(super) plain: BTreeMap<Vec<u8>, (Bytes, Duration)>,
    pub(super) votes: bool,
    pub(super) epoch: u64,
    pub(super) is_up: bool,
    offset_ms: i64,
}

pub(super) struct Server {
    pub(super) shelf: Mutex<Shelf>,
    clock: SystemClock,
}

impl Server {
    pub(super) fn new() -> Arc<Self> {
        let shelf = Shelf {
            model: Model::default(),
            plain: BTreeMap::new(),
            votes: true,
            epoch: 1,
            is_up: true,
            offset_ms: 0,
        };
        Arc::new(Self {
            shelf: Mutex::new(shelf),
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

    pub(super) fn set_clock(&self, offset_ms: i64) {
        self.shelf.lock().unwrap().offset_ms = offset_ms;
    }

    /// Loses all it kept; `votes` on, if that bug is planted.
    pub(super) fn lose_disk(&self, votes: bool) {
        let mut shelf = self.shelf.lock().unwrap();
        shelf.model = Model::default();
        shelf.plain.clear();
        shelf.votes = votes;
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

/// A process's wire to one server.
pub(super) struct Wire {
    pub(super) server: Arc<Server>,
    /// The epoch that the process knows.
    pub(super) epoch: Arc<AtomicU64>,
    pub(super) weather: Arc<Mutex<Weather>>,
    pub(super) dice: Mutex<ChaCha8Rng>,
    pub(super) is_cut: Mutex<bool>,
    /// Counts the questions.
    pub(super) asked: AtomicUsize,
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
        epoch: &Arc<AtomicU64>,
        weather: &Arc<Mutex<Weather>>,
        seed: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(server),
            epoch: Arc::clone(epoch),
            weather: Arc::clone(weather),
            dice: Mutex::new(ChaCha8Rng::seed_from_u64(seed)),
            is_cut: Mutex::new(false),
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
        let answer = arrive(&self.server);
        tokio::time::sleep(self.delay()).await;
        match answer {
            Some(answer) if !matches!(fate, Fate::ReplyLost) => answer,
            Some(_) | None => {
                tokio::time::sleep(PATIENCE).await;
                Err(away())
            }
        }
    }

    /// The same as a vote: only in the epoch that both know, and only if the server votes.
    async fn vote<R: Send + 'static>(
        &self,
        step: impl Fn(&mut Model, Duration) -> R + Clone + Send + 'static,
    ) -> Result<R, Fault> {
        loop {
            let epoch = self.epoch.load(Ordering::Relaxed);
            let step = step.clone();
            let voted = self.send(move |shelf, now| {
                if !shelf.votes {
                    return Err(Fault::NotAdmitted);
                }
                match shelf.epoch == epoch {
                    true => Ok(Ok(step(&mut shelf.model, now))),
                    false => Ok(Err(shelf.epoch)),
                }
            });
            match voted.await? {
                Ok(voted) => return Ok(voted),
                Err(newer) if newer > epoch => {
                    self.epoch.fetch_max(newer, Ordering::Relaxed);
                }
                Err(_) => return Err(Fault::Away("not up to date yet".to_owned())),
            }
        }
    }
}

#[async_trait]
impl Acceptor for Wire {
    async fn prepare(&self, ask: &Prepare) -> Result<Prepared, Fault> {
        let ask = ask.clone();
        self.vote(move |model, now| model.prepare(&ask, now)).await
    }

    async fn accept(&self, ask: &Accept) -> Result<Accepted, Fault> {
        let ask = ask.clone();
        self.vote(move |model, now| model.accept(&ask, now)).await
    }

    async fn look(&self, key: &Arc<[u8]>) -> Result<Seen, Fault> {
        let key = Arc::clone(key);
        self.vote(move |model, now| model.look(&key, now)).await
    }

    async fn names(&self, _: Option<Cursor>) -> Result<Names, Fault> {
        self.vote(|model, _| Names {
            keys: model.keys().map(<[u8]>::to_vec).collect(),
            next: None,
        })
        .await
    }

    async fn listen(&self, _: &Arc<[u8]>) -> Result<Box<dyn Bell>, Fault> {
        Err(Fault::Away("nobody rings here".to_owned()))
    }

    async fn ping(&self) -> Result<(), Fault> {
        self.vote(|_, _| ()).await
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
