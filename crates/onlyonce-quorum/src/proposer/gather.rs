//! Asks all servers at once, and goes on when enough have answered. The others are heard to their
//! end, so that what was asked of them reaches them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use crate::acceptor::{Acceptor, Fault};

/// How long a majority that disagrees is given for the others to settle it.
const PATIENCE: Duration = Duration::from_millis(20);

/// What is still needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    More,
    /// More would help, but not for long.
    Patience,
    Nothing,
}

impl Need {
    pub(super) fn more_unless(is_enough: bool) -> Self {
        if is_enough { Self::Nothing } else { Self::More }
    }
}

/// What was answered, and why the others did not.
pub(super) struct Gathered<R> {
    pub(super) answers: Vec<R>,
    pub(super) faults: Vec<Fault>,
}

pub(super) async fn gather<R, F>(
    acceptors: &[Arc<dyn Acceptor>],
    ask: impl Fn(Arc<dyn Acceptor>) -> F,
    need: impl Fn(&[R]) -> Need,
) -> Gathered<R>
where
    R: Send + 'static,
    F: Future<Output = Result<R, Fault>> + Send + 'static,
{
    let mut asked: FuturesUnordered<BoxFuture<'static, _>> = acceptors
        .iter()
        .map(|acceptor| Box::pin(ask(Arc::clone(acceptor))) as _)
        .collect();
    let mut gathered = Gathered {
        answers: Vec::with_capacity(acceptors.len()),
        faults: Vec::new(),
    };
    loop {
        let next = match need(&gathered.answers) {
            Need::Nothing => break,
            Need::More => asked.next().await,
            Need::Patience => match tokio::time::timeout(PATIENCE, asked.next()).await {
                Ok(next) => next,
                Err(_) => break,
            },
        };
        match next {
            Some(Ok(answer)) => gathered.answers.push(answer),
            Some(Err(fault)) => gathered.faults.push(fault),
            None => break,
        }
        let left = asked.len();
        let majority = acceptors.len() / 2 + 1;
        if gathered.answers.len() + left < majority {
            break;
        }
    }
    if !asked.is_empty() {
        tokio::spawn(async move { while asked.next().await.is_some() {} });
    }
    gathered
}
