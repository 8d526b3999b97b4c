//! One server: its shared connections, who listens to it, and how its replicas are waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::redis::{Cmd, Pipeline, Value};

use super::dial::Dial;
use super::ear::Ear;
use super::link::Link;
use super::trouble::{Remedy, Trouble, refusal};
use super::url::{Settings, Wait};
use onlyonce_storekit::batch::{Asked, Gatherer};

/// So many waiting requests share one WAIT.
const WAIT_BATCH_MAX: usize = 256;

pub(super) struct Node {
    lines: Vec<Line>,
    next: AtomicUsize,
    wait: Option<Wait>,
    pub(super) ear: Ear,
    pub(super) dial: Dial,
}

struct Line {
    link: Arc<Link>,
    /// Where replicas are waited for, WAIT holds up everything behind it on its connection. So
    /// what is asked meanwhile is gathered, and all of it is covered by the next one.
    confirmed: Option<Gatherer<Arc<Pipeline>, Confirmed>>,
}

/// The answers, and how many replicas have what was written.
type Confirmed = Result<(Vec<Value>, Result<i64, Trouble>), Trouble>;

/// How something is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// An answer that replicas have too, where they are waited for.
    Confirmed,
    /// Any answer of the master.
    Plain,
}

impl Node {
    pub(super) fn new(dial: Dial, settings: &Settings) -> Self {
        let lines = (0..settings.connections)
            .map(|_| Line::new(Arc::new(Link::new(dial.clone())), settings))
            .collect();
        Self {
            lines,
            next: AtomicUsize::new(0),
            wait: settings.wait,
            ear: Ear::new(dial.clone()),
            dial,
        }
    }

    /// Sends all commands in one go, over the connection whose turn it is.
    pub(super) async fn ask(
        &self,
        commands: &Arc<Pipeline>,
        want: Want,
    ) -> Result<Vec<Value>, Trouble> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.lines.len();
        let line = &self.lines[turn];
        let (Want::Confirmed, Some(confirmed), Some(wait)) = (want, &line.confirmed, self.wait)
        else {
            return line.link.ask(commands).await;
        };
        let asked = confirmed.ask(Arc::clone(commands)).await;
        let (answers, acked) = asked.unwrap_or(Err(Trouble::Broken))?;
        // What another server has to answer, the replicas of this one need not confirm.
        let mut refusals = answers.iter().filter_map(refusal);
        if refusals.any(|trouble| trouble.remedy() != Remedy::None) {
            return Ok(answers);
        }
        match acked? {
            acked if acked >= i64::from(wait.replicas) => Ok(answers),
            acked => Err(Trouble::Replicas {
                acked,
                wanted: wait.replicas,
            }),
        }
    }
}

impl Line {
    fn new(link: Arc<Link>, settings: &Settings) -> Self {
        let confirmed = settings.wait.map(|wait| {
            let mut command = Cmd::new();
            let millis = u64::try_from(wait.within.as_millis()).unwrap_or(u64::MAX);
            command.arg("WAIT").arg(wait.replicas).arg(millis);
            let link = Arc::clone(&link);
            Gatherer::spawn(1, WAIT_BATCH_MAX, move |batch| {
                let (link, command) = (Arc::clone(&link), command.clone());
                async move { confirm(&link, command, batch).await }
            })
        });
        Self { link, confirmed }
    }
}

/// Sends a whole batch and one WAIT behind it: that waits for all writes before it.
async fn confirm(link: &Link, wait: Cmd, batch: Vec<Asked<Arc<Pipeline>, Confirmed>>) {
    let mut commands = Pipeline::with_capacity(2 * batch.len() + 1);
    for asked in &batch {
        for command in asked.question.cmd_iter() {
            commands.add_command(command.clone());
        }
    }
    commands.add_command(wait);
    let answered = link.ask(&commands).await;
    let (mut answers, acked) = match answered {
        Ok(mut answers) => {
            let acked = acked(answers.pop());
            (answers.into_iter(), acked)
        }
        Err(trouble) => {
            for asked in batch {
                asked.answer(Err(trouble.clone()));
            }
            return;
        }
    };
    for asked in batch {
        let own = answers.by_ref().take(asked.question.len()).collect();
        asked.answer(Ok((own, acked.clone())));
    }
}

fn acked(answer: Option<Value>) -> Result<i64, Trouble> {
    match answer {
        Some(Value::Int(acked)) => Ok(acked),
        Some(Value::ServerError(error)) => Err(Trouble::answered(&error)),
        Some(_) | None => Err(Trouble::Odd),
    }
}
