//! What is on its way: which answers the server owes to whom, and which calls the client still
//! waits for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

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
    /// Every call of ours until it is over, also when the client does not wait for it any more.
    runs: Mutex<BTreeMap<CallNumber, Run>>,
}

#[derive(Default)]
struct Run {
    /// The client wants it to stop.
    stop: CancellationToken,
    /// Its id at the server, once it was sent.
    at_server: Option<Id>,
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

    /// The caller that waits for the answer to a request of ours.
    pub(crate) fn asked(&self, id: &Id) -> Option<oneshot::Sender<Heard>> {
        lock(&self.asked).replies.remove(id)
    }

    /// The server is gone: what it owes, it owes forever.
    pub(crate) fn server_gone(&self) {
        let mut asked = lock(&self.asked);
        asked.is_server_gone = true;
        asked.replies.clear();
    }

    /// Whether the server is known to be gone.
    pub(crate) fn is_server_gone(&self) -> bool {
        lock(&self.asked).is_server_gone
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
        lock(&self.runs).insert(number, Run::default());
    }

    /// Ends a call; nothing if the client cancelled it.
    pub(crate) fn close(&self, number: CallNumber) -> Option<Option<Id>> {
        lock(&self.open).remove(&number)
    }

    /// The client does not wait any more for its calls of this id; returns which they were.
    pub(crate) fn cancel(&self, id: &Id) -> Vec<CallNumber> {
        let mut open = lock(&self.open);
        let is_it = |waiting: &Option<Id>| waiting.as_ref() == Some(id);
        let found = open.iter().filter(|(_, waiting)| is_it(waiting));
        let found: Vec<CallNumber> = found.map(|(number, _)| *number).collect();
        for number in &found {
            open.remove(number);
        }
        found
    }

    /// A call is to stop; returns its id at the server, if it is there.
    pub(crate) fn stop(&self, number: CallNumber) -> Option<Id> {
        let runs = lock(&self.runs);
        let run = runs.get(&number)?;
        run.stop.cancel();
        run.at_server.clone()
    }

    /// Tells when a call is to stop.
    pub(crate) fn stopping(&self, number: CallNumber) -> CancellationToken {
        let runs = lock(&self.runs);
        runs.get(&number)
            .map(|run| run.stop.clone())
            .unwrap_or_default()
    }

    /// A call was sent under this id; returns whether it was to stop before that.
    pub(crate) fn sent(&self, number: CallNumber, id: &Id) -> bool {
        let mut runs = lock(&self.runs);
        let Some(run) = runs.get_mut(&number) else {
            return false;
        };
        run.at_server = Some(id.clone());
        run.stop.is_cancelled()
    }

    /// A call is over.
    pub(crate) fn forget(&self, number: CallNumber) {
        lock(&self.runs).remove(&number);
    }
}

/// Locks, also after a panic elsewhere: every critical section leaves its data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
