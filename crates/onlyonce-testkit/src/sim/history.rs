//! What happened in a run, one compact entry an event. It is put into words only when somebody
//! wants to read it.

use std::fmt;

use onlyonce_core::event::Verb;
use onlyonce_core::policy::Fate;

use super::clock::Ms;
use super::kinds::{Fault, Heard};

/// What happened, in order. Two runs of one seed have equal histories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(pub(super) Vec<Entry>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: Ms,
    /// The process, or nothing where it is about the store or an operator.
    pub(super) process: Option<u16>,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A process opened on a node.
    Opened { node: u8 },
    /// A caller asks.
    Called {
        call: u16,
        key: u8,
        payload: u8,
        credential: u8,
        by_hand: bool,
    },
    /// A caller heard something.
    Heard { call: u16, heard: Heard },
    /// A handler started.
    Started {
        run: u16,
        call: u16,
        token: Option<Short>,
        attempt: u32,
    },
    /// A handler ended.
    Ended { run: u16, ending: Ending },
    /// A verb was committed.
    Committed {
        verb: Verb,
        key: u8,
        token: Short,
        copy: bool,
        reply: Reply,
    },
    /// A process heard that a verb failed.
    Failed { verb: Verb, token: Short },
    /// Something went wrong on purpose.
    Fault {
        fault: Fault,
        verb: Option<Verb>,
        ms: Ms,
    },
    /// A paused process goes on.
    Resumed,
    /// An operator did something to a key.
    Operated { fault: Fault, key: u8, done: bool },
    /// No more faults from here.
    Healed,
}

/// How a handler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// With an answer.
    Finished {
        /// What is to become of its key.
        fate: Fate,
    },
    /// By a panic, which has a stand-in for an answer.
    Panicked {
        fate: Fate,
    },
    NotRun,
    Unknown,
    /// Dropped at its deadline.
    TimedOut,
    /// Dropped by a caller who ran it by hand.
    Abandoned,
}

impl Ending {
    /// Whether nothing happened, or nothing that keeps the next one from running.
    pub(super) fn may_run_again(self) -> bool {
        match self {
            Self::NotRun => true,
            Self::Finished { fate } | Self::Panicked { fate } => fate == Fate::Released,
            Self::Unknown | Self::TimedOut | Self::Abandoned => false,
        }
    }

    /// Whether something may have happened that is not to happen again.
    pub(super) fn is_in_doubt(self) -> bool {
        match self {
            Self::Unknown | Self::TimedOut | Self::Abandoned => true,
            Self::Finished { fate } | Self::Panicked { fate } => fate == Fate::InDoubt,
            Self::NotRun => false,
        }
    }
}

/// What a verb was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Granted,
    TookOver,
    Taken,
    Dead,
    Kept,
    Lost,
    Busy,
    Stored,
    Found,
    Absent,
    Ended,
}

/// The start of a token: enough to tell those of one run apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Short(pub(super) u16);

impl Short {
    pub(super) fn of(token: &onlyonce_core::Token) -> Self {
        let bytes = token.as_bytes();
        Self(u16::from_be_bytes([bytes[0], bytes[1]]))
    }
}

impl fmt::Debug for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

impl History {
    /// How many events there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6} ms  ", self.at)?;
        match self.process {
            Some(process) => write!(f, "p{process:<3} ")?,
            None => write!(f, "     ")?,
        }
        fmt::Display::fmt(&self.what, f)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Opened { node } => write!(f, "opened on node {node}"),
            Self::Called {
                call,
                key,
                payload,
                credential,
                by_hand,
            } => {
                write!(f, "call {call}: key {key}, payload {payload}")?;
                if credential > 0 {
                    write!(f, ", credential {credential}")?;
                }
                f.write_str(if by_hand { ", by hand" } else { "" })
            }
            Self::Heard { call, heard } => write!(f, "call {call}: heard {}", heard.name()),
            Self::Started {
                run,
                call,
                token,
                attempt,
            } => {
                write!(f, "run {run} of call {call}: started, attempt {attempt}, ")?;
                match token {
                    Some(token) => write!(f, "token {token:?}"),
                    None => f.write_str("unprotected"),
                }
            }
            Self::Ended { run, ending } => write!(f, "run {run}: ended {ending:?}"),
            Self::Committed {
                verb,
                key,
                token,
                copy,
                reply,
            } => {
                let copy = if copy { " (late copy)" } else { "" };
                write!(f, "{verb:?} of key {key}, token {token:?}: {reply:?}{copy}")
            }
            Self::Failed { verb, token } => write!(f, "{verb:?}, token {token:?}: error"),
            Self::Fault { fault, verb, ms } => {
                write!(f, "fault: {}", fault.name())?;
                if let Some(verb) = verb {
                    write!(f, " of {verb:?}")?;
                }
                if ms > 0 {
                    write!(f, ", {ms} ms")
                } else {
                    Ok(())
                }
            }
            Self::Resumed => f.write_str("goes on"),
            Self::Operated { fault, key, done } => {
                let done = if done { "done" } else { "nothing to do" };
                write!(f, "operator: {} key {key}: {done}", fault.name())
            }
            Self::Healed => f.write_str("everything heals"),
        }
    }
}
