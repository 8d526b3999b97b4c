//! Steps of an execution: each runs once, also if the execution runs again.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::engine::job::{Question, RunError};
use onlyonce_core::engine::{extend_with_steps, step_of};
use onlyonce_core::operate::{Filter, Page, Resolved};
use onlyonce_core::{
    Claim, Claimed, Completed, Engine, Execution, Finding, Lease, MemoryStore, OnLapse, Operate,
    Policy, Release, Released, Renewed, Response, Slot, StepError, Store, StoreError,
    StoreErrorKind, Token, async_trait,
};
use serde_json::json;

const LEASE: Duration = Duration::from_secs(3);
const KEEP: Duration = Duration::from_secs(600);

/// The way of one process to the store: cut off when it dies.
struct Cable {
    store: Arc<MemoryStore>,
    is_cut: AtomicBool,
}

impl Cable {
    fn new(store: &Arc<MemoryStore>) -> Arc<Self> {
        let store = Arc::clone(store);
        let is_cut = AtomicBool::new(false);
        Arc::new(Self { store, is_cut })
    }

    fn store(&self) -> Result<&MemoryStore, StoreError> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(StoreError::new("cable", StoreErrorKind::Unavailable));
        }
        Ok(&self.store)
    }
}

#[async_trait]
impl Store for Cable {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.store()?.claim(claim).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        self.store()?.renew(lease, lease_for).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        self.store()?.complete(lease, response, keep_for).await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        self.store()?.release(lease, why).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.store()?.settled(slot, seen, at_most).await
    }

    fn operate(&self) -> Option<&dyn Operate> {
        self.store.operate()
    }
}

/// What rides do to the world, and where an attempt is to be cut off.
#[derive(Default)]
struct World {
    effects: Mutex<Vec<&'static str>>,
    /// Boundaries passed by the attempt that runs.
    passed: AtomicUsize,
    /// The boundary at which the attempt is never heard of again; none if it is the last number.
    crash_at: AtomicUsize,
}

/// What a process dies at: never.
const NEVER: usize = usize::MAX;

impl World {
    fn crashing_at(boundary: usize) -> Arc<Self> {
        let world = Self::default();
        world.crash_at.store(boundary, Ordering::SeqCst);
        Arc::new(world)
    }

    /// Goes on, or never returns.
    async fn boundary(&self) {
        let here = self.passed.fetch_add(1, Ordering::SeqCst);
        if here == self.crash_at.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    async fn effect(&self, what: &'static str) -> Result<String, String> {
        self.boundary().await;
        self.effects.lock().unwrap().push(what);
        self.boundary().await;
        Ok(format!("{what} done"))
    }

    fn effects(&self) -> Vec<&'static str> {
        self.effects.lock().unwrap().clone()
    }
}

async fn ride(execution: &Execution, world: &World, doubt: OnLapse) -> Result<String, String> {
    world.boundary().await;
    let reserve = execution.step("reserve", &700);
    let hold = reserve.run(|| world.effect("reserve")).await?;
    world.boundary().await;
    let charge = execution.step("charge", &hold).on_lapse(doubt);
    let charge = charge.run(|| world.effect("charge")).await?;
    world.boundary().await;
    let mail = execution.step("mail", &charge);
    mail.run(|| world.effect("mail")).await?;
    world.boundary().await;
    Ok(charge)
}

/// Boundaries in a ride.
const BOUNDARIES: usize = 10;

async fn run(
    engine: &Engine,
    world: &Arc<World>,
    doubt: OnLapse,
) -> Result<String, RunError<String>> {
    let job = engine.job("ride");
    let rules = Policy {
        lease_for: LEASE,
        keep_for: KEEP,
        ..job.rules().clone()
    };
    let world = Arc::clone(world);
    let work = async move |execution: Execution| ride(&execution, &world, doubt).await;
    let ran = job.policy(rules).run_with("ride-7", &700, work).await;
    ran.map(|ran| ran.value)
}

/// Runs a ride in a process that dies where its world says.
async fn die(store: &Arc<MemoryStore>, world: &Arc<World>, doubt: OnLapse) {
    let cable = Cable::new(store);
    let engine = Engine::open(Arc::clone(&cable)).await.unwrap();
    let dying = Arc::clone(world);
    let running = tokio::spawn(async move { run(&engine, &dying, doubt).await.map_err(drop) });
    while world.passed.load(Ordering::SeqCst) <= world.crash_at.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    cable.is_cut.store(true, Ordering::SeqCst);
    running.abort();
    world.crash_at.store(NEVER, Ordering::SeqCst);
}

/// Runs a ride in a process that lives, as often as a client would ask for it.
async fn live(
    store: &Arc<MemoryStore>,
    world: &Arc<World>,
    doubt: OnLapse,
) -> Result<String, String> {
    let engine = Engine::open(Arc::clone(store)).await.unwrap();
    for _ in 0..20 {
        match run(&engine, world, doubt).await {
            Ok(value) => return Ok(value),
            Err(RunError::Refused(_)) => tokio::time::sleep(LEASE).await,
            Err(error) => return Err(error.to_string()),
        }
    }
    panic!("it does not come to an end");
}

#[tokio::test(start_paused = true)]
async fn a_ride_cut_off_at_every_boundary_repeats_at_most_the_step_it_was_cut_off_in() {
    for boundary in 0..BOUNDARIES {
        let store = Arc::new(MemoryStore::new());
        let world = World::crashing_at(boundary);

        die(&store, &world, OnLapse::Rerun).await;
        let value = live(&store, &world, OnLapse::Rerun).await;

        assert_eq!(value.unwrap(), "charge done", "boundary {boundary}");
        let effects = world.effects();
        let wanted: &[&str] = match boundary {
            2 => &["reserve", "reserve", "charge", "mail"],
            5 => &["reserve", "charge", "charge", "mail"],
            8 => &["reserve", "charge", "mail", "mail"],
            _ => &["reserve", "charge", "mail"],
        };
        assert_eq!(effects, wanted, "boundary {boundary}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_step_is_never_run_twice_and_the_rest_goes_on_once_it_is_resolved() {
    for boundary in 0..BOUNDARIES {
        let store = Arc::new(MemoryStore::new());
        let world = World::crashing_at(boundary);
        die(&store, &world, OnLapse::Hold).await;

        let mut ended = live(&store, &world, OnLapse::Hold).await;
        let is_in_doubt = boundary == 4 || boundary == 5;
        assert_eq!(
            ended.is_err(),
            is_in_doubt,
            "boundary {boundary}: {ended:?}"
        );
        if is_in_doubt {
            let said = ended.unwrap_err();
            assert!(said.contains("step `charge` may have been run"), "{said}");
            let slot = step(&store, "charge").await;
            let found = Arc::new(Response::new(StatusCode::OK, "\"charge found\""));
            let resolved = store.resolve(&slot, &found, LEASE * 100).await.unwrap();
            assert!(matches!(resolved, Resolved::Stored), "{resolved:?}");
            ended = live(&store, &world, OnLapse::Hold).await;
        }

        assert!(ended.unwrap().starts_with("charge "), "boundary {boundary}");
        let charges = world.effects().iter().filter(|it| **it == "charge").count();
        assert_eq!(charges, usize::from(boundary != 4), "boundary {boundary}");
    }
}

/// The slot of the step of this name of the one ride there is.
async fn step(store: &MemoryStore, name: &str) -> Slot {
    let page = Page {
        after: None,
        records_max: 100,
    };
    let all = store.list(&Filter::default(), &page).await.unwrap();
    let parent = all
        .iter()
        .find(|(_, it)| &*it.meta.operation == "ride")
        .unwrap()
        .0;
    let found = all
        .iter()
        .find(|(slot, it)| step_of(&parent, slot, &it.meta.operation) == Some(name));
    found.unwrap().0
}

#[tokio::test(start_paused = true)]
async fn a_steps_record_is_found_from_its_parent_and_lives_longer() {
    let store = Arc::new(MemoryStore::new());
    let world = World::crashing_at(NEVER);

    live(&store, &world, OnLapse::Rerun).await.unwrap();

    let page = Page {
        after: None,
        records_max: 100,
    };
    let all = store.list(&Filter::default(), &page).await.unwrap();
    let (slot, parent) = all
        .iter()
        .find(|(_, it)| &*it.meta.operation == "ride")
        .unwrap();
    let steps = all.iter().filter_map(|(at, it)| {
        let name = step_of(slot, at, &it.meta.operation)?;
        assert!(it.keep_left >= parent.keep_left);
        assert_eq!(it.meta.hint, parent.meta.hint);
        Some(name)
    });
    let mut steps: Vec<_> = steps.collect();
    steps.sort_unstable();
    assert_eq!(steps, ["charge", "mail", "reserve"]);
    assert_eq!(step_of(slot, slot, "ride"), None);
    assert_ne!(slot.step("ab").step("c"), slot.step("a").step("bc"));
}

#[tokio::test(start_paused = true)]
async fn a_finished_step_outlives_every_attempt_that_may_need_it() {
    let store = Arc::new(MemoryStore::new());
    let world = World::default();
    world.crash_at.store(3, Ordering::SeqCst);
    let world = Arc::new(world);
    die(&store, &world, OnLapse::Rerun).await;

    // Again and again it is tried when its record is about to expire, and dies after the first step.
    for _ in 0..3 {
        tokio::time::sleep(KEEP - LEASE).await;
        world.passed.store(0, Ordering::SeqCst);
        // A step that replays passes none of its own boundaries.
        world.crash_at.store(1, Ordering::SeqCst);
        die(&store, &world, OnLapse::Rerun).await;
    }
    live(&store, &world, OnLapse::Rerun).await.unwrap();

    assert_eq!(world.effects(), ["reserve", "charge", "mail"]);
}

/// Runs one execution of `work` under this key, and gives what it returns.
async fn execute<W, F>(engine: &Engine, key: &str, work: W) -> Result<String, String>
where
    W: FnOnce(Execution) -> F + Send + 'static,
    F: Future<Output = Result<String, String>> + Send + 'static,
{
    let ran = engine.job("steps").run_with(key, &0, work).await;
    ran.map(|ran| ran.value).map_err(|error| error.to_string())
}

#[tokio::test(start_paused = true)]
async fn another_input_on_a_re_run_is_an_error_that_says_what_changed() {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let before = json!({"cents": 700, "to": "ada", "note": "x"});
    let cases = [
        (json!({"note": "x", "to": "ada", "cents": 700}), None),
        (
            json!({"cents": 900, "to": "ada", "note": "x"}),
            Some("member `cents` has another value"),
        ),
        (
            json!({"cents": 700, "to": "ada"}),
            Some("member `note` is missing"),
        ),
        (
            json!({"cents": 700, "to": "ada", "note": "x", "by": 1}),
            Some("member `by` is new"),
        ),
        (json!(700), Some("its value is another one")),
    ];
    for (number, (after, changed)) in cases.into_iter().enumerate() {
        let key = format!("key-{number}");
        let input = before.clone();
        let first = execute(&engine, &key, async move |execution: Execution| {
            execution
                .step("pay", &input)
                .run(async || Ok::<_, String>(1))
                .await?;
            Err("fails after its step".to_owned())
        });
        first.await.unwrap_err();

        let second = execute(&engine, &key, async move |execution: Execution| {
            let paid = execution
                .step("pay", &after)
                .run(async || Ok::<_, String>(2))
                .await?;
            Ok(format!("paid {paid}"))
        });
        let second = second.await;

        match changed {
            None => assert_eq!(second.unwrap(), "paid 1"),
            Some(what) => {
                let said = second.unwrap_err();
                assert!(said.contains("step `pay`") && said.contains(what), "{said}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_steps_of_one_name_in_one_execution_are_an_error() {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();

    let told = execute(&engine, "key", async |execution: Execution| {
        let one = execution
            .step("mail", &1)
            .run(async || Ok::<_, String>(1))
            .await?;
        let two = execution.clone();
        let two = two.step("mail", &2).run(async || Ok::<_, String>(2)).await;
        assert!(matches!(two, Err(StepError::Repeated { .. })), "{two:?}");
        Ok(format!("{one}"))
    });

    assert_eq!(told.await.unwrap(), "1");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_none_is_an_error() {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();

    let told = execute(&engine, "key", async |execution: Execution| {
        for name in ["", "a > b", "a b", "caf\u{e9}", &"a".repeat(101)] {
            let step = execution
                .step(name, &1)
                .run(async || Ok::<_, String>(1))
                .await;
            assert!(matches!(step, Err(StepError::Name { .. })), "{step:?}");
        }
        Ok(String::new())
    });

    told.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_step_that_failed_runs_again_and_the_finished_ones_do_not() {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let runs = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let attempt = || {
        let runs = Arc::clone(&runs);
        execute(&engine, "key", async move |execution: Execution| {
            let first = execution.step("first", &());
            first
                .run(async || Ok::<_, String>(runs[0].fetch_add(1, Ordering::SeqCst)))
                .await?;
            let second = execution.step("second", &());
            let second = second.run(async || match runs[1].fetch_add(1, Ordering::SeqCst) {
                0 => Err("no mail today".to_owned()),
                run => Ok(format!("run {run}")),
            });
            Ok(second.await?)
        })
    };

    let (one, two, three) = (attempt().await, attempt().await, attempt().await);

    assert_eq!(one.unwrap_err(), "the job failed: no mail today");
    assert_eq!(two.unwrap(), "run 1");
    assert_eq!(three.unwrap(), "run 1");
    assert_eq!(runs[0].load(Ordering::SeqCst), 1);
}

/// A bank that can be asked, and dies around its first charge.
#[derive(Default)]
struct Bank {
    charges: AtomicUsize,
    looks: AtomicUsize,
    is_silent: AtomicBool,
}

impl Bank {
    fn find(&self, question: &Question) -> Finding {
        assert!(question.execution().attempt() > 1);
        assert_eq!(question.input::<u32>().unwrap(), 700);
        self.looks.fetch_add(1, Ordering::SeqCst);
        if self.is_silent.load(Ordering::SeqCst) {
            return Finding::CannotTell;
        }
        match self.charges.load(Ordering::SeqCst) {
            0 => Finding::DidNot,
            number => question.happened(&format!("charge {number}")),
        }
    }

    fn counts(&self) -> (usize, usize) {
        let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
        (count(&self.charges), count(&self.looks))
    }
}

/// One attempt at a handler whose charge can be looked up; `dies` says whether it is cut off before its
/// charge, after it, or not at all.
async fn charge_once(
    engine: &Engine,
    bank: &Arc<Bank>,
    dies: Option<bool>,
) -> Result<String, String> {
    let bank = Arc::clone(bank);
    execute(engine, "key", async move |execution: Execution| {
        let asked = Arc::clone(&bank);
        let step = execution.step("charge", &700).on_lapse(OnLapse::Hold);
        let step = step.reconcile(move |question| {
            let finding = asked.find(&question);
            async move { finding }
        });
        let charged = step.run(async || {
            if dies == Some(false) {
                return Err("lost".to_owned());
            }
            let number = bank.charges.fetch_add(1, Ordering::SeqCst) + 1;
            match dies {
                Some(_) => Err("lost".to_owned()),
                None => Ok(format!("charge {number}")),
            }
        });
        Ok(charged.await?)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_step_that_can_be_looked_up_happens_once_wherever_it_was_cut_off() {
    for after_its_effect in [false, true] {
        let engine = Engine::open(MemoryStore::new()).await.unwrap();
        let bank = Arc::new(Bank::default());
        charge_once(&engine, &bank, Some(after_its_effect))
            .await
            .unwrap_err();

        let second = charge_once(&engine, &bank, None).await;
        let third = charge_once(&engine, &bank, None).await;

        assert_eq!(second.unwrap(), "charge 1");
        assert_eq!(third.unwrap(), "charge 1");
        assert_eq!(bank.counts(), (1, 1), "{after_its_effect}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_cannot_be_told_is_neither_run_nor_held_for_ever() {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let bank = Arc::new(Bank::default());
    charge_once(&engine, &bank, Some(true)).await.unwrap_err();
    bank.is_silent.store(true, Ordering::SeqCst);

    let told = charge_once(&engine, &bank, None).await.unwrap_err();
    bank.is_silent.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let settled = charge_once(&engine, &bank, None).await;

    assert!(told.contains("step `charge` may have been run"), "{told}");
    assert!(told.contains("run the operation again later"), "{told}");
    assert_eq!(settled.unwrap(), "charge 1");
    assert_eq!(bank.counts(), (1, 2));
}

/// Its process died in the step: the next one looks at the step before it runs anything of it.
#[tokio::test(start_paused = true)]
async fn a_step_whose_process_died_is_looked_up_by_the_next_one() {
    let store = Arc::new(MemoryStore::new());
    let cable = Cable::new(&store);
    let first = Engine::open(Arc::clone(&cable)).await.unwrap();
    let bank = Arc::new(Bank::default());
    let (charging, dying) = (Arc::clone(&bank), first.clone());
    let attempt = tokio::spawn(async move {
        execute(&dying, "key", async move |execution: Execution| {
            let step = execution
                .step("charge", &700)
                .reconcile(|_| async { Finding::DidNot });
            let step = step.run(async || {
                charging.charges.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<Result<String, String>>().await
            });
            Ok(step.await?)
        })
        .await
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    cable.is_cut.store(true, Ordering::SeqCst);
    attempt.abort();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let second = Engine::open(Arc::clone(&store)).await.unwrap();

    let settled = charge_once(&second, &bank, None).await;

    assert_eq!(settled.unwrap(), "charge 1");
    assert_eq!(bank.counts(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn steps_need_no_place_of_their_own_and_end_with_an_engine_that_closes() {
    let engine = Engine::builder(MemoryStore::new());
    let engine = engine.running_max(NonZeroUsize::MIN).open().await.unwrap();
    let closing = engine.clone();

    let told = execute(&engine, "key", async move |execution: Execution| {
        let one = execution
            .step("one", &())
            .run(async || Ok::<_, String>(1))
            .await?;
        let grace = Duration::from_secs(60);
        tokio::spawn(async move { closing.shutdown(grace).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let two = execution
            .step("two", &())
            .run(async || Ok::<_, String>(2))
            .await?;
        Ok(format!("{one} {two}"))
    });

    assert_eq!(told.await.unwrap(), "1 2");
}

/// The finished steps of an operation are kept a little longer than its answer.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_used_again_after_its_retention_runs_its_steps_anew() {
    let store = Arc::new(MemoryStore::new());
    let world = World::crashing_at(NEVER);
    live(&store, &world, OnLapse::Hold).await.unwrap();

    tokio::time::sleep(KEEP + Duration::from_secs(1)).await;
    let again = live(&store, &world, OnLapse::Hold).await;
    let replayed = live(&store, &world, OnLapse::Hold).await;

    assert_eq!(again.unwrap(), "charge done");
    assert_eq!(replayed.unwrap(), "charge done");
    let once = ["reserve", "charge", "mail"];
    assert_eq!(world.effects(), [once, once].concat());
}

#[tokio::test(start_paused = true)]
async fn a_step_that_an_operator_has_just_resolved_does_not_run_however_short_it_is_kept() {
    let store = Arc::new(MemoryStore::new());
    let world = World::crashing_at(5);
    die(&store, &world, OnLapse::Hold).await;
    live(&store, &world, OnLapse::Hold).await.unwrap_err();
    let slot = step(&store, "charge").await;
    let found = Arc::new(Response::new(StatusCode::OK, "\"charge found\""));

    store.resolve(&slot, &found, LEASE).await.unwrap();
    let value = live(&store, &world, OnLapse::Hold).await;

    assert_eq!(value.unwrap(), "charge found");
    assert_eq!(world.effects(), ["reserve", "charge", "mail"]);
}

/// The answer of the operation is kept as long as it would have been, whatever an operator says of a step.
#[tokio::test(start_paused = true)]
async fn a_step_that_an_operator_has_resolved_for_a_short_time_lasts_as_long_as_its_operation() {
    let store = Arc::new(MemoryStore::new());
    let world = World::crashing_at(5);
    die(&store, &world, OnLapse::Hold).await;
    live(&store, &world, OnLapse::Hold).await.unwrap_err();
    let slot = step(&store, "charge").await;
    let found = Arc::new(Response::new(StatusCode::OK, "\"charge found\""));

    store.resolve(&slot, &found, Duration::ZERO).await.unwrap();
    tokio::time::sleep(KEEP / 2).await;
    let value = live(&store, &world, OnLapse::Hold).await;

    assert_eq!(value.unwrap(), "charge found");
    assert_eq!(world.effects(), ["reserve", "charge", "mail"]);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_kept_longer_keeps_its_steps_as_long() {
    let store = Arc::new(MemoryStore::new());
    let world = World::crashing_at(6);
    die(&store, &world, OnLapse::Rerun).await;
    let page = Page {
        after: None,
        records_max: 100,
    };
    let all = store.list(&Filter::default(), &page).await.unwrap();
    let ride = all.iter().find(|(_, it)| &*it.meta.operation == "ride");
    let (ride, _) = ride.unwrap();

    assert!(extend_with_steps(&*store, ride, KEEP * 10).await.unwrap());
    tokio::time::sleep(KEEP * 5).await;
    let value = live(&store, &world, OnLapse::Rerun).await;

    assert_eq!(value.unwrap(), "charge done");
    assert_eq!(world.effects(), ["reserve", "charge", "mail"]);
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_value_cannot_be_written_does_not_run_again() {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let job = engine.job("ride");
    let charges = Arc::new(AtomicUsize::new(0));

    for _ in 0..3 {
        let charges = Arc::clone(&charges);
        let work = async move |execution: Execution| {
            let charge = execution.step("charge", &700).run(async || {
                charges.fetch_add(1, Ordering::SeqCst);
                Ok::<HashMap<(u8, u8), u8>, String>(HashMap::from([((1, 2), 3)]))
            });
            charge.await?;
            Ok::<(), String>(())
        };
        let told = job.run_with("ride-7", &700, work).await.unwrap_err();

        let told = told.to_string();
        let wanted = "step `charge` ran, but its value could not be kept: key must be";
        assert!(told.contains(wanted), "{told}");
    }

    assert_eq!(charges.load(Ordering::SeqCst), 1);
}
