//! A record with durable steps, as an operator sees it, and one of them that is settled by hand: what
//! docs/guides/crashes.md says of both.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce_core::{Engine, Execution, OnLapse, Policy};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::program::run;

const KEY: &str = "ride-550e8400-e29b-41d4-a716-446655440000";

#[derive(Default)]
struct Bank {
    reserved: AtomicUsize,
    charged: AtomicUsize,
}

/// A ride whose charge is lost. It returns what its caller gets, or tells when it has come to what follows.
async fn ride(url: &str, bank: &Arc<Bank>, dies: Option<Arc<Notify>>) -> Result<String, String> {
    let store = onlyonce_stores::open(url).await.unwrap();
    let engine = Engine::open(Arc::clone(&store)).await.unwrap();
    let bank = Arc::clone(bank);
    let work = async move |execution: Execution| {
        let reserve = execution.step("reserve", &700);
        let hold = async || {
            bank.reserved.fetch_add(1, Ordering::SeqCst);
            Ok::<_, String>("hold 1".to_owned())
        };
        let hold: String = reserve.run(hold).await?;
        let charge = execution.step("charge", &hold).on_lapse(OnLapse::Hold);
        let lost = async || {
            bank.charged.fetch_add(1, Ordering::SeqCst);
            Err::<String, _>("the connection was lost".to_owned())
        };
        let charge = charge.run(lost).await;
        if let Some(lost) = &dies {
            lost.notify_one();
            std::future::pending::<()>().await;
        }
        let charge: String = charge?;
        Ok::<_, String>(format!("{hold}, {charge}"))
    };
    let job = engine.job("ride");
    let rules = Policy {
        lease_for: Duration::from_millis(500),
        ..job.rules().clone()
    };
    let ran = job.policy(rules).run_with(KEY, &700, work).await;
    engine.shutdown(Duration::from_secs(10)).await;
    match ran {
        Ok(ran) => Ok(ran.value),
        Err(error) => Err(error.to_string()),
    }
}

/// The same in a runtime of its own, which ends in the middle, as its process would.
fn ride_that_dies(url: &str, bank: &Arc<Bank>) {
    let (url, bank) = (url.to_owned(), Arc::clone(bank));
    let living = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let lost = Arc::<Notify>::default();
        runtime.block_on(async {
            tokio::select! {
                ended = ride(&url, &bank, Some(Arc::clone(&lost))) => panic!("{ended:?}"),
                () = lost.notified() => {}
            }
        });
        runtime.shutdown_background();
    });
    living.join().unwrap();
}

#[tokio::test]
async fn steps_are_shown_with_their_record_and_a_held_one_is_resolved() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("records.db").display());
    let bank = Arc::<Bank>::default();
    ride_that_dies(&url, &bank);

    let (code, shown, err) = run(&["keys", "show", KEY, "--store", &url]).await;
    let (_, told, _) = run(&["keys", "show", KEY, "--store", &url, "--json"]).await;
    let told: Value = serde_json::from_str(&told).unwrap();
    let [reserve, charge] = &told["steps"].as_array().unwrap()[..] else {
        panic!("{told}");
    };
    let slot = charge["slot"].as_str().unwrap();
    let line = [
        "keys",
        "resolve",
        slot,
        "--status=200",
        "--body=\"charge 1\"",
    ];
    let (resolved, _, said) = run(&[&line[..], &["--store", &url]].concat()).await;

    assert_eq!(code, 0, "{err}");
    assert!(shown.contains("reserve done"), "{shown}");
    assert!(shown.contains("charge unknown"), "{shown}");
    assert_eq!(
        (&reserve["name"], &reserve["state"]),
        (&json!("reserve"), &json!("done"))
    );
    assert_eq!(
        (&charge["name"], &charge["state"]),
        (&json!("charge"), &json!("unknown"))
    );
    assert_eq!(resolved, 0, "{said}");
    assert_eq!(ride(&url, &bank, None).await.unwrap(), "hold 1, charge 1");
    let counts = [&bank.reserved, &bank.charged].map(|it| it.load(Ordering::SeqCst));
    assert_eq!(counts, [1, 1], "neither ran again");
}
