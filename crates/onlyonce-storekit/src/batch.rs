//! Gathers what is asked at the same time, so that one statement or one fsync carries many
//! requests. Nobody waits for more to come: a lone request goes at once, and what arrives while a
//! worker is busy goes together next.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc, oneshot};

/// Something asked, and where its answer goes.
pub struct Asked<Q, A> {
    /// What was asked.
    pub question: Q,
    answer: oneshot::Sender<A>,
    /// Where it was asked, if a task did.
    runtime: Option<Handle>,
}

impl<Q, A> Asked<Q, A> {
    fn by_a_task(question: Q) -> (Self, oneshot::Receiver<A>) {
        let (answer, answered) = oneshot::channel();
        let asked = Self {
            question,
            answer,
            runtime: Handle::try_current().ok(),
        };
        (asked, answered)
    }

    /// Answers. The caller may have gone away; then nobody hears it.
    pub fn answer(self, answer: A) {
        drop(self.answer.send(answer));
    }
}

/// Answers many from outside of their runtimes. Waking a task from there costs a system call, so
/// each runtime is told once, and wakes its tasks by itself.
pub fn answer_all<Q, A: Send + 'static>(answers: impl Iterator<Item = (Asked<Q, A>, A)>) {
    let mut runtimes: Vec<(Handle, Answers<A>)> = Vec::new();
    for (asked, answer) in answers {
        let Some(runtime) = asked.runtime else {
            drop(asked.answer.send(answer));
            continue;
        };
        let found = runtimes.iter().position(|(it, _)| it.id() == runtime.id());
        let at = found.unwrap_or_else(|| {
            runtimes.push((runtime, Answers(Vec::new())));
            runtimes.len() - 1
        });
        runtimes[at].1.0.push((asked.answer, answer));
    }
    for (runtime, answers) in runtimes {
        if answers.0.len() == 1 {
            answers.give();
        } else {
            runtime.spawn(async move { answers.give() });
        }
    }
}

/// Answers, and where each goes.
struct Answers<A>(Vec<(oneshot::Sender<A>, A)>);

impl<A> Answers<A> {
    fn give(self) {
        for (to, answer) in self.0 {
            drop(to.send(answer));
        }
    }
}

/// The asking side: hands questions to workers that take them in batches.
pub struct Gatherer<Q, A> {
    queue: mpsc::UnboundedSender<Asked<Q, A>>,
}

/// What was asked and not taken yet.
pub type Waiting<Q, A> = mpsc::UnboundedReceiver<Asked<Q, A>>;

impl<Q: Send + 'static, A: Send + 'static> Gatherer<Q, A> {
    /// A gatherer and its queue, for a worker of one's own: see
    /// [`blocking_recv_many`](mpsc::UnboundedReceiver::blocking_recv_many).
    pub fn new() -> (Self, Waiting<Q, A>) {
        let (queue, waiting) = mpsc::unbounded_channel();
        (Self { queue }, waiting)
    }

    /// [`ask`](Self::ask) for a thread that is no task.
    pub fn ask_blocking(&self, question: Q) -> Option<A> {
        let (answer, answered) = oneshot::channel();
        let asked = Asked {
            question,
            answer,
            runtime: None,
        };
        self.queue.send(asked).ok()?;
        answered.blocking_recv().ok()
    }

    /// A gatherer with `workers` tasks, each of which hands batches of at most `batch_max` to
    /// `work`. They end when the gatherer is dropped and its queue is empty.
    pub fn spawn<W, F>(workers: usize, batch_max: usize, work: W) -> Self
    where
        W: Fn(Vec<Asked<Q, A>>) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send,
    {
        let (gatherer, waiting) = Self::new();
        let waiting = Arc::new(Mutex::new(waiting));
        let work = Arc::new(work);
        for _ in 0..workers {
            let (waiting, work) = (Arc::clone(&waiting), Arc::clone(&work));
            tokio::spawn(async move {
                loop {
                    let mut batch = Vec::new();
                    let taken = waiting.lock().await.recv_many(&mut batch, batch_max).await;
                    if taken == 0 {
                        break;
                    }
                    work(batch).await;
                }
            });
        }
        gatherer
    }

    /// Asks, and waits for the answer; nothing if the worker ended before it gave one. What was
    /// asked is done even if the caller goes away.
    pub async fn ask(&self, question: Q) -> Option<A> {
        let (asked, answered) = Asked::by_a_task(question);
        self.queue.send(asked).ok()?;
        answered.await.ok()
    }
}
