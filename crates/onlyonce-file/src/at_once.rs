//! A claim that nothing has to wait for is decided and written on its caller's own thread: for a lone
//! request that saves waking the writer and being woken by it. The writer's lock keeps the order: what
//! is decided here is decided between two of its commits. What is asked of the disk goes to the page cache,
//! as the reading of a record does, which is on its caller's thread too.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use onlyonce_core::Claim;

use super::log::Durable;
use super::shared::Shared;
use super::writer::{Answered, Question, Writer};

/// The answer to a claim, if it is that quick. It is not where the writer is at work, where the claim must
/// be durable first, or where the log needs more room before it takes another frame.
pub(super) fn claim(writer: &Mutex<Writer>, shared: &Shared, claim: &Claim) -> Option<Answered> {
    if shared.is_busy.load(Ordering::Relaxed) {
        return None;
    }
    let question = Question::Claim(claim.clone());
    match question.durable() {
        Durable::Later => {}
        Durable::Now => return None,
    }
    // Also not after a panic: the writer's own thread tells of that.
    let mut writer = writer.try_lock().ok()?;
    if !writer.log.is_quick() {
        return None;
    }
    writer.answers(&[&question], Durable::Later).pop()
}
