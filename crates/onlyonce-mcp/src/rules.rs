//! What may differ between users of the proxy.

use std::time::Duration;

use globset::{Glob, GlobSet, GlobSetBuilder};
use onlyonce_core::key::Charset;
use onlyonce_core::policy::{Duplicate, Limits, StoredRule};
use onlyonce_core::{KeyRule, OnLapse, Policy, StoreError};

use crate::verify::Verify;

/// Longer keys are no keys.
pub(crate) const KEY_BYTES_MAX: usize = 255;
/// A larger result reaches its first caller, but not its retries.
const RESULT_BYTES_MAX: usize = 8 << 20;
/// A proxy that was killed leaves its calls running for this long, as far as others can tell.
const LEASE: Duration = Duration::from_secs(10);
/// A duplicate is refused as still running before its client, which usually waits a minute, gives up.
const WAIT_MAX: Duration = Duration::from_secs(45);
/// How long a tool may run. The waiting client decides sooner.
const RUN_MAX: Duration = Duration::from_secs(60 * 60);
/// Unique for each call of the model, and the same when the call is sent again.
const CLAUDE_CODE: &str = "claudecode/toolUseId";
/// Stands for none of the names that are known, for a client that gives one call several.
pub const NO_CALL_ID: &str = "none";
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// How calls are made to run once.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What the server is called. Keys of different servers never meet.
    pub server: String,
    /// Which tools are covered.
    pub tools: Tools,
    /// What to do with a call whose outcome is unknown.
    pub on_lapse: OnLapse,
    /// What a retry of a call gets that the tool answered with an error.
    pub errors: Errors,
    /// What a client that cancels a call with a key means by it.
    pub on_cancel: OnCancel,
    /// How long a result is kept.
    pub keep_for: Duration,
    /// The members of a call's `_meta` in which clients name one call of their model, as Claude Code
    /// does. Such a name is the key of a call that has no other one.
    pub call_ids: Vec<String>,
    /// What replaces a missing key.
    pub derive: Option<Derive>,
    /// How to find out whether calls happened whose outcome is unknown.
    pub reconcile: Vec<Verify>,
    /// Finds it out without a retry too, for tools that are asked about by the operation's id alone.
    pub background: Option<Background>,
}

/// How calls in doubt are settled without a retry.
#[derive(Clone, Copy, Debug)]
pub struct Background {
    /// How often it is looked for such calls.
    pub every: Duration,
    /// Told when they cannot be read: then none is settled until the next time.
    pub failed: fn(&StoreError),
}

impl Rules {
    /// The rules for a server of this name, unless changed: every tool that is not read-only, no
    /// derived keys, a day, and nothing runs again that may have run.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            tools: Tools::default(),
            on_lapse: OnLapse::Hold,
            errors: Errors::Replay,
            on_cancel: OnCancel::Stop,
            keep_for: Duration::from_secs(24 * 60 * 60),
            call_ids: Self::call_ids(&[]),
            derive: None,
            reconcile: Vec::new(),
            background: None,
        }
    }

    /// The members of `_meta` that name calls: those that are known, and `more`. Where one of `more` is
    /// [`NO_CALL_ID`], only what else is in it.
    pub fn call_ids(more: &[String]) -> Vec<String> {
        let known = [CLAUDE_CODE.to_owned()];
        let known = known
            .iter()
            .filter(|_| !more.iter().any(|it| it == NO_CALL_ID));
        let more = more.iter().filter(|it| *it != NO_CALL_ID);
        known.chain(more).cloned().collect()
    }

    /// How to find out whether a call of this tool happened.
    pub fn verify(&self, tool: &str) -> Option<&Verify> {
        self.reconcile.iter().find(|verify| verify.tool() == tool)
    }

    /// What calls of this tool are called in records. Where they are settled in the background the server's
    /// name is in it: another one on the same store may have a tool of the same name, and knows nothing of
    /// these.
    pub(crate) fn operation(&self, tool: &str) -> String {
        match &self.background {
            Some(_) => format!("{}/{tool}", self.server),
            None => tool.to_owned(),
        }
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy {
            key: KeyRule {
                bytes_max: KEY_BYTES_MAX,
                charset: Charset::Text,
                random: true,
            },
            lease_for: LEASE,
            keep_for: self.keep_for,
            on_lapse: self.on_lapse,
            duplicate: Duplicate::Wait(WAIT_MAX),
            execution_max: RUN_MAX,
            retry_after: RETRY_AFTER,
            stored: StoredRule::all(),
            limits: Limits {
                response_bytes_max: RESULT_BYTES_MAX,
                ..Policy::default().limits
            },
            ..Policy::default()
        }
    }
}

/// What a retry of a call gets that the tool answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errors {
    /// The same error. A tool that failed half-way would do its first half again.
    Replay,
    /// Another try, whatever the tool did before its error: also where a lapsed call is held.
    Rerun,
}

/// What a client that cancels a call with a key means by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCancel {
    /// The tool is to stop: the server is told, and has a moment to say how the call ended. If it does not, the
    /// outcome is unknown.
    Stop,
    /// It does not wait any more, as after a time-out: the call goes on, and a retry gets its result.
    Leave,
}

/// A key for calls without one: the same conversation, tool and arguments are the same call.
#[derive(Clone, Debug)]
pub struct Derive {
    /// What tells conversations apart, where a call does not say so itself.
    pub conversation: String,
    /// For how long an equal call is a retry and not meant anew.
    pub within: Duration,
}

/// Which tools are covered, of those that are not read-only.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    only: Option<GlobSet>,
    except: Option<GlobSet>,
}

impl Tools {
    /// Those whose name matches a pattern of `only`, or all if there is none, without those that
    /// match one of `except`.
    pub fn new(only: &[String], except: &[String]) -> Result<Self, globset::Error> {
        let set = |patterns: &[String]| {
            let mut set = GlobSetBuilder::new();
            for pattern in patterns {
                set.add(Glob::new(pattern)?);
            }
            (!patterns.is_empty()).then(|| set.build()).transpose()
        };
        Ok(Self {
            only: set(only)?,
            except: set(except)?,
        })
    }

    /// Whether a tool is chosen by its name.
    pub fn include(&self, tool: &str) -> bool {
        let is_in = |set: &GlobSet| set.is_match(tool);
        self.only.as_ref().is_none_or(is_in) && !self.except.as_ref().is_some_and(is_in)
    }
}
