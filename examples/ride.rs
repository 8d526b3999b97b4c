//! A ride is paid in three durable steps: reserve the amount, charge it, send the receipt. If the
//! process dies anywhere, the next one gets the values of the finished steps and goes on after them.
//!
//! `cargo run -p onlyonce-examples --example ride -- FOLDER` pays a ride, and keeps records and effects in
//! FOLDER. With a boundary as the second argument, such as `in-charge`, it dies there: run it again.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onlyonce::{Engine, Execution, OnLapse, Policy};

/// Short, so that nobody waits long for a process that died.
const LEASE: Duration = Duration::from_secs(1);

/// What the steps do to the world: here, lines in a file.
#[derive(Clone)]
struct World {
    effects: PathBuf,
    dies_at: Option<String>,
}

impl World {
    /// Dies here, as by SIGKILL, if it is to.
    fn boundary(&self, name: &str) {
        if self.dies_at.as_deref() == Some(name) {
            std::process::abort();
        }
    }

    fn effect(&self, what: &str) -> Result<String, String> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.effects);
        let written = file.and_then(|mut file| writeln!(file, "{what}"));
        written.map_err(|error| error.to_string())?;
        self.boundary(&format!("in-{what}"));
        Ok(format!("{what} of ride 7"))
    }
}

/// The whole payment. The input of each step is what it depends on.
async fn pay(execution: Execution, world: World) -> Result<String, String> {
    world.boundary("before-reserve");
    let cents = 700;
    let hold = execution
        .step("reserve", &cents)
        .run(async || world.effect("reserve"))
        .await?;
    world.boundary("after-reserve");

    // A charge that may have happened is not made again: somebody looks at it first.
    let charge = execution
        .step("charge", &(cents, &hold))
        .on_lapse(OnLapse::Hold);
    let charge = charge.run(async || world.effect("charge")).await?;
    world.boundary("after-charge");

    execution
        .step("mail", &charge)
        .run(async || world.effect("mail"))
        .await?;
    world.boundary("after-mail");
    Ok(charge)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("name a folder")?;
    let store = Path::new(&folder).join("records.db");
    let world = World {
        effects: Path::new(&folder).join("effects.txt"),
        dies_at: args.next(),
    };

    let store = onlyonce::open_store(&format!("sqlite:{}", store.display())).await?;
    let engine = Engine::open(store).await?;
    let rides = engine.job("ride");
    let rules = Policy {
        lease_for: LEASE,
        ..rides.rules().clone()
    };
    let rides = rides.policy(rules);

    // The caller asks again until there is an answer.
    let paid = rides
        .run_with("ride-7", "ride 7", move |execution| pay(execution, world))
        .await;
    match paid {
        Ok(paid) => println!("paid: {}", paid.value),
        Err(error) => println!("not paid: {error}"),
    }
    Ok(())
}
