//! Plain functions: values replay, failures run again, errors are typed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce_core::engine::job::{Ran, RunError};
use onlyonce_core::{Engine, Execution, MemoryStore, OnLapse, Policy, Reason};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    id: u64,
    lines: Vec<String>,
}

async fn engine() -> Engine {
    Engine::open(MemoryStore::new()).await.unwrap()
}

fn receipt() -> Receipt {
    Receipt {
        id: u64::MAX,
        lines: vec!["one".into()],
    }
}

#[tokio::test]
async fn a_job_runs_once_and_repeats_its_value() {
    let engine = engine().await;
    let job = engine.job("charge");

    let first = job
        .run("order-1", "input", async || Ok::<_, String>(receipt()))
        .await;
    let again = job
        .run("order-1", "input", async || -> Result<Receipt, String> {
            unreachable!("it ran before")
        })
        .await;

    let value = receipt();
    assert_eq!(
        first.unwrap(),
        Ran {
            value: value.clone(),
            replayed: false
        }
    );
    assert_eq!(
        again.unwrap(),
        Ran {
            value,
            replayed: true
        }
    );
}

#[tokio::test]
async fn the_same_key_with_another_input_is_refused() {
    let engine = engine().await;
    engine
        .run("key", &1, async || Ok::<_, String>(()))
        .await
        .unwrap();

    let other = engine.run("key", &2, async || Ok::<_, String>(())).await;

    assert!(matches!(other, Err(RunError::Refused(it)) if it.reason == Reason::Mismatch));
}

#[tokio::test]
async fn jobs_and_tenants_do_not_share_keys() {
    let engine = engine().await;
    let run = |job: onlyonce_core::engine::job::Job, value: u8| async move {
        job.run("key", "", async move || Ok::<_, String>(value))
            .await
            .unwrap()
            .value
    };

    assert_eq!(run(engine.job("a"), 1).await, 1);
    assert_eq!(run(engine.job("b"), 2).await, 2);
    assert_eq!(run(engine.job("a").scoped("tenant", "x"), 3).await, 3);
    assert_eq!(run(engine.job("a").scoped("tenant", "y"), 4).await, 4);
    assert_eq!(run(engine.job("a"), 5).await, 1);
}

#[tokio::test]
async fn an_input_counts_by_its_meaning_not_by_the_order_of_a_map() {
    let engine = engine().await;
    let entries: Vec<(String, u32)> = (0..32).map(|n| (format!("k{n}"), n)).collect();
    for _ in 0..10 {
        let input: HashMap<_, _> = entries.clone().into_iter().collect();

        let ran = engine.run("key", &input, async || Ok::<_, String>(1)).await;

        assert_eq!(ran.unwrap().value, 1);
    }
}

#[tokio::test]
async fn a_failed_job_runs_again_and_keeps_its_error() {
    let engine = engine().await;

    let failed = engine
        .run("key", "", async || Err::<u8, _>("no network"))
        .await;
    let again = engine.run("key", "", async || Ok::<u8, &str>(9)).await;

    assert!(matches!(failed, Err(RunError::Failed("no network"))));
    assert_eq!(
        again.unwrap(),
        Ran {
            value: 9,
            replayed: false
        }
    );
}

#[tokio::test]
async fn a_failure_worth_replaying_is_a_value() {
    let engine = engine().await;
    type Outcome = Result<u8, String>;
    let declined = || async { Ok::<Outcome, String>(Err("card declined".into())) };

    engine.run("key", "", declined).await.unwrap();
    let again = engine.run("key", "", declined).await.unwrap();

    assert!(again.replayed);
    assert_eq!(again.value, Err("card declined".into()));
}

#[tokio::test]
async fn a_panicking_job_is_a_typed_error_and_runs_again() {
    let engine = engine().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let run = || {
        let runs = Arc::clone(&runs);
        engine.run("key", "", async move || {
            match runs.fetch_add(1, Ordering::SeqCst) {
                0 => panic!("boom"),
                _ => Ok::<_, String>(2),
            }
        })
    };

    assert!(matches!(run().await, Err(RunError::Panicked)));
    assert_eq!(run().await.unwrap().value, 2);
}

#[tokio::test(start_paused = true)]
async fn concurrent_runs_of_a_job_share_its_failure() {
    let engine = engine().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let run = || {
        let (engine, runs) = (engine.clone(), Arc::clone(&runs));
        tokio::spawn(async move {
            let work = async move || {
                runs.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                Err::<u8, _>("no network")
            };
            engine.run("key", "", work).await
        })
    };

    let (first, second) = tokio::join!(run(), run());

    assert!(matches!(
        first.unwrap(),
        Err(RunError::Failed("no network"))
    ));
    let second = second.unwrap();
    assert!(matches!(second, Err(RunError::FailedElsewhere(why)) if why == "no network"));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_bad_key_is_a_typed_error() {
    let engine = engine().await;
    for key in ["", "  ", &"x".repeat(2000), "line\nbreak"] {
        let run = engine.run(key, "", async || Ok::<_, String>(())).await;

        assert!(matches!(run, Err(RunError::Key(_))), "{key:?}");
    }
}

#[tokio::test]
async fn a_stored_value_of_another_type_is_an_error_not_garbage() {
    let engine = engine().await;
    engine
        .run("key", "", async || Ok::<_, String>("text".to_owned()))
        .await
        .unwrap();

    let other = engine.run("key", "", async || Ok::<u8, String>(1)).await;

    assert!(matches!(
        other,
        Err(RunError::Json {
            what: "stored value",
            ..
        })
    ));
}

/// What JSON has no form for: its keys are texts.
type NotJson = HashMap<(u8, u8), u8>;

fn not_json() -> NotJson {
    HashMap::from([((1, 2), 3)])
}

#[tokio::test]
async fn a_value_that_cannot_be_written_is_told_as_such_and_its_job_does_not_run_again() {
    let engine = engine().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let job = engine.job("charge");
    let held = Policy {
        on_lapse: OnLapse::Hold,
        ..job.rules().clone()
    };
    for (key, job) in [("rerun", job.clone()), ("hold", job.policy(held))] {
        let run = || {
            let runs = Arc::clone(&runs);
            job.run(key, "", async move || {
                runs.fetch_add(1, Ordering::SeqCst);
                Ok::<NotJson, String>(not_json())
            })
        };
        let before = runs.load(Ordering::SeqCst);

        for _ in 0..3 {
            let told = run().await.unwrap_err().to_string();

            assert!(
                told.starts_with("the job ran, but its value could not be kept: key must be"),
                "{told}"
            );
        }
        assert_eq!(runs.load(Ordering::SeqCst), before + 1, "{key}");
    }
}

#[tokio::test]
async fn a_job_that_asks_not_to_be_stored_runs_again_though_its_value_cannot_be_written() {
    let engine = engine().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let job = engine.job("look");
    for _ in 0..2 {
        let runs = Arc::clone(&runs);
        let ran = job.run_with("key", "", async move |execution: Execution| {
            runs.fetch_add(1, Ordering::SeqCst);
            execution.do_not_store();
            Ok::<NotJson, String>(not_json())
        });

        assert!(ran.await.is_err());
    }

    assert_eq!(runs.load(Ordering::SeqCst), 2);
}
