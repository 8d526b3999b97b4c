//! Names for operations. A random key is made once, when the operation is, and kept for every
//! retry; a derived one comes from what already names the work: a workflow's step, a queue's job.

use std::fmt::Write as _;
use std::sync::Arc;

use http::HeaderValue;
use onlyonce_core::key::Charset;
use onlyonce_core::{Clock, Entropy, Key, KeyError, KeyRule, OsEntropy, SystemClock};
use sha2::{Digest, Sha256};
use thiserror::Error;
use uuid::Builder;

#[cfg(test)]
mod tests;

/// Every profile takes keys of this length and of letters, digits, `_`, `.` and `-`; only
/// `guardian` wants UUIDs of version 4 and nothing else.
const KEY_BYTES_MAX: usize = 200;

/// Makes random keys.
///
/// ```
/// use onlyonce_client::Keys;
///
/// let keys = Keys::default();
/// assert_eq!(keys.v4().expose().len(), 36);
/// assert!(keys.idem().expose().starts_with("idem_"));
/// ```
#[derive(Clone)]
pub struct Keys {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl Default for Keys {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock::new()), Arc::new(OsEntropy::new()))
    }
}

impl Keys {
    /// Keys from this clock and this randomness.
    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { clock, entropy }
    }

    /// A UUID of version 4: what every service takes.
    pub fn v4(&self) -> Key {
        let mut random = [0; 16];
        self.entropy.fill(&mut random);
        valid(&Builder::from_random_bytes(random).into_uuid().to_string())
    }

    /// A UUID of version 7: later keys sort after earlier ones.
    pub fn v7(&self) -> Key {
        let mut random = [0; 10];
        self.entropy.fill(&mut random);
        let millis = self.clock.wall().as_millis();
        let made = Builder::from_unix_timestamp_millis(millis, &random);
        valid(&made.into_uuid().to_string())
    }

    /// `idem_` and a UUID of version 4.
    pub fn idem(&self) -> Key {
        valid(&format!("idem_{}", self.v4().expose()))
    }
}

/// The key of one step of a workflow: `workflow-{workflow}_step-{step}`. Two different pairs never
/// have the same key.
///
/// ```
/// use onlyonce_client::workflow_key;
///
/// let key = workflow_key("onboard-vendor-123", "set-tax-info").unwrap();
/// assert_eq!(key.expose(), "workflow-onboard-vendor-123_step-set-tax-info");
/// ```
pub fn workflow_key(workflow: &str, step: &str) -> Result<Key, KeyError> {
    let plain = format!(
        "workflow-{}_step-{}",
        escaped(workflow, Underscore::Escaped)?,
        escaped(step, Underscore::Escaped)?
    );
    Ok(short("workflow", plain))
}

/// The key of a queue's job: `job_{id}`. Two different jobs never have the same key, and a job
/// that is delivered again has the same one.
///
/// ```
/// assert_eq!(onlyonce_client::job_key("7f3a").unwrap().expose(), "job_7f3a");
/// ```
pub fn job_key(job: &str) -> Result<Key, KeyError> {
    let plain = format!("job_{}", escaped(job, Underscore::Plain)?);
    Ok(short("job", plain))
}

/// Whether an underscore stands for itself: not where one separates two names.
#[derive(Clone, Copy, PartialEq)]
enum Underscore {
    Plain,
    Escaped,
}

/// A key that would not arrive as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the key would be taken for another one: leave out white space at its ends, a quote at its start, and line breaks"
)]
pub struct KeyNotSendable;

/// The header that a key is sent in. On the way a key loses white space at its ends and quotes around it: one that
/// would be read as another key is refused, for its operation would get the other one's answer.
pub fn key_header(key: &Key) -> Result<HeaderValue, KeyNotSendable> {
    let mut value = HeaderValue::from_str(key.expose()).map_err(|_| KeyNotSendable)?;
    match Key::parse(value.as_bytes(), &KeyRule::any()) {
        Ok(read) if read == *key => {
            value.set_sensitive(true);
            Ok(value)
        }
        Ok(_) | Err(_) => Err(KeyNotSendable),
    }
}

/// Letters, digits and `-` stand for themselves; every other byte is `.` and two hex digits. An
/// empty name is refused: all the work whose name got lost would be one operation.
fn escaped(name: &str, underscore: Underscore) -> Result<String, KeyError> {
    if name.is_empty() {
        return Err(KeyError::Empty);
    }
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'_' if underscore == Underscore::Plain => text.push('_'),
            b'-' => text.push('-'),
            byte if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            byte => write!(text, ".{byte:02x}").expect("a string takes whatever is written"),
        }
    }
    Ok(text)
}

/// A key that is too long for some profile is digested. No plain key begins like a digested one.
fn short(kind: &str, plain: String) -> Key {
    if plain.len() <= KEY_BYTES_MAX {
        return valid(&plain);
    }
    let mut text = format!("{kind}.");
    for byte in Sha256::digest(&plain) {
        write!(text, "{byte:02x}").expect("a string takes whatever is written");
    }
    valid(&text)
}

fn valid(text: &str) -> Key {
    let rule = KeyRule {
        bytes_max: KEY_BYTES_MAX,
        charset: Charset::UrlSafe,
        ..KeyRule::default()
    };
    Key::new(text, &rule).expect("made of characters and of a length that the rule allows")
}
