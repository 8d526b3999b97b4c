//! A worker: a production engine on which callers make random calls, and everything that happens
//! is written down before it can have an effect outside.

use std::future::pending;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onlyonce_core::engine::Who;
use onlyonce_core::{
    Answer, Call, Clock, Engine, Fingerprint, Key, Policy, Reason, Scope, SlotSecret, Store,
    SystemClock, Verdict,
};
use tokio::sync::Semaphore;

use super::clock::{micros, now, sleep_until};
use super::gate::Gate;
use super::handler::Handler;
use super::log::{CallId, Heard, LogWriter, What};
use super::plan::{Order, PAYLOADS, Plan};
use super::watch::{Watched, said};

/// How often a worker looks whether it was held up.
const TICK: Duration = Duration::from_millis(20);
/// Longer than this between two looks is worth a line, in milliseconds.
const LATE_MS: u64 = 70;
/// Between two tries to open the engine while the store is away.
const OPEN_AGAIN: Duration = Duration::from_millis(50);
/// How long a worker waits for its last calls and completions.
const GRACE: Duration = Duration::from_secs(20);

/// Makes the calls of `plan` on `store`, and writes what happens into `log`.
pub async fn work(store: Arc<dyn Store>, plan: Plan, log: &Path) -> io::Result<()> {
    let log = Arc::new(LogWriter::create(log)?);
    work_behind(store, plan, log, Arc::new(Gate::new())).await
}

/// The same behind a gate, by which it can be cut off.
pub(crate) async fn work_behind(
    store: Arc<dyn Store>,
    plan: Plan,
    log: Arc<LogWriter>,
    gate: Arc<Gate>,
) -> io::Result<()> {
    let (node, life) = (plan.node, plan.life);
    let wall = SystemClock::new().wall().as_millis();
    log.note(What::Opened { node, life, wall });
    let heart = tokio::spawn(beat(Arc::clone(&log)));
    let store: Arc<dyn Store> = Arc::new(Watched::new(store, Arc::clone(&log), gate));
    let worker = Arc::new(Worker {
        engine: open(store, &plan).await?,
        base: Policy::default(),
        scope: Scope::new("history").with("run", &plan.run),
        calls: AtomicU32::new(0),
        log: Arc::clone(&log),
        plan,
    });
    if worker.plan.sweep {
        worker.sweep().await;
    } else {
        worker.serve().await;
    }
    worker.engine.shutdown(GRACE).await;
    heart.abort();
    log.note(What::Closed);
    log.end()
}

/// Opens the engine; a store that is away may come back.
async fn open(store: Arc<dyn Store>, plan: &Plan) -> io::Result<Engine> {
    loop {
        let opened = Engine::builder(Arc::clone(&store))
            .secret(SlotSecret::from_bytes(plan.secret))
            .instance(&format!("{}.{}", plan.node, plan.life))
            .open()
            .await;
        match opened {
            Ok(engine) => return Ok(engine),
            Err(error) if now() > plan.open_until() => return Err(io::Error::other(error)),
            Err(_) => tokio::time::sleep(OPEN_AGAIN).await,
        }
    }
}

/// Says when the process was held up: who cannot run cannot renew.
async fn beat(log: Arc<LogWriter>) {
    let mut since = now();
    loop {
        tokio::time::sleep(TICK).await;
        let at = now();
        if at - since > micros(LATE_MS) {
            log.note(What::Late { since });
        }
        since = at;
    }
}

struct Worker {
    engine: Engine,
    log: Arc<LogWriter>,
    base: Policy,
    scope: Scope,
    calls: AtomicU32,
    plan: Plan,
}

impl Worker {
    /// Makes every call when it is due; those that were due before this life are gone.
    async fn serve(self: &Arc<Self>) {
        let mut dice = self.plan.dice();
        let tasks = Arc::new(Semaphore::new(self.plan.tasks as usize));
        let opened = now();
        for number in 0..self.plan.calls {
            let due = self.plan.due(number);
            if due < opened {
                continue;
            }
            sleep_until(due).await;
            let Ok(permit) = Arc::clone(&tasks).acquire_owned().await else {
                return;
            };
            if now() > self.plan.until {
                break;
            }
            let order = self.plan.order(&mut dice, due);
            let worker = Arc::clone(self);
            tokio::spawn(async move {
                worker.ask(order, false).await;
                drop(permit);
            });
        }
        let _ = tokio::time::timeout(GRACE, tasks.acquire_many(self.plan.tasks)).await;
    }

    /// Asks for every key until one payload is answered with something else than "another one".
    async fn sweep(self: &Arc<Self>) {
        let tasks = Arc::new(Semaphore::new(self.plan.tasks as usize));
        for key in 0..self.plan.keys {
            let Ok(permit) = Arc::clone(&tasks).acquire_owned().await else {
                return;
            };
            let worker = Arc::clone(self);
            tokio::spawn(async move {
                for payload in 0..PAYLOADS {
                    let order = worker.plan.last_order(key, payload);
                    let heard = worker.ask(order, true).await;
                    if heard != Some(Heard::Refused(Reason::Mismatch.name().to_owned())) {
                        break;
                    }
                }
                drop(permit);
            });
        }
        let _ = tasks.acquire_many(self.plan.tasks).await;
    }

    /// One call, from its first word to its last.
    async fn ask(&self, order: Order, sweep: bool) -> Option<Heard> {
        let id = CallId {
            node: self.plan.node,
            life: self.plan.life,
            number: self.calls.fetch_add(1, Ordering::Relaxed),
        };
        let call = self.call(&order, id);
        self.log.note(What::Called {
            call: id,
            key: order.key,
            payload: order.payload,
            terms: order.terms,
            by_hand: order.by_hand,
            sweep,
        });
        let handler = Handler::new(Arc::clone(&self.log), id, &order);
        let asking = async {
            if order.by_hand {
                by_hand(&self.engine, call, handler).await
            } else {
                let once = self
                    .engine
                    .once(call, |execution| handler.run(execution))
                    .await;
                heard(&once)
            }
        };
        let heard = tokio::select! {
            biased;
            heard = asking => heard,
            () = leaving(order.hangs_up_after) => {
                self.log.note(What::HungUp { call: id });
                return None;
            }
        };
        self.log.note(What::Heard {
            call: id,
            heard: heard.clone(),
        });
        Some(heard)
    }

    fn call(&self, order: &Order, id: CallId) -> Call {
        let mut digest = [0; 32];
        digest[0] = order.payload;
        let who = Who {
            trace: Some(id.to_string().into()),
            ..Who::doing("history")
        };
        let key = Key::new(&format!("key-{}", order.key), &self.base.key)
            .expect("a short plain name is a key");
        self.engine.call(
            &self.scope,
            &key,
            Fingerprint::new(Fingerprint::RECIPE, digest),
            &order.policy(&self.base),
            who,
        )
    }
}

async fn leaving(after: Option<Duration>) {
    match after {
        Some(after) => tokio::time::sleep(after).await,
        None => pending().await,
    }
}

async fn by_hand(engine: &Engine, call: Call, handler: Handler) -> Heard {
    match engine.begin(call).await {
        Verdict::Execute(held) => {
            let outcome = handler.run(held.execution().clone()).await;
            heard(&engine.finish(held, outcome).await)
        }
        // No policy of a history runs without protection: the checker will say so.
        Verdict::PassThrough(execution) => {
            handler.run(execution).await;
            Heard::Refused(Reason::StoreDown.name().to_owned())
        }
        Verdict::Replay(replay) => heard(&Answer::Replayed(replay)),
        Verdict::Refuse(refusal) => heard(&Answer::Refused(refusal)),
    }
}

fn heard(answer: &Answer) -> Heard {
    match answer {
        Answer::Ran {
            response, receipt, ..
        } => Heard::Ran {
            said: said(response),
            stored: receipt.is_some(),
        },
        Answer::Replayed(replay) => Heard::Replayed {
            said: said(&replay.response),
            original: replay
                .original_trace
                .as_deref()
                .and_then(|it| it.parse().ok()),
            stored: replay.expires_at.is_some(),
        },
        Answer::Refused(refusal) => Heard::Refused(refusal.reason.name().to_owned()),
    }
}
