//! What can go wrong between us and the servers, told without addresses, credentials or keys.

use ::redis::{ErrorKind, RedisError, ServerError, Value};
use onlyonce_core::{StoreError, StoreErrorKind};
use thiserror::Error;

use super::NAME;
use super::url::Place;
use super::value::Unreadable;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Trouble {
    #[error("no connection: {0}")]
    NoConnection(String),
    #[error("logging in failed: check the user and the password")]
    Login,
    #[error("the connection broke before the answer came")]
    Broken,
    #[error("no answer in time")]
    TimedOut,
    #[error("the server refused with {code}")]
    Refused { code: String },
    #[error("the key has moved to another server of the cluster")]
    Elsewhere { to: Place, ask: bool },
    #[error("no server of the cluster answers for the key")]
    NoOwner,
    #[error("the sentinels know no master of this name")]
    NoMaster,
    #[error("{acked} of {wanted} replicas confirmed in time")]
    Replicas { acked: i64, wanted: u32 },
    #[error("the server's answer is not understood")]
    Odd,
}

/// What to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Nothing: tell the caller.
    None,
    /// Ask again at once, wherever the key is now: repeating is safe.
    Again,
    /// Ask again a little later.
    Later,
    /// Ask that server.
    There { to: Place, ask: bool },
}

impl Trouble {
    /// What kept us from connecting. Only the kind of trouble is told: a message of the system
    /// may name the address.
    pub(super) fn connecting(error: &RedisError) -> Self {
        let trouble = Self::asking(error);
        if trouble == Self::Broken {
            return Self::NoConnection(kind_of(error));
        }
        if trouble == Self::TimedOut {
            return Self::NoConnection("timed out".to_owned());
        }
        trouble
    }

    /// What kept an answer from coming.
    pub(super) fn asking(error: &RedisError) -> Self {
        if error.is_timeout() {
            return Self::TimedOut;
        }
        if error.kind() == ErrorKind::AuthenticationFailed {
            return Self::Login;
        }
        match error.code() {
            Some(code) => Self::refused(code, error.detail()),
            None => Self::Broken,
        }
    }

    /// What is in an answer that is a refusal.
    pub(super) fn answered(error: &ServerError) -> Self {
        Self::refused(error.code(), error.details())
    }

    fn refused(code: &str, detail: Option<&str>) -> Self {
        if let "MOVED" | "ASK" = code
            && let Some(to) = detail.and_then(redirection)
        {
            let ask = code == "ASK";
            return Self::Elsewhere { to, ask };
        }
        if let "WRONGPASS" | "NOAUTH" = code {
            return Self::Login;
        }
        // Before 7.0, what a command of a script was refused with is in the text only.
        let inner = ["OOM", "WRONGTYPE", "READONLY"].into_iter().find(|inner| {
            code == "ERR" && detail.is_some_and(|detail| detail.contains(&format!(" {inner} ")))
        });
        Self::Refused {
            code: inner.unwrap_or(code).to_owned(),
        }
    }

    pub(super) fn is_refusal_with(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { code } if code == wanted)
    }

    /// Whether the server is no longer the one to write to.
    pub(super) fn is_demotion(&self) -> bool {
        self.is_refusal_with("READONLY") || self.is_refusal_with("UNBLOCKED")
    }

    pub(super) fn remedy(&self) -> Remedy {
        match self {
            Self::Broken | Self::NoConnection(_) => Remedy::Again,
            Self::NoOwner => Remedy::Later,
            Self::Elsewhere { to, ask } => Remedy::There {
                to: to.clone(),
                ask: *ask,
            },
            Self::Refused { code } => match code.as_str() {
                "READONLY" | "UNBLOCKED" => Remedy::Again,
                "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "LOADING" => {
                    Remedy::Later
                }
                _ => Remedy::None,
            },
            Self::Login | Self::TimedOut | Self::NoMaster | Self::Replicas { .. } | Self::Odd => {
                Remedy::None
            }
        }
    }
}

/// The trouble in a value, if it is a refusal.
pub(super) fn refusal(value: &Value) -> Option<Trouble> {
    if let Value::ServerError(error) = value {
        Some(Trouble::answered(error))
    } else {
        None
    }
}

/// The host and port after the number of the hash slot.
fn redirection(detail: &str) -> Option<Place> {
    let (host, port) = detail.split_whitespace().nth(1)?.rsplit_once(':')?;
    // A server that does not know its own name: where the key is has to be learned anew.
    if host.is_empty() {
        return None;
    }
    Some(Place {
        host: host.to_owned(),
        port: port.parse().ok()?,
    })
}

fn kind_of(error: &RedisError) -> String {
    use std::error::Error as _;
    let io = error.source().and_then(|source| {
        source.downcast_ref::<std::io::Error>().or_else(|| {
            source
                .downcast_ref::<std::sync::Arc<std::io::Error>>()
                .map(|it| &**it)
        })
    });
    match io {
        Some(io) => io.kind().to_string(),
        None => error.category().to_owned(),
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        let kind = if trouble.is_refusal_with("OOM") {
            StoreErrorKind::Full
        } else if trouble.is_refusal_with("WRONGTYPE") {
            StoreErrorKind::Corrupt
        } else {
            StoreErrorKind::Unavailable
        };
        Self::new(NAME, kind).caused_by(trouble)
    }
}

impl From<Unreadable> for StoreError {
    fn from(unreadable: Unreadable) -> Self {
        Self::new(NAME, StoreErrorKind::Corrupt).caused_by(unreadable)
    }
}
