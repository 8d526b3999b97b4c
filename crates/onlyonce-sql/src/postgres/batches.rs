//! Questions of one verb, asked together: one statement carries many. A batch is in the order of
//! the slots, one row a slot, so that two batches never wait for each other; one bad row does not
//! fail its neighbours.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::Ended;
use onlyonce_core::slot::SlotMap;
use onlyonce_core::{Slot, StoreError};
use sqlx::postgres::PgRow;

use super::arg::Arg;
use super::row;
use super::server::Server;
use super::statements::{Statement, Statements};
use super::trouble::{Then, Trouble};
use onlyonce_storekit::batch::{Asked, Gatherer};

/// How much one statement carries, if it has more than one row.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// How long to wait for whoever has a row in their hands, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(64);
/// How often a batch is repeated that met others in the wrong order.
const REPEATS_MAX: usize = 100;

/// One of the verbs that are asked in batches.
pub(super) trait Verb: Sized + Send + Sync + 'static {
    type Answer: Send + 'static;

    fn statement(statements: &Statements) -> &Statement;

    /// The values for these rows. `again` if somebody had them in their hands before.
    fn args(rows: &[&Self], again: bool) -> Vec<Arg>;

    fn slot(&self) -> Slot;

    /// How many bytes it carries, where that can be many.
    fn bytes(&self) -> usize {
        0
    }

    /// The answer to this question, if it follows from what was answered to another one about the
    /// same slot at the same moment.
    fn follows(&self, _from: &Self::Answer) -> Option<Self::Answer> {
        None
    }

    /// The answer in a row, and whether it ended a claim that others may wait for.
    fn read(&self, row: &PgRow) -> Result<(Self::Answer, bool), StoreError>;

    /// The finished record in a row that was over and is replaced by this.
    fn replaced(&self, _row: &PgRow) -> Option<Ended> {
        None
    }
}

pub(super) type Gathered<V> = Gatherer<V, Result<<V as Verb>::Answer, StoreError>>;
type Batch<V> = Vec<Asked<V, Result<<V as Verb>::Answer, StoreError>>>;

/// A gatherer of this verb.
pub(super) fn gather<V: Verb>(
    server: &Arc<Server>,
    workers: usize,
    batch_max: usize,
) -> Gathered<V> {
    let server = Arc::clone(server);
    Gatherer::spawn(workers, batch_max, move |batch| {
        work(Arc::clone(&server), batch)
    })
}

/// Asks, and waits for the answer.
pub(super) async fn ask<V: Verb>(gathered: &Gathered<V>, what: V) -> Result<V::Answer, StoreError> {
    let answer = gathered.ask(what).await;
    answer.unwrap_or_else(|| Err(Trouble::unavailable(Then::Tell, "shutting down").into()))
}

async fn work<V: Verb>(server: Arc<Server>, batch: Batch<V>) {
    let round = round(&server, batch, false).await;
    if !round.is_over() {
        // The worker goes on: nobody waits behind those who have to wait for others.
        tokio::spawn(async move { finish(&server, round).await });
    }
}

/// Asks again until everyone has an answer, or has waited long enough.
async fn finish<V: Verb>(server: &Server, mut last: Round<V>) {
    let started = server.now();
    let mut pause = PAUSE_MIN;
    while !last.is_over() {
        let again = !last.in_hands.is_empty();
        if again {
            tokio::time::sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
        if server.now().saturating_sub(started) > server.lines.terms().timeout {
            let late = Trouble::locked();
            tell(last.in_hands, &late);
            last.in_hands = Vec::new();
        }
        let mut batch = last.in_hands;
        batch.append(&mut last.later);
        last = round(server, batch, again).await;
    }
}

/// What one round left to the next.
struct Round<V: Verb> {
    /// Rows that somebody else had in their hands, or changed under ours.
    in_hands: Batch<V>,
    /// What did not fit: further questions about the same slots, and too many bytes.
    later: Batch<V>,
}

impl<V: Verb> Round<V> {
    fn is_over(&self) -> bool {
        self.in_hands.is_empty() && self.later.is_empty()
    }
}

async fn round<V: Verb>(server: &Server, mut batch: Batch<V>, again: bool) -> Round<V> {
    batch.sort_by_key(|asked| asked.question.slot());
    let (now, mut later) = fitting(batch);
    let mut in_hands = Vec::new();
    let mut parts = vec![now];
    let mut repeats = 0;
    while let Some(mut part) = parts.pop() {
        let rows: Vec<&V> = part.iter().map(|asked| &asked.question).collect();
        let args = V::args(&rows, again);
        match server
            .lines
            .ask(V::statement(&server.statements), args)
            .await
        {
            Ok(rows) => answer(server, part, &rows, &mut in_hands, &mut later),
            Err(trouble) if trouble.then == Then::Repeat && repeats < REPEATS_MAX => {
                repeats += 1;
                tokio::time::sleep(PAUSE_MIN).await;
                parts.push(part);
            }
            Err(trouble) if trouble.then == Then::Split && part.len() > 1 => {
                let half = part.split_off(part.len() / 2);
                parts.extend([half, part]);
            }
            Err(trouble) => tell(part, &trouble),
        }
    }
    Round { in_hands, later }
}

/// The first question about each slot, as long as there is room, and the others.
fn fitting<V: Verb>(batch: Batch<V>) -> (Batch<V>, Batch<V>) {
    let mut last = None;
    let mut bytes = 0;
    batch.into_iter().partition(|asked| {
        let slot = asked.question.slot();
        let fits = bytes == 0 || bytes + asked.question.bytes() <= BATCH_BYTES_MAX;
        let fitting = fits && last != Some(slot);
        if fitting {
            last = Some(slot);
            bytes += asked.question.bytes();
        }
        fitting
    })
}

fn answer<V: Verb>(
    server: &Server,
    part: Batch<V>,
    rows: &[PgRow],
    in_hands: &mut Batch<V>,
    later: &mut Batch<V>,
) {
    let rows = rows
        .iter()
        .filter_map(|row| Some((row::slot(row).ok()?, row)));
    let rows: SlotMap<&PgRow> = rows.collect();
    let mut answers = SlotMap::default();
    for asked in part {
        let slot = asked.question.slot();
        let Some(row) = rows.get(&slot) else {
            in_hands.push(asked);
            continue;
        };
        let answer = asked.question.read(row);
        if let Ok((_, true)) = answer {
            server.settled(slot);
        }
        if let Some(ended) = asked.question.replaced(row) {
            server.replaced.add(ended);
        }
        match answer {
            Ok((answer, _)) if !later.is_empty() => answers.insert(slot, (asked, answer)),
            answer => {
                asked.answer(answer.map(|(answer, _)| answer));
                None
            }
        };
    }
    for asked in std::mem::take(later) {
        let known = answers.get(&asked.question.slot());
        match known.and_then(|(_, answer)| asked.question.follows(answer)) {
            Some(answer) => asked.answer(Ok(answer)),
            None => later.push(asked),
        }
    }
    for (asked, answer) in answers.into_values() {
        asked.answer(Ok(answer));
    }
}

fn tell<V: Verb>(batch: Batch<V>, trouble: &Trouble) {
    for asked in batch {
        asked.answer(Err(trouble.to_error()));
    }
}
