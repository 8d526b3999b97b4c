//! What is on its way: which answers the server owes to whom, and which calls the client still
//! waits for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::message::{Id, Reply};

/// Lists of tools that the client has asked for and the server has not sent yet. Beyond it, a list
/// reaches the client as it is.
const LISTS_MAX: usize = 1000;

/// Names a call of this session: unlike its id, which is the client's to choose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallNumber(pub(crate) u64);

/// What became of a request of ours. One whose answer was lost is dropped.
pub(crate) enum Heard {
    Reply(Reply),
    /// It certainly did not reach the server.
    NotSent,
}

#[derive(Default)]
pub(crate) struct Pending {
    /// Requests of ours.
    asked: Mutex<Asked>,
    /// Lists of tools for the client, by the ids that it chose; an id may be there several times.
    lists: Mutex<Vec<Id>>,
    /// Calls of ours that the client still waits for. One without an id is waited for by nobody,
    /// and is here until it is under way.
    open: Mutex<BTreeMap<CallNumber, Option<Id>>>,
}

#[derive(Default)]
struct Asked {
    is_server_gone: bool,
    replies: BTreeMap<Id, oneshot::Sender<Heard>>,
}

impl Pending {
    /// Notes a request of ours; nothing if no answer will come.
    pub(crate) fn ask(&self, id: &Id) -> Option<oneshot::Receiver<Heard>> {
        let mut asked = lock(&self.asked);
        if asked.is_server_gone {
            return None;
        }
        let (reply, answered) = oneshot::channel();
        asked.replies.insert(id.clone(), reply);
        Some(answered)
    }

    /// Who waits for the answer to a request of ours.
    pub(crate) fn asked(&self, id: &Id) -> Option<oneshot::Sender<Heard>> {
        lock(&self.asked).replies.remove(id)
    }

    /// The server is gone: what it owes, it owes forever.
    pub(crate) fn server_gone(&self) {
        let mut asked = lock(&self.asked);
        asked.is_server_gone = true;
        asked.replies.clear();
    }

    /// Notes that the client asked for a list of tools.
    pub(crate) fn list(&self, id: Id) {
        let mut lists = lock(&self.lists);
        if lists.len() < LISTS_MAX {
            lists.push(id);
        }
    }

    /// Whether this answers a list of tools that the client asked for.
    pub(crate) fn is_list(&self, id: &Id) -> bool {
        let mut lists = lock(&self.lists);
        let found = lists.iter().position(|listed| listed == id);
        found.map(|at| lists.swap_remove(at)).is_some()
    }

    pub(crate) fn open(&self, number: CallNumber, id: Option<Id>) {
        lock(&self.open).insert(number, id);
    }

    /// Ends a call; nothing if the client cancelled it.
    pub(crate) fn close(&self, number: CallNumber) -> Option<Option<Id>> {
        lock(&self.open).remove(&number)
    }

    /// The client does not wait any more for its calls of this id; returns whether there were any.
    pub(crate) fn cancel(&self, id: &Id) -> bool {
        let mut open = lock(&self.open);
        let before = open.len();
        open.retain(|_, waiting| waiting.as_ref() != Some(id));
        open.len() < before
    }
}

/// Locks, also after a panic elsewhere: every critical section leaves its data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
