//! Whatever is asked in whatever order, the file store answers like the reference store: through
//! small segments, sweeping, cleaning, and being closed and opened in between.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Filter, Page, StateName};
use onlyonce_core::{
    Claim, Lease, MemoryStore, OnLapse, Operate as _, Release, Slot, Store as _, Token,
};
use onlyonce_file::FileStore;

use super::support::{DAY, MINUTE, Place, SECOND, answer, claim, token};

const SEEDS: u64 = 12;
const STEPS: u64 = 400;
const SLOTS: u64 = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_store_answers_like_the_reference_store() {
    for seed in 0..SEEDS {
        Run::new(seed).await.steps().await;
    }
}

/// Both stores, and what may be asked of them next.
struct Run {
    seed: u64,
    dice: u64,
    place: Place,
    file: Option<FileStore>,
    memory: MemoryStore,
    leases: Vec<Lease>,
    released: Vec<Token>,
}

impl Run {
    async fn new(seed: u64) -> Self {
        let place = Place::new();
        Self {
            seed,
            dice: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            file: Some(place.open().await),
            memory: MemoryStore::with_clock(Arc::clone(&place.clock) as _),
            place,
            leases: Vec::new(),
            released: Vec::new(),
        }
    }

    async fn steps(mut self) {
        for step in 0..STEPS {
            let (file, memory) = self.step().await;
            assert_eq!(file, memory, "seed {}, step {step}", self.seed);
            if step % 40 == 0 {
                self.compare_lists(step).await;
            }
        }
        self.reopen().await;
        self.compare_lists(STEPS).await;
    }

    /// A number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % sides
    }

    fn duration(&mut self) -> Duration {
        let all = [
            Duration::ZERO,
            Duration::from_millis(1),
            Duration::from_millis(200),
            SECOND,
            MINUTE,
            DAY,
        ];
        all[self.roll(6) as usize]
    }

    /// Every third slot shares its first eight bytes with its neighbours of that kind.
    fn slot(&mut self) -> Slot {
        let n = self.roll(SLOTS);
        let mut bytes = [(n * 10) as u8; Slot::BYTES];
        if n.is_multiple_of(3) {
            bytes[..8].fill(7);
        }
        Slot::from_bytes(bytes)
    }

    fn claim(&mut self) -> Claim {
        Claim {
            slot: self.slot(),
            on_lapse: [OnLapse::Rerun, OnLapse::Hold][self.roll(2) as usize],
            lease_for: self.duration(),
            keep_for: self.duration(),
            ..claim(0)
        }
    }

    fn lease(&mut self) -> Lease {
        if self.leases.is_empty() || self.roll(8) == 0 {
            return Lease {
                token: token(),
                ..self.claim().lease()
            };
        }
        let at = self.roll(self.leases.len() as u64) as usize;
        self.leases[at].clone()
    }

    /// Claims lapse with their process, which the other store does not have: none may be running.
    async fn reopen(&mut self) {
        let running = Filter {
            state: Some(StateName::Pending),
            ..Filter::default()
        };
        let all = Page {
            after: None,
            records_max: usize::MAX,
        };
        for (_, record) in self.memory.list(&running, &all).await.unwrap() {
            let mut leases = self.leases.iter();
            let lease = leases.find(|it| it.token == record.token).unwrap().clone();
            let (file, answer) = (self.file.as_ref().unwrap(), answer(0, 8));
            let (file, memory) = said(
                file.complete(&lease, &answer, DAY).await,
                self.memory.complete(&lease, &answer, DAY).await,
            );
            assert_eq!(file, memory, "seed {}", self.seed);
        }
        drop(self.file.take());
        self.file = Some(self.place.open().await);
    }

    async fn compare_lists(&mut self, step: u64) {
        let states = [
            None,
            Some(StateName::Pending),
            Some(StateName::Done),
            Some(StateName::Lapsed),
        ];
        for state in states {
            let filter = Filter {
                state,
                ..Filter::default()
            };
            let page = Page {
                after: Some(self.slot()).filter(|_| step.is_multiple_of(80)),
                records_max: 1 + self.roll(30) as usize,
            };
            let file = self.file.as_ref().unwrap().list(&filter, &page).await;
            let memory = self.memory.list(&filter, &page).await.unwrap();
            assert_eq!(file.unwrap(), memory, "seed {}, step {step}", self.seed);
        }
    }

    /// Asks both the same; what they said.
    async fn step(&mut self) -> (String, String) {
        let kind = self.roll(20);
        let (slot, lease, time) = (self.slot(), self.lease(), self.duration());
        let answer = answer(kind, [8, 600, 9000][self.roll(3) as usize]);
        match kind {
            0..=5 => return self.ask_claim().await,
            // Whole milliseconds: a date that is read again has no more.
            12 => {
                let part = Duration::from_millis(time.as_millis() as u64 / 3);
                self.place.clock.advance(part);
            }
            13 => self.reopen().await,
            _ => {}
        }
        let file = self.file.as_ref().unwrap();
        let memory = &self.memory;
        match kind {
            6..=8 => said(
                file.complete(&lease, &answer, time).await,
                memory.complete(&lease, &answer, time).await,
            ),
            9 => said(
                file.renew(&lease, time).await,
                memory.renew(&lease, time).await,
            ),
            10 | 11 => {
                self.released.push(lease.token);
                let why = [Release::NotRun, Release::Unknown][(kind - 10) as usize];
                said(
                    file.release(&lease, why).await,
                    memory.release(&lease, why).await,
                )
            }
            14 => said(file.forget(&slot).await, memory.forget(&slot).await),
            15 => said(
                file.extend(&slot, time).await,
                memory.extend(&slot, time).await,
            ),
            16 => said(
                file.resolve(&slot, &answer, time).await,
                memory.resolve(&slot, &answer, time).await,
            ),
            17 => {
                let replays = [(slot, 2), (lease.slot, 1)];
                said(
                    file.count_replays(&replays).await,
                    memory.count_replays(&replays).await,
                )
            }
            18 => {
                file.sweep(3).await.unwrap();
                said(Ok::<_, ()>(()), Ok::<_, ()>(()))
            }
            _ => said(file.get(&slot).await, memory.get(&slot).await),
        }
    }

    /// A new claim, or one of those whose token may still live, again.
    async fn ask_claim(&mut self) -> (String, String) {
        let mut claim = self.claim();
        let again = self.lease();
        if self.roll(5) == 0 && !self.released.contains(&again.token) {
            claim.slot = again.slot;
            claim.token = again.token;
        }
        self.leases.push(claim.lease());
        said(
            self.file.as_ref().unwrap().claim(&claim).await,
            self.memory.claim(&claim).await,
        )
    }
}

fn said<T: Debug, E: Debug>(file: Result<T, E>, memory: Result<T, E>) -> (String, String) {
    (
        format!("{:?}", file.unwrap()),
        format!("{:?}", memory.unwrap()),
    )
}
