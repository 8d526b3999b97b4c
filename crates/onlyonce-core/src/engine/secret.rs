//! Agreement on the slot secret: configured, or created once in the store by whoever comes first.
//! Processes that disagree would not find each other's records, so a mismatch refuses to start.
//!
//! A secret is rotated in two steps. First every process is started with both, the new one and the
//! one before it: the store then remembers which follows which. One maximum retention later every
//! process is started with the new one alone; from the first of these on, the old one alone is
//! refused.
//!
//! What was agreed on at the start is watched for as long as an engine runs: see `agreement`. One that
//! finds no secret on a server first waits for an engine that runs to write its own back: the server may
//! have lost its data a moment ago, and two secrets would run every key twice.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::entropy::Entropy;
use crate::operate::Operate;
use crate::slot::{Hex, SlotSecret};
use crate::store::{Store, StoreError};

use super::OpenError;

const FIRST: &str = "slot-secret";
/// Followed by the digest of a secret: which one comes after it.
const AFTER: &str = "slot-secret-after-";
/// Followed by the digest of a secret: nobody starts with it alone any more.
const ENDED: &str = "slot-secret-ended-";
/// The store keeps the secret itself.
const KEPT: u8 = b'S';
/// The secret is configured; the store keeps only a digest, to notice another one.
const CONFIGURED: u8 = b'C';
/// More rotations than anyone lives to see; a store that answers nonsense ends here.
const ROTATIONS_MAX: usize = 10_000;

/// How long a process that finds no secret on a server waits before it offers its own: longer than an
/// engine runs anything without having [looked](super::agreement::VALID_FOR), and longer than
/// one needs to notice that its secret is gone.
pub(super) const OFFER_DELAY: Duration = Duration::from_millis(1_500);
const OFFER_POLL: Duration = Duration::from_millis(20);

/// The slot secret before the one in force, while it is being rotated.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "made once, before an engine opens"
)]
pub enum FormerSecret {
    /// This one.
    Given(SlotSecret),
    /// The one that the store keeps.
    Kept,
}

/// What an engine addresses records by.
pub(super) struct Agreed {
    pub(super) secret: SlotSecret,
    pub(super) former: Option<SlotSecret>,
    /// What the store keeps of this, by name: the first secret first. Empty if it can keep nothing.
    pub(super) marks: Vec<Mark>,
}

/// One thing that was agreed on: its name and its value.
pub(super) type Mark = (String, Vec<u8>);

pub(super) type Digest = [u8; 32];

pub(super) async fn agree(
    store: &dyn Store,
    configured: Option<SlotSecret>,
    former: Option<FormerSecret>,
    entropy: &dyn Entropy,
) -> Result<Agreed, OpenError> {
    let Some(operate) = store.operate() else {
        let secret = configured.ok_or(OpenError::SecretMissing)?;
        let former = match former {
            Some(FormerSecret::Given(former)) => Some(former),
            Some(FormerSecret::Kept) => return Err(OpenError::SecretMissing),
            None => None,
        };
        return Ok(Agreed {
            secret,
            former,
            marks: Vec::new(),
        });
    };
    match (configured, former) {
        (None, Some(_)) => Err(OpenError::SecretMissing),
        (None, None) => kept(operate, entropy).await,
        (Some(secret), None) => alone(operate, secret).await,
        (Some(secret), Some(former)) => rotating(operate, secret, former).await,
    }
}

/// The secret by which the records of a store can be looked up: `given`, if it is or was one of the
/// store's, else the one that the store keeps; nothing if no process has used the store yet. It only
/// reads: looking changes nothing of what processes have agreed on.
pub async fn look_up_secret(
    operate: &dyn Operate,
    given: Option<SlotSecret>,
) -> Result<Option<SlotSecret>, OpenError> {
    let Some(first) = operate.agreed(FIRST).await? else {
        return Ok(None);
    };
    let (first, kept) = read(&first)?;
    if let Some(given) = &given {
        find(operate, first, &digest(given)).await?;
    }
    given.or(kept).map(Some).ok_or(OpenError::SecretMismatch)
}

/// The first secret that was agreed on: `offer`, if the store has none and no process that runs puts
/// one back.
async fn offer_first(operate: &dyn Operate, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
    if operate.is_on_a_server()
        && let Ok(found) = tokio::time::timeout(OFFER_DELAY, put_back_by_others(operate)).await
    {
        return found;
    }
    operate.agree(FIRST, offer).await
}

/// Returns the first secret once the store has one.
async fn put_back_by_others(operate: &dyn Operate) -> Result<Vec<u8>, StoreError> {
    loop {
        if let Some(found) = operate.agreed(FIRST).await? {
            return Ok(found);
        }
        tokio::time::sleep(OFFER_POLL).await;
    }
}

/// No secret is configured: the store keeps one.
async fn kept(operate: &dyn Operate, entropy: &dyn Entropy) -> Result<Agreed, OpenError> {
    let offer = tagged(KEPT, SlotSecret::generate(entropy).expose());
    let first = offer_first(operate, &offer).await?;
    let (_, secret) = read(&first)?;
    let secret = secret.ok_or(OpenError::SecretMismatch)?;
    in_force(operate, &digest(&secret)).await?;
    Ok(Agreed {
        secret,
        former: None,
        marks: vec![(FIRST.to_owned(), first)],
    })
}

/// The configured secret must be the first, or one that a rotation has led to, which ends here.
async fn alone(operate: &dyn Operate, secret: SlotSecret) -> Result<Agreed, OpenError> {
    let own = digest(&secret);
    let first = offer_first(operate, &tagged(CONFIGURED, &own)).await?;
    let chain = find(operate, read(&first)?.0, &own).await?;
    in_force(operate, &own).await?;
    let mut marks = vec![(FIRST.to_owned(), first)];
    marks.extend(chain.marks);
    if let Some(before) = chain.before {
        let ended = named(ENDED, &before);
        operate.agree(&ended, b"").await?;
        marks.push((ended, Vec::new()));
    }
    Ok(Agreed {
        secret,
        former: None,
        marks,
    })
}

/// Both are configured: from now on the new one follows the old one.
async fn rotating(
    operate: &dyn Operate,
    secret: SlotSecret,
    former: FormerSecret,
) -> Result<Agreed, OpenError> {
    let first = match &former {
        FormerSecret::Given(former) => {
            let offer = tagged(CONFIGURED, &digest(former));
            offer_first(operate, &offer).await?
        }
        FormerSecret::Kept => {
            let first = operate.agreed(FIRST).await?;
            first.ok_or(OpenError::SecretMismatch)?
        }
    };
    let mut marks = vec![(FIRST.to_owned(), first.clone())];
    let (first, kept) = read(&first)?;
    let former = match former {
        FormerSecret::Given(former) => former,
        FormerSecret::Kept => kept.ok_or(OpenError::SecretMismatch)?,
    };
    let (own, before) = (digest(&secret), digest(&former));
    marks.extend(find(operate, first, &before).await?.marks);
    let (follows, offer) = (named(AFTER, &before), tagged(CONFIGURED, &own));
    let after = operate.agree(&follows, &offer).await?;
    if after != offer || own == before {
        return Err(OpenError::SecretMismatch);
    }
    marks.push((follows, after));
    in_force(operate, &own).await?;
    Ok(Agreed {
        secret,
        former: Some(former),
        marks,
    })
}

/// The rotations that lead to a secret.
#[derive(Default)]
pub(super) struct Chain {
    /// The one before it, if there is one.
    before: Option<Digest>,
    marks: Vec<Mark>,
}

/// Follows the rotations from `at` to `wanted`.
pub(super) async fn find(
    operate: &dyn Operate,
    mut at: Digest,
    wanted: &Digest,
) -> Result<Chain, OpenError> {
    let mut chain = Chain::default();
    for _ in 0..ROTATIONS_MAX {
        if at == *wanted {
            return Ok(chain);
        }
        let name = named(AFTER, &at);
        let after = operate.agreed(&name).await?;
        let after = after.ok_or(OpenError::SecretMismatch)?;
        chain.before = Some(at);
        at = read(&after)?.0;
        chain.marks.push((name, after));
    }
    Err(OpenError::SecretUnreadable)
}

/// Fails if the secret was rotated away: nobody may address records by it alone any more.
pub(super) async fn in_force(operate: &dyn Operate, digest: &Digest) -> Result<(), OpenError> {
    match operate.agreed(&named(ENDED, digest)).await? {
        Some(_) => Err(OpenError::SecretRotated),
        None => Ok(()),
    }
}

/// The digest of a secret that was agreed on, and the secret itself where the store keeps it.
pub(super) fn read(agreed: &[u8]) -> Result<(Digest, Option<SlotSecret>), OpenError> {
    let unreadable = |_| OpenError::SecretUnreadable;
    match agreed.split_first() {
        Some((&KEPT, kept)) => {
            let secret = SlotSecret::from_bytes(kept.try_into().map_err(unreadable)?);
            Ok((digest(&secret), Some(secret)))
        }
        Some((&CONFIGURED, kept)) => Ok((kept.try_into().map_err(unreadable)?, None)),
        _ => Err(OpenError::SecretUnreadable),
    }
}

fn named(name: &str, digest: &Digest) -> String {
    format!("{name}{}", Hex(*digest))
}

fn tagged(tag: u8, bytes: &[u8]) -> Vec<u8> {
    [&[tag], bytes].concat()
}

pub(super) fn digest(secret: &SlotSecret) -> Digest {
    let mut hash = Sha256::new();
    hash.update(b"onlyonce slot secret");
    hash.update(secret.expose());
    hash.finalize().into()
}
