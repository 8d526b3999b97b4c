//! Records that were over when a claim replaced them: no sweep finds them any more, so the next one of
//! this process hands them over too.

use std::sync::Mutex;

use onlyonce_core::operate::Ended;

use super::lock;

/// How many are kept for the next sweep; it comes every few minutes. Further ones are told by nobody.
const REPLACED_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Replaced(Mutex<Vec<Ended>>);

impl Replaced {
    /// Keeps one for the next sweep. Its answer is read for what it made alone, and may be large.
    pub(crate) fn add(&self, mut ended: Ended) {
        let bytes = ended.response.as_ref().map_or(0, |it| it.bytes());
        if bytes > Ended::RESPONSE_BYTES_MAX {
            ended.response = None;
        }
        let mut replaced = lock(&self.0);
        if replaced.len() < REPLACED_MAX {
            replaced.push(ended);
        }
    }

    /// All of them, for one sweep.
    pub(crate) fn take(&self) -> Vec<Ended> {
        std::mem::take(&mut lock(&self.0))
    }
}
