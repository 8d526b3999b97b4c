//! Events in words, and the names of calls.

use std::fmt;
use std::str::FromStr;

use onlyonce_core::Token;

use super::{Ask, CallId, Ending, Entry, Fault, Heard, Reply, Seen, SeenState, Short, What};

impl Short {
    pub(crate) fn of(token: &Token) -> Self {
        let mut start = [0; 8];
        start.copy_from_slice(&token.as_bytes()[..8]);
        Self(u64::from_be_bytes(start))
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.node, self.life, self.number)
    }
}

impl FromStr for CallId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('.');
        let mut next = || parts.next()?.parse().ok();
        let id = (|| {
            let (node, life) = (next()?, next()?);
            Some((
                u16::try_from(node).ok()?,
                u16::try_from(life).ok()?,
                next()?,
            ))
        })();
        let (node, life, number) = id.ok_or_else(|| format!("{text:?} names no call"))?;
        Ok(Self { node, life, number })
    }
}

impl From<CallId> for String {
    fn from(id: CallId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for CallId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { node, life, .. } => write!(f, "opened as {node}.{life}"),
            Self::Called {
                call,
                key,
                payload,
                terms,
                by_hand,
                sweep,
            } => {
                let lapse = if terms.hold { "hold" } else { "rerun" };
                write!(
                    f,
                    "call {call}: key {key}, payload {payload}, {lapse}, lease {} ms, kept {} ms",
                    terms.lease, terms.keep
                )?;
                f.write_str(if *by_hand { ", by hand" } else { "" })?;
                f.write_str(if *sweep { ", last round" } else { "" })
            }
            Self::Sent { verb, token, ask } => write!(f, "sends {verb}: {ask}, token {token:?}"),
            Self::Replied { verb, reply } => write!(f, "hears {verb}: {reply}"),
            Self::Started {
                call,
                token,
                attempt,
            } => {
                write!(f, "run of call {call}: started, attempt {attempt}, ")?;
                match token {
                    Some(token) => write!(f, "token {token:?}"),
                    None => f.write_str("unprotected"),
                }
            }
            Self::Ended { call, ending } => write!(f, "run of call {call}: ended {ending}"),
            Self::Dropped { call } => write!(f, "run of call {call}: dropped"),
            Self::Heard { call, heard } => write!(f, "call {call}: heard {heard}"),
            Self::HungUp { call } => write!(f, "call {call}: hung up"),
            Self::Late { .. } => f.write_str("was held up"),
            Self::Closed => f.write_str("closed"),
            Self::Fault(fault) => write!(f, "fault: {fault}"),
        }
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim { call } => write!(f, "claim for call {call}"),
            Self::Renew => f.write_str("renew"),
            Self::Complete { said, keep } => write!(f, "complete with {said:?} for {keep} ms"),
            Self::GiveBack => f.write_str("release, nothing ran"),
            Self::Doubt => f.write_str("release, outcome unknown"),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { attempt, overtook } => {
                write!(f, "granted, attempt {attempt}")?;
                match overtook {
                    Some(call) => write!(f, ", overtook call {call}"),
                    None => Ok(()),
                }
            }
            Self::Taken(seen) => write!(f, "taken: {seen}"),
            Self::Dead => f.write_str("dead"),
            Self::Kept => f.write_str("kept"),
            Self::Lost => f.write_str("lost"),
            Self::Stored => f.write_str("stored"),
            Self::Found(seen) => write!(f, "found: {seen}"),
            Self::Absent => f.write_str("absent"),
            Self::Over => f.write_str("over"),
            Self::Busy => f.write_str("busy"),
            Self::Failed => f.write_str("failed"),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {:?}, payload {}, ", self.token, self.payload)?;
        match &self.state {
            SeenState::Pending(0) => f.write_str("lapsed"),
            SeenState::Pending(left) => write!(f, "pending, {left} ms left"),
            SeenState::Finished(said) => write!(f, "finished with {said:?}"),
            SeenState::Unknown => f.write_str("outcome unknown"),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to_store = |storable: &bool| if *storable { "" } else { ", not to be stored" };
        match self {
            Self::Finished { said, storable } => {
                write!(f, "with {said:?}{}", to_store(storable))
            }
            Self::Panicked { storable } => write!(f, "in a panic{}", to_store(storable)),
            Self::NotRun => f.write_str("without having run"),
            Self::Unknown => f.write_str("not knowing"),
        }
    }
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ran { said, stored } => {
                let stored = if *stored { "stored" } else { "not stored" };
                write!(f, "its own {said:?}, {stored}")
            }
            Self::Replayed { said, stored, .. } => {
                let stored = if *stored { "replayed" } else { "shared" };
                write!(f, "{said:?}, {stored}")
            }
            Self::Refused(reason) => write!(f, "no: {reason}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill { node, life } => write!(f, "kills {node}.{life}"),
            Self::Killed { node, life } => write!(f, "{node}.{life} is dead"),
            Self::Stop { node, life } => write!(f, "stops {node}.{life}"),
            Self::Continued { node, life } => write!(f, "{node}.{life} goes on"),
            Self::Store => f.write_str("disturbs the store"),
            Self::StoreOver(what) => write!(f, "the store is as before: {what}"),
            Self::Healed => f.write_str("everything heals"),
        }
    }
}
