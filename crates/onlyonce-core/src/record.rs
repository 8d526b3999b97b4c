//! What a store keeps for a slot, and what it tells of it. Deadlines come out as time that is
//! left on the store's clock; a `Pending` record with no lease left is *lapsed*.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::entropy::Entropy;
use crate::fingerprint::Fingerprint;
use crate::key::Hint;
use crate::response::Response;
use crate::store::Receipt;

/// A record as read from a store at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose claim it is or was.
    pub token: Token,
    /// What the operation meant; another meaning never replays.
    pub fingerprint: Fingerprint,
    /// What the claimant wants done if its lease lapses.
    pub on_lapse: OnLapse,
    /// Which attempt this is: 1, or more after a lapse.
    pub attempt: u32,
    /// For people: who, what, where.
    pub meta: Arc<Meta>,
    /// When it was first claimed, on the store's clock.
    pub created_at: Timestamp,
    /// When it was finished.
    pub completed_at: Option<Timestamp>,
    /// When it will be forgotten, on the store's clock; to show, never to compare.
    pub expires_at: Timestamp,
    /// How long it will still be kept.
    pub keep_left: Duration,
    /// How often it was replayed, as far as counted: the count is flushed in batches.
    pub replays: u64,
    /// Where it stands.
    pub state: State,
}

/// Where a record stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Claimed, running (RUNNING in the documents).
    Pending {
        /// How long the lease still lasts; zero means lapsed, never "no limit".
        lease_left: Duration,
    },
    /// Finished well (COMPLETED).
    Done(Arc<Response>),
    /// Finished badly, and stored as such (FAILED).
    Failed(Arc<Response>),
    /// Nobody knows whether it happened. Only an operator can say.
    Unknown,
}

impl State {
    /// The finished state that fits `response`.
    pub fn finished(response: Arc<Response>) -> Self {
        if response.is_failure() {
            Self::Failed(response)
        } else {
            Self::Done(response)
        }
    }
}

impl Record {
    /// The stored answer, once there is one.
    pub fn response(&self) -> Option<&Arc<Response>> {
        match &self.state {
            State::Done(response) | State::Failed(response) => Some(response),
            State::Pending { .. } | State::Unknown => None,
        }
    }

    /// How long ago it was first claimed. All three times are the store's own.
    pub fn age(&self) -> Duration {
        let (created_at, expires_at) = (self.created_at.as_millis(), self.expires_at.as_millis());
        Duration::from_millis(expires_at.saturating_sub(created_at)).saturating_sub(self.keep_left)
    }

    /// Whether its holder's lease has ended without a result.
    pub fn is_lapsed(&self) -> bool {
        match self.state {
            State::Pending { lease_left } => lease_left.is_zero(),
            State::Done(_) | State::Failed(_) | State::Unknown => false,
        }
    }
}

/// What to do with a claim whose lease lapsed: its holder crashed, hung or was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum OnLapse {
    /// Run again: at least once, and one final answer.
    Rerun,
    /// Never run again: "outcome unknown" until an operator resolves it.
    Hold,
}

impl OnLapse {
    /// Whether both sides agree to run again. When they differ, `hold` wins.
    pub fn both_rerun(self, other: Self) -> bool {
        self == Self::Rerun && other == Self::Rerun
    }
}

/// The fencing identity of one attempt, made by the claimant, so that repeating a call after a
/// lost reply is safe.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Token([u8; Token::BYTES]);

impl Token {
    /// The length of a token.
    pub const BYTES: usize = 16;

    /// A new token: fresh randomness, for one attempt only.
    pub fn generate(entropy: &dyn Entropy) -> Self {
        let mut bytes = [0; Self::BYTES];
        entropy.fill(&mut bytes);
        Self(bytes)
    }

    /// A token from its stored bytes.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes a store compares.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:02x}{:02x})", self.0[0], self.0[1])
    }
}

/// What people want to know of a record besides its answer.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Meta {
    /// A harmless start of the key.
    pub hint: Hint,
    /// The route or job.
    pub operation: Arc<str>,
    /// Who asked, where that is known and no secret: `agent:agent_456`, or a name alone.
    pub actor: Option<Arc<str>>,
    /// The instance that holds or held the claim.
    pub holder: Arc<str>,
    /// The trace of the original request, so that a replay can link to it.
    pub trace: Option<Arc<str>>,
    /// A keyed digest of the credential, where the caller's identity was not verified.
    pub credential: Option<[u8; 32]>,
}

/// What kinds of actors a name may begin with, before a colon.
pub(crate) const ACTOR_TYPES: [&str; 6] =
    ["agent", "human", "user", "service", "system", "anonymous"];
/// What an actor is whose name does not say it.
const ACTOR_TYPE: &str = "user";

/// The type and the id of an actor by its name: `agent:agent_456` is an `agent`. A name that begins
/// with no known type and a colon is an id as a whole.
pub fn actor_parts(name: &str) -> (&str, &str) {
    match name.split_once(':') {
        Some((kind, id)) if ACTOR_TYPES.contains(&kind) => (kind, id),
        Some(_) | None => (ACTOR_TYPE, name),
    }
}

/// The name of an actor of this type, whatever the id itself begins with. A type that is not known is
/// the usual one.
pub fn actor_name(kind: &str, id: &str) -> String {
    let known = ACTOR_TYPES.into_iter().find(|known| *known == kind);
    format!("{}:{id}", known.unwrap_or(ACTOR_TYPE))
}

/// A stored or shared answer.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The answer.
    pub response: Arc<Response>,
    /// When the original call came, as far as the store tells.
    pub original_at: Option<Timestamp>,
    /// Until when it is stored; nothing if it was shared while running and not stored.
    pub expires_at: Option<Timestamp>,
    /// The trace of the original.
    pub original_trace: Option<Arc<str>>,
    /// How often it was replayed before, as far as the store has counted.
    pub replays: u64,
    /// How long the store took to tell it; nothing if it was not asked, as it was at hand or shared.
    pub asked: Option<Duration>,
}

impl Replay {
    /// The same, as the store told it after this long.
    pub(crate) fn asked_for(mut self, asked: Duration) -> Self {
        self.asked = Some(asked);
        self
    }

    /// The answer of a finished record; nothing if it is not finished.
    pub fn of(record: &Record) -> Option<Self> {
        Some(Self {
            response: Arc::clone(record.response()?),
            original_at: Some(record.created_at),
            expires_at: Some(record.expires_at),
            original_trace: record.meta.trace.clone(),
            replays: record.replays,
            asked: None,
        })
    }

    /// The answer of the attempt that ran in this process, as a duplicate gets it.
    pub(crate) fn shared(
        response: &Arc<Response>,
        receipt: Option<&Receipt>,
        original: &Meta,
    ) -> Self {
        Self {
            response: Arc::clone(response),
            original_at: receipt.map(|receipt| receipt.created_at),
            expires_at: receipt.map(|receipt| receipt.expires_at),
            original_trace: original.trace.clone(),
            replays: 0,
            asked: None,
        }
    }
}
