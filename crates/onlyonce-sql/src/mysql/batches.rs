//! Asks what was gathered: in one round trip, again where transactions were in each other's way,
//! in halves where one row spoils it for the others.

use std::sync::Arc;

use super::server::Server;
use super::trouble::{NAME, Then};
use super::verbs::{Answer, Verb};
use onlyonce_core::{StoreError, StoreErrorKind};
use onlyonce_storekit::batch::{Asked, Gatherer};

pub(super) type Gathered<V> = Gatherer<V, Answer<V>>;
type Batch<V> = Vec<Asked<V, Answer<V>>>;

/// How large one text may be; what does not fit goes next.
const BATCH_BYTES_MAX: usize = 2 << 20;

/// Gathers questions of one kind, with `workers` batches on their way at the same time.
pub(super) fn gather<V: Verb>(
    server: &Arc<Server>,
    workers: usize,
    batch_max: usize,
) -> Gathered<V> {
    let server = Arc::clone(server);
    Gatherer::spawn(workers, batch_max, move |batch| {
        let server = Arc::clone(&server);
        async move { run(&server, batch).await }
    })
}

/// Asks, and waits for the answer.
pub(super) async fn ask<V: Verb>(gathered: &Gathered<V>, question: V) -> Answer<V> {
    let ended = || StoreError::new(NAME, StoreErrorKind::Unavailable);
    gathered.ask(question).await.ok_or_else(ended)?
}

async fn run<V: Verb>(server: &Server, mut batch: Batch<V>) {
    batch.sort_by_key(|asked| asked.question.slot());
    // A text of several rows leaves room for what else is in it.
    let most = BATCH_BYTES_MAX.min(server.response_bytes_max() / 2);
    let mut parts = fitting(batch, most);
    while let Some(mut part) = parts.pop() {
        let questions: Vec<_> = part.iter().map(|asked| &asked.question).collect();
        let text = V::text(&server.statements, &questions);
        let trouble = match server.lines.ask(&text).await {
            Ok(answered) => {
                let answers = V::read(server, &questions, &answered);
                for (asked, answer) in part.into_iter().zip(answers) {
                    asked.answer(answer);
                }
                continue;
            }
            Err(trouble) => trouble,
        };
        match trouble.then {
            Then::Split if part.len() > 1 => {
                let half = part.split_off(part.len() / 2);
                parts.extend([half, part]);
            }
            // Something is in somebody's hands: each for itself, so that only one has to wait.
            Then::Locked | Then::Duplicate | Then::Repeat => {
                part.into_iter().for_each(|asked| asked.answer(Ok(None)));
            }
            Then::Split | Then::Reconnect | Then::Tell => {
                for asked in part {
                    asked.answer(Err(trouble.to_error()));
                }
            }
        }
    }
}

/// Parts that fit into one text of `bytes_max` each, the last of them first.
fn fitting<V: Verb>(batch: Batch<V>, bytes_max: usize) -> Vec<Batch<V>> {
    let mut parts: Vec<Batch<V>> = Vec::new();
    let mut room = 0;
    for asked in batch {
        let bytes = asked.question.bytes();
        match parts.last_mut() {
            Some(part) if bytes <= room => part.push(asked),
            Some(_) | None => {
                parts.push(vec![asked]);
                room = bytes_max;
            }
        }
        room = room.saturating_sub(bytes);
    }
    parts.reverse();
    parts
}
