//! Whether a ring is the right one for a store, before the first record says so: the store keeps a
//! digest of the key it was first sealed with. When that key is retired, the digest of a later one
//! takes its place, under a name that only a ring that knows of the retired key asks for.

use onlyonce_core::Operate;

use crate::OpenError;

use super::NAME;
use super::ring::{KeyRing, is_key_id};
use super::ring_key::RingKey;

const AGREED: &str = "seal-check";

pub(super) async fn check(operate: &dyn Operate, ring: &KeyRing) -> Result<(), OpenError> {
    let offer = line(ring.first());
    let mut name = AGREED.to_owned();
    for _ in 0..=ring.retired().len() {
        let agreed = operate.agree(&name, offer.as_bytes()).await?;
        let agreed = String::from_utf8_lossy(&agreed);
        let id = agreed.split(' ').next().unwrap_or_default();
        match ring.get(id) {
            Some(key) if line(key) == agreed => return Ok(()),
            Some(_) => {
                return Err(refused(format!(
                    "it is sealed with another key than the one that is called `{id}` in the ring: restore that one"
                )));
            }
            None if ring.retired().iter().any(|retired| retired == id) => {
                name = format!("{AGREED}:{id}");
            }
            None if !is_key_id(id) => {
                return Err(refused(format!(
                    "what it keeps as `{name}` cannot be read: restore it"
                )));
            }
            None => {
                return Err(refused(format!(
                    "it is sealed with key `{id}`, which is not in the ring: add it back, or write `{id} retired` if no record needs it any more"
                )));
            }
        }
    }
    Err(refused(
        "every key it was sealed with is retired in the ring: one of them must be there".to_owned(),
    ))
}

/// A key as the store remembers it.
fn line(key: &RingKey) -> String {
    let digest: String = key.check().iter().map(|it| format!("{it:02x}")).collect();
    format!("{} {digest}", key.id())
}

fn refused(why: String) -> OpenError {
    OpenError::Refused { store: NAME, why }
}
