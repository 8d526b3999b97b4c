//! A record with durable steps, as an operator sees it, and one of them that is settled by hand: what
//! docs/guides/crashes.md says of both.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce_core::{Engine, Execution, OnLapse};
use serde_json::{Value, json};

use crate::support::program::run;

const KEY: &str = "ride-550e8400-e29b-41d4-a716-446655440000";

#[derive(Default)]
struct Bank {
    reserved: AtomicUsize,
    charged: AtomicUsize,
}

/// A ride whose charge is lost; returns what its caller gets.
async fn ride(url: &str, bank: &Arc<Bank>) -> Result<String, String> {
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
        let charge: String = charge.run(lost).await?;
        Ok::<_, String>(format!("{hold}, {charge}"))
    };
    let ran = engine.job("ride").run_with(KEY, &700, work).await;
    engine.shutdown(Duration::from_secs(10)).await;
    match ran {
        Ok(ran) => Ok(ran.value),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn steps_are_shown_with_their_record_and_a_held_one_is_resolved() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file:{}", folder.path().join("records").display());
    let bank = Arc::<Bank>::default();
    ride(&url, &bank).await.unwrap_err();
    ride(&url, &bank).await.unwrap_err();

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
    assert_eq!(ride(&url, &bank).await.unwrap(), "hold 1, charge 1");
    let counts = [&bank.reserved, &bank.charged].map(|it| it.load(Ordering::SeqCst));
    assert_eq!(counts, [1, 1], "neither ran again");
}
