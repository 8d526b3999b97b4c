//! Synthetic monitoring: the same run again and again, one line per round, until a signal.

use std::process::ExitCode;
use std::time::Duration;

use onlyonce_core::{Clock, SystemClock};
use tokio::time::{MissedTickBehavior, interval};

use super::plan::Plan;
use super::print::Printer;
use super::{CONFORMS, DOES_NOT_CONFORM, verify};

/// Less would be a load test.
const EVERY_MIN: Duration = Duration::from_millis(100);

/// Repeats the plan until it is stopped; the exit code is about the last finished round.
pub(super) async fn watch(plan: &Plan, every: Duration, printer: &mut Printer) -> ExitCode {
    let clock = SystemClock::new();
    let mut stopped = std::pin::pin!(stop());
    let mut ticks = interval(every.max(EVERY_MIN));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = CONFORMS;
    loop {
        let round = async {
            ticks.tick().await;
            verify(plan, &mut |_| ()).await
        };
        let round = tokio::select! {
            // A round that was under way is given up: nothing is known of it.
            biased;
            () = &mut stopped => return last.into(),
            round = round => round,
        };
        last = match &round {
            Ok(report) if report.conforms => CONFORMS,
            Ok(_) | Err(_) => DOES_NOT_CONFORM,
        };
        if printer.round(clock.wall(), &round).is_err() {
            return last.into();
        }
    }
}

/// Returns when the process is asked to end.
#[cfg(unix)]
async fn stop() {
    use tokio::signal::unix::{SignalKind, signal};

    let interrupt = tokio::signal::ctrl_c();
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = interrupt => {}
            _ = terminate.recv() => {}
        },
        Err(_) => {
            let _ = interrupt.await;
        }
    }
}

/// Returns when the process is asked to end.
#[cfg(not(unix))]
async fn stop() {
    let _ = tokio::signal::ctrl_c().await;
}
