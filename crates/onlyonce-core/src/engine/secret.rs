//! Agreement on the slot secret: configured, or created once in the store by whoever comes first.
//! Processes that disagree would not find each other's records, so a mismatch refuses to start.

use sha2::{Digest, Sha256};

use crate::entropy::Entropy;
use crate::slot::SlotSecret;
use crate::store::Store;

use super::OpenError;

const NAME: &str = "slot-secret";
/// The store keeps the secret itself.
const KEPT: u8 = b'S';
/// The secret is configured; the store keeps only a digest, to notice another one.
const CONFIGURED: u8 = b'C';

pub(super) async fn agree(
    store: &dyn Store,
    configured: Option<SlotSecret>,
    entropy: &dyn Entropy,
) -> Result<SlotSecret, OpenError> {
    let Some(operate) = store.operate() else {
        return configured.ok_or(OpenError::SecretMissing);
    };
    let offer = match &configured {
        Some(secret) => tagged(CONFIGURED, &digest(secret)),
        None => tagged(KEPT, SlotSecret::generate(entropy).expose()),
    };
    let agreed = operate.agree(NAME, &offer).await?;
    match (agreed.split_first(), configured) {
        (Some((&KEPT, kept)), configured) => {
            let kept: [u8; SlotSecret::BYTES] =
                kept.try_into().map_err(|_| OpenError::SecretUnreadable)?;
            match configured {
                Some(secret) if *secret.expose() != kept => Err(OpenError::SecretMismatch),
                _ => Ok(SlotSecret::from_bytes(kept)),
            }
        }
        (Some((&CONFIGURED, kept)), Some(secret)) if kept == digest(&secret) => Ok(secret),
        (Some((&CONFIGURED, _)), _) => Err(OpenError::SecretMismatch),
        _ => Err(OpenError::SecretUnreadable),
    }
}

fn tagged(tag: u8, bytes: &[u8]) -> Vec<u8> {
    [&[tag], bytes].concat()
}

fn digest(secret: &SlotSecret) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"onlyonce slot secret");
    hash.update(secret.expose());
    hash.finalize().into()
}
