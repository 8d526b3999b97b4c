//! Wishes to enqueue that come at the same time share a transaction, and with it the wait for the
//! disk. Each is answered on its own, once it is on disk.

use std::sync::{Mutex, PoisonError};

use onlyonce_core::Key;
use sqlx::SqliteConnection;
use tokio::sync::oneshot;

use super::enqueue::Room;
use super::error::QueueError;
use super::group::{Group, GroupId};
use super::{Enqueued, OperationId, Queue, begin, outcome};
use crate::keys::Keys;
use crate::operation::Operation;

/// Wishes that share a transaction.
const WISHES_MAX: usize = 1000;

/// What somebody wants to be queued.
pub(super) enum Wanted {
    /// One operation, under a key that may be known.
    Named(Key, Operation),
    /// One operation, unless one that means the same is known.
    UnlessKnown(Key, Operation),
    /// Operations under new keys, all or none.
    All(Vec<(Key, Operation)>),
    Group(Group),
}

/// What became of it.
pub(super) enum Given {
    One(Enqueued),
    All(Vec<OperationId>),
    Group(GroupId),
}

type Answer = Result<Given, QueueError>;

struct Wish {
    wanted: Wanted,
    answer: oneshot::Sender<Answer>,
}

/// Wishes that wait for the database.
#[derive(Default)]
pub(super) struct Intake {
    wishes: Mutex<Vec<Wish>>,
}

impl Intake {
    /// Adds a wish; returns whether it is the first, so that somebody has to see to them.
    fn add(&self, wish: Wish) -> bool {
        let mut wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        wishes.push(wish);
        wishes.len() == 1
    }

    /// Forgets all wishes: waiting callers get an error that the queue was stopped.
    fn clear(&self) {
        let mut wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        wishes.clear();
    }

    fn take(&self) -> Vec<Wish> {
        let mut wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        let count = wishes.len().min(WISHES_MAX);
        wishes.drain(..count).collect()
    }
}

/// Makes sure that no caller waits for a task that was stopped.
struct Attendant<'a> {
    intake: &'a Intake,
    is_done: bool,
}

impl Drop for Attendant<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.intake.clear();
        }
    }
}

impl Queue {
    /// Has something queued. It is on disk when this returns; if this is dropped, it may be.
    pub(super) async fn put_in(&self, wanted: Wanted) -> Answer {
        let (answer, given) = oneshot::channel();
        if self.shared.intake.add(Wish { wanted, answer }) {
            // In a task of its own: who asks first may go away, and the others must not wait for it.
            tokio::spawn(self.clone().take_in());
        }
        given.await.unwrap_or(Err(QueueError::Stopped))
    }

    /// Queues what is wanted until nothing is. Wishes gather while the disk is busy.
    async fn take_in(self) {
        let mut attendant = Attendant {
            intake: &self.shared.intake,
            is_done: false,
        };
        loop {
            let mut database = self.shared.database.lock().await;
            let wishes = self.shared.intake.take();
            if wishes.is_empty() {
                attendant.is_done = true;
                return;
            }
            let (wanted, answers): (Vec<_>, Vec<_>) = wishes
                .into_iter()
                .map(|wish| (wish.wanted, wish.answer))
                .unzip();
            let given = self.take_in_all(&mut database, &wanted).await;
            drop(database);
            self.shared.changed.send_replace(());
            for (answer, given) in answers.into_iter().zip(given) {
                // Who asked may have gone away.
                drop(answer.send(given));
            }
        }
    }

    /// All in one transaction; if that fails, each in its own, so that each caller gets its own result.
    async fn take_in_all(&self, database: &mut SqliteConnection, wanted: &[Wanted]) -> Vec<Answer> {
        let failed = match self.take_in_once(database, wanted).await {
            Ok(given) => return given,
            Err(failed) => failed,
        };
        if wanted.len() == 1 {
            return vec![Err(failed)];
        }
        let mut given = Vec::with_capacity(wanted.len());
        for one in wanted {
            let alone = self.take_in_once(database, std::slice::from_ref(one)).await;
            given.push(alone.and_then(|mut given| given.pop().unwrap_or(Err(QueueError::Stopped))));
        }
        given
    }

    /// An error is about the database; what is wrong with one wish is its own answer.
    async fn take_in_once(
        &self,
        database: &mut SqliteConnection,
        wanted: &[Wanted],
    ) -> Result<Vec<Answer>, QueueError> {
        let mut transaction = begin(&self.shared.folder, database).await?;
        outcome::sweep(&mut transaction, self.log_start()).await?;
        let mut room = Room::left(&mut transaction, &self.shared.options).await?;
        let mut written = Vec::with_capacity(wanted.len());
        for one in wanted {
            match self.write(&mut transaction, &mut room, one).await {
                Err(error) if !error.is_about_the_wish() => return Err(error),
                answer => written.push(answer),
            }
        }
        let given = self.write_plain(&mut transaction, written).await?;
        self.commit(transaction).await?;
        Ok(given)
    }
}

impl Wanted {
    /// One operation under a new key.
    pub(super) fn new(keys: &Keys, operation: Operation) -> Self {
        Self::All(vec![(keys.v4(), operation)])
    }
}
