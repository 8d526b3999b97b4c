//! What a function of the host returned: JSON, or that its host has none for it. The core then stores that it
//! ran, which is what it does with any value that cannot be written.

use onlyonce_core::engine::job::Ran;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use serde_json::value::RawValue;

use crate::run::RunFailure;

pub(crate) enum HostValue {
    Written(Box<RawValue>),
    Unwritable(String),
}

impl Serialize for HostValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Written(json) => json.serialize(serializer),
            Self::Unwritable(why) => Err(ser::Error::custom(why)),
        }
    }
}

impl<'de> Deserialize<'de> for HostValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::Written)
    }
}

impl HostValue {
    /// What the host gets: JSON, where there is some.
    pub(crate) fn told(ran: Ran<Self>) -> Result<Ran<Box<RawValue>>, RunFailure> {
        match ran.value {
            Self::Written(value) => Ok(Ran {
                value,
                replayed: ran.replayed,
            }),
            Self::Unwritable(why) => Err(RunFailure::NotKept(why)),
        }
    }
}
