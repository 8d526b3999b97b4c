//! Whether everyone who uses a store addresses the records of a route alike. Where two processes have
//! different scopes for it, a key that ran in one is new in the other, and nothing else would tell.
//!
//! What is agreed on in a store never changes, so each change is a name of its own: the last one that there
//! is counts. A process that finds another scope there notes its own after it: who changed the settings is
//! told once, and processes that differ are told each time one of them starts.

use std::sync::Arc;

use crate::operate::Operate;
use crate::store::StoreError;

use super::Engine;

/// Of a longer one a digest is kept.
const PARTS_BYTES_MAX: usize = 512;
/// More changes of one route's scope are not noted.
const CHANGES_MAX: u32 = 1 << 16;
const DIGEST_BYTES: usize = 16;

impl Engine {
    /// Notes in the store by which `parts` of a request the records of `route` are addressed. Returns the
    /// parts that were noted last, if they are others: then its keys meet none of those. Routes of engines
    /// in different namespaces have nothing to do with each other.
    pub async fn note_scope(
        &self,
        route: &str,
        parts: &str,
    ) -> Result<Option<Arc<str>>, StoreError> {
        let Some(operate) = self.inner.store.operate() else {
            return Ok(None);
        };
        let namespace = &self.inner.namespace;
        let name = self.digest_of(&[namespace.as_bytes(), b"\0", route.as_bytes()].concat());
        let parts = match parts.len() {
            0..=PARTS_BYTES_MAX => parts.to_owned(),
            _ => self.digest_of(parts.as_bytes()),
        };
        let named = |number: u32| format!("scope:{name}:{number}");
        let mut noted = None;
        for number in last_of(operate, &named).await?..CHANGES_MAX {
            let found = match number {
                0 => None,
                _ => operate.agreed(&named(number)).await?,
            };
            if let Some(found) = found {
                if found == parts.as_bytes() {
                    return Ok(noted);
                }
                noted = Some(String::from_utf8_lossy(&found).into());
            }
            // Another process may have been faster: then it is looked at next.
            if operate.agree(&named(number + 1), parts.as_bytes()).await? == parts.as_bytes() {
                return Ok(noted);
            }
        }
        Ok(noted)
    }

    fn digest_of(&self, text: &[u8]) -> String {
        let digest = self.inner.secret.credential(text);
        let digits = digest.iter().take(DIGEST_BYTES);
        digits.map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The number of the last name that there is, 0 if there is none. They follow each other without a gap.
async fn last_of(operate: &dyn Operate, named: &impl Fn(u32) -> String) -> Result<u32, StoreError> {
    let (mut there, mut absent) = (0, 1);
    while absent < CHANGES_MAX && operate.agreed(&named(absent)).await?.is_some() {
        (there, absent) = (absent, 2 * absent);
    }
    while there + 1 < absent {
        let middle = there + (absent - there) / 2;
        match operate.agreed(&named(middle)).await? {
            Some(_) => there = middle,
            None => absent = middle,
        }
    }
    Ok(there)
}
