//! What kind of actor a caller is, for log and audit, where its name does not say it.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;

use crate::record::ACTOR_TYPES;

const HEADER: &str = "header:";
const CLAIM: &str = "jwt:";

/// What says the type of an actor. What it says counts, whatever the actor's name begins with; a type
/// that is not known is `user`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActorType {
    /// All are of this type.
    Always(&'static str),
    /// A header that something in front sets.
    Header(HeaderName),
    /// A claim of the verified token.
    Claim(String),
}

impl FromStr for ActorType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let known = ACTOR_TYPES.join(", ");
            format!(
                "`{text}` does not say what type of actor callers are: write header:NAME, jwt:CLAIM or one of {known}"
            )
        };
        if let Some(name) = text.strip_prefix(HEADER) {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            return Ok(Self::Header(name));
        }
        if let Some(claim) = text.strip_prefix(CLAIM).filter(|claim| !claim.is_empty()) {
            return Ok(Self::Claim(claim.to_owned()));
        }
        let known = ACTOR_TYPES.into_iter().find(|kind| *kind == text);
        known.map(Self::Always).ok_or_else(wrong)
    }
}

impl fmt::Display for ActorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always(kind) => f.write_str(kind),
            Self::Header(name) => write!(f, "{HEADER}{name}"),
            Self::Claim(claim) => write!(f, "{CLAIM}{claim}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ActorType;

    #[test]
    fn what_says_a_type_can_be_written() {
        for text in ["agent", "user", "header:x-actor-type", "jwt:kind"] {
            assert_eq!(text.parse::<ActorType>().unwrap().to_string(), text);
        }
        for wrong in ["", "robot", "header:", "header:two words", "jwt:"] {
            let told = wrong.parse::<ActorType>().unwrap_err();
            assert!(told.contains("one of agent, human"), "{told}");
        }
    }
}
