//! What the quorum is explored for: how many calls and ballots, and the claims of these calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use onlyonce_core::{Claim, Entropy, Fingerprint, Key, KeyRule, Meta, OnLapse, Slot, Token};

use super::{Bug, Run};

const LEASE: Duration = Duration::from_secs(30);
const KEEP: Duration = Duration::from_secs(3600);

/// How much may happen.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// How many calls each proposer takes, one after the other.
    pub calls: [u8; 2],
    /// How many ballots each proposer has made when it begins no further attempt.
    pub ballots_max: [u8; 2],
    /// How many questions arrive after their proposer has asked another one.
    pub late_max: u8,
    /// How many servers lose their disks.
    pub disks_lost_max: u8,
    /// Whether a server that lost its disk is admitted again.
    pub admits: bool,
    /// Whether answers are lost, too.
    pub loses_answers: bool,
}

impl Bounds {
    /// What the tests explore.
    pub const SMALL: Self = Self {
        calls: [1, 1],
        ballots_max: [1, 1],
        late_max: 0,
        disks_lost_max: 1,
        admits: false,
        loses_answers: true,
    };
    /// The server that lost its disk is admitted.
    pub const ADMITTED: Self = Self {
        admits: true,
        ..Self::SMALL
    };
    /// One proposer tries again.
    pub const LARGE: Self = Self {
        ballots_max: [1, 2],
        ..Self::SMALL
    };
    /// A question arrives late.
    pub const LATE: Self = Self {
        late_max: 1,
        ..Self::SMALL
    };

    /// What is needed to find a planted bug.
    pub(crate) const fn planted(bug: Bug) -> Self {
        match bug {
            Bug::VotesAfterLoss => Self::SMALL,
            Bug::EpochNotRaised | Bug::FollowsEpoch | Bug::AdmittedAtOnce => Self {
                loses_answers: false,
                ..Self::ADMITTED
            },
            Bug::NoWriteBack => Self {
                calls: [1, 2],
                ballots_max: [1, 3],
                late_max: 0,
                disks_lost_max: 0,
                admits: false,
                loses_answers: true,
            },
        }
    }
}

/// The claims of each proposer.
pub(super) fn claims(bounds: &Bounds) -> Vec<Vec<Claim>> {
    let proposers = (0..).zip(bounds.calls);
    let claims = proposers.map(|(proposer, calls)| {
        (0..calls)
            .map(|call| claim(Run { proposer, call }))
            .collect()
    });
    claims.collect()
}

/// The name of the register.
pub(super) fn name() -> Arc<[u8]> {
    Arc::from(&b"the slot"[..])
}

fn claim(run: Run) -> Claim {
    let key = Key::new("5f2b0c1e-7a64-4d1c-9d7e-3b8a2f6c4e10", &KeyRule::default());
    Claim {
        slot: Slot::from_bytes([7; Slot::BYTES]),
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
        token: run.token(),
        on_lapse: OnLapse::Hold,
        must_last: false,
        lease_for: LEASE,
        keep_for: KEEP,
        meta: Arc::new(Meta {
            hint: key.expect("a UUID is a key").hint(),
            operation: "modelled".into(),
            actor: None,
            holder: "modelled".into(),
            trace: None,
            credential: None,
        }),
    }
}

impl Run {
    fn token(self) -> Token {
        let mut bytes = [0; Token::BYTES];
        [bytes[0], bytes[1]] = [self.proposer, self.call];
        Token::from_bytes(bytes)
    }

    /// Its answer: no two answer alike.
    pub(super) fn body(self) -> Vec<u8> {
        vec![self.proposer, self.call]
    }

    /// Whose answer it is.
    pub(super) fn of(body: &[u8]) -> Option<Self> {
        let [proposer, call] = *body else {
            return None;
        };
        Some(Self { proposer, call })
    }
}

/// What makes a proposer's ballots its own: who it is, and how many it made.
pub(super) struct Numbers {
    proposer: u8,
    made: AtomicU8,
}

impl Numbers {
    pub(super) fn new(proposer: usize, made: u8) -> Self {
        Self {
            proposer: u8::try_from(proposer).expect("proposers are few"),
            made: AtomicU8::new(made),
        }
    }

    pub(super) fn made(&self) -> u8 {
        self.made.load(Ordering::Relaxed)
    }
}

impl Entropy for Numbers {
    fn fill(&self, out: &mut [u8]) {
        out.fill(0);
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        if let [first, second, ..] = out {
            [*first, *second] = [self.proposer, made];
        }
    }
}
