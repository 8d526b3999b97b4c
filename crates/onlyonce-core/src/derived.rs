//! Ids for the world outside: derived from a slot, so that every attempt at an operation, from
//! every process on the store, carries the same one to whatever it calls.

use std::fmt;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::slot::Slot;

/// Keeps these ids apart from every other digest of a slot.
const DOMAIN: &[u8] = b"onlyonce derived id 1";

/// An id that depends on the slot and a name, and on nothing else: not on the attempt, the process
/// or the time. A slot is a keyed digest, so the id reveals neither the client's key nor the slot.
///
/// It is written as a UUID (version 8 of RFC 9562): 36 characters that every service takes as a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DerivedId(Uuid);

impl DerivedId {
    /// The id of the operation itself.
    pub fn of_operation(slot: &Slot) -> Self {
        Self::derive(b"o", "", slot)
    }

    /// The id of one of several things that the operation does elsewhere, told apart by `name`.
    pub fn of_downstream(slot: &Slot, name: &str) -> Self {
        Self::derive(b"d", name, slot)
    }

    /// The name has its length before it, so the parts cannot shift.
    fn derive(purpose: &[u8; 1], name: &str, slot: &Slot) -> Self {
        let mut digest = Sha256::new();
        digest.update(DOMAIN);
        digest.update(purpose);
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
        digest.update(slot.as_bytes());
        let digest: [u8; 32] = digest.finalize().into();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The id as a UUID; as text it is its [`Display`](fmt::Display).
    pub fn uuid(&self) -> Uuid {
        self.0
    }
}

impl fmt::Display for DerivedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for DerivedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DerivedId({})", self.0)
    }
}
