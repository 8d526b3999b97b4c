//! How a slot is claimed: natively, in one pipeline without a script, wherever that can decide it.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value};
use bytes::Bytes;
use onlyonce_core::{Claim, Claimed, Lease, Overtaken, Record, StoreError, StoreErrorKind, codec};

use super::fleet::Ask;
use super::node::Want;
use super::reply::Reply;
use super::trouble::{Trouble, refusal};
use super::value::{self, Head, Standing, Unreadable, millis};
use super::{NAME, RedisStore};

/// Whether a claim may make a new record.
#[derive(Clone, Copy)]
enum Make {
    /// It may; that the server has room for it was seen.
    New,
    /// Unless the server is out of memory.
    IfNotFull,
    Nothing,
}

impl RedisStore {
    /// The one native pipeline of a claim. Only what it finds settled is final: everything that
    /// depends on time is for the script to decide.
    pub(super) async fn claim_natively(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let (key, value) = (self.key(&claim.slot), value::pending(claim));
        let mut set = Cmd::with_capacity(7, key.len() + value.len() + 64);
        set.arg("SET").arg(&key).arg(&value[..]);
        set.arg("NX")
            .arg("GET")
            .arg("PX")
            .arg(value::claim_px(claim));
        let mut pttl = Cmd::with_capacity(2, key.len() + 4);
        pttl.arg("PTTL").arg(&key);
        let ask = Ask::new([set, pttl], Want::Confirmed);
        let answers = self.fleet.ask(&key, &ask).await?;
        let Ok([found, pttl]) = <[Value; 2]>::try_from(answers) else {
            return Err(Trouble::Odd.into());
        };
        match (found, pttl) {
            (Value::Nil, _) => Ok(granted(claim, 1, None)),
            (Value::BulkString(found), Value::Int(pttl)) => {
                match settled_record(&Bytes::from(found), pttl, claim)? {
                    Some(record) => Ok(Claimed::Taken(record)),
                    None => self.take(claim, &key, &value, Make::New).await,
                }
            }
            (found, _) => match refusal(&found) {
                // Out of memory even a replay is refused. What is there is still there.
                Some(trouble) if trouble.is_refusal_with("OOM") => {
                    self.take(claim, &key, &value, Make::Nothing).await
                }
                Some(trouble) => Err(trouble.into()),
                None => Err(Trouble::Odd.into()),
            },
        }
    }

    pub(super) async fn claim_by_script(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let (key, value) = (self.key(&claim.slot), value::pending(claim));
        match self.take(claim, &key, &value, Make::IfNotFull).await {
            // Out of memory, what is there is still there.
            Err(error) if error.kind == StoreErrorKind::Full => {
                self.take(claim, &key, &value, Make::Nothing).await
            }
            other => other,
        }
    }

    /// Claims only what is there already: for a store to which no new key may be added.
    pub(super) async fn claim_known(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let (key, value) = (self.key(&claim.slot), value::pending(claim));
        self.take(claim, &key, &value, Make::Nothing).await
    }

    /// Decides a claim atomically.
    async fn take(
        &self,
        claim: &Claim,
        key: &[u8],
        value: &[u8],
        make: Make,
    ) -> Result<Claimed, StoreError> {
        let lease = millis(claim.lease_for).to_string();
        let (step, may_make): (_, &[u8]) = match make {
            Make::New => (&self.scripts.take, b"1"),
            Make::IfNotFull => (&self.scripts.claim, b"1"),
            Make::Nothing => (&self.scripts.take, b"0"),
        };
        let args: [&[u8]; 3] = [value, lease.as_bytes(), may_make];
        match self.run(step, key, &args).await? {
            Reply::Acted(mut told) => {
                let attempt = told.number(0)?;
                let overtook = match told.bytes(1) {
                    Some(meta) => Some(Overtaken {
                        meta: Arc::new(codec::decode_meta(&meta).map_err(Unreadable::from)?),
                        age: Duration::from_millis(told.number(2)?),
                    }),
                    None => None,
                };
                let attempt = u32::try_from(attempt).unwrap_or(u32::MAX);
                Ok(granted(claim, attempt, overtook))
            }
            Reply::Found(record) => Ok(Claimed::Taken(record)),
            Reply::Dead => Ok(Claimed::Dead),
            Reply::Full => Err(StoreError::new(NAME, StoreErrorKind::Full)),
            Reply::Absent => Err(Trouble::Odd.into()),
        }
    }
}

/// The record found in the way of a claim, if no time can turn it into a grant: finished, unknown,
/// or clearly alive. Its time to live was read a moment later, so it is only good for showing.
fn settled_record(value: &Bytes, pttl: i64, claim: &Claim) -> Result<Option<Record>, StoreError> {
    let head = Head::read(value)?;
    let (Some(keep_left), Some(ends)) = (head.keep_left(pttl), head.known_end()) else {
        return Ok(None);
    };
    let settled = match head.standing {
        Standing::Done | Standing::Failed | Standing::Unknown => true,
        Standing::Pending => head.token != claim.token && !head.lease_left(keep_left).is_zero(),
        Standing::Released => false,
    };
    // Gone between the two commands: the time to live is another's.
    if !settled || pttl == -2 {
        return Ok(None);
    }
    Ok(Some(head.record(value, keep_left, ends)?))
}

fn granted(claim: &Claim, attempt: u32, overtook: Option<Overtaken>) -> Claimed {
    let lease = Lease {
        attempt,
        ..claim.lease()
    };
    Claimed::Granted { lease, overtook }
}
