//! A client that goes away: what it started goes on, and its retry gets the answer.

use onlyonce_core::policy::Duplicate;

use crate::verify::check::Ruling;
use crate::verify::probe::{Probe, SLOW_MIN, Slow};
use crate::verify::report::Judged;
use crate::verify::telling::Told;

/// On a busy machine a request may be dropped before it began; not every time.
const TRIES: usize = 3;

/// What a retry after a hang-up showed.
enum Retry {
    /// That the original went on.
    WentOn(Told),
    /// That the retry was run, so the original was not, or was lost.
    RanAnew,
    /// Neither: nothing tells a replay from a first answer.
    Unmarked(Told),
}

pub(crate) async fn a_client_that_hangs_up_finds_its_answer(probe: &Probe<'_>) -> Ruling {
    let slow = probe.slow().await?;
    // Half-way through a slow request, a duplicate that does not wait is refused as still running.
    let shows_running = slow.takes >= SLOW_MIN && probe.policy().duplicate == Duplicate::Refuse;
    for _ in 0..TRIES {
        match retry_after_hang_up(probe, slow).await? {
            Retry::WentOn(told) => {
                return Ok(told.conclude("the original went on, and the retry got its answer"));
            }
            Retry::Unmarked(Told::CannotTell) => return Ok(Told::CannotTell.conclude("")),
            Retry::Unmarked(Told::Same) if !shows_running => {
                return Ok(Judged::inconclusive(
                    "the retries agree, but the profile does not mark replays: --slow-path may show whether the original went on",
                ));
            }
            Retry::RanAnew | Retry::Unmarked(Told::Same) => {}
        }
    }
    if slow.takes < SLOW_MIN {
        return Ok(Judged::inconclusive(
            "the retry was run, but perhaps the original had not begun: --slow-path would show it",
        ));
    }
    Ok(Judged::fail(
        "the retry was run anew: the original was given up when its client went away",
    ))
}

/// Hangs up in the middle of a request, then retries it twice.
async fn retry_after_hang_up(probe: &Probe<'_>, slow: &Slow) -> Result<Retry, Judged> {
    let ask = probe.ask("a request, hung up on").path(&slow.path);
    let ask = ask.key(&probe.fresh_key());
    probe.hang_up(&ask, slow.takes / 2).await?;

    let retry = ask.clone().labelled("a retry after the hang-up");
    let met = probe.send_busy(&retry).await?;
    let first = if met.is_success() {
        met.clone()
    } else {
        probe.settled(&retry).await?
    };
    let second = probe.send(&ask.labelled("a second retry")).await?;
    let told = probe.is_of(&first, &second, "a second retry", slow.is_telling)?;
    let marks = second.is_flagged(probe.policy()) == Some(true);
    Ok(match first.is_flagged(probe.policy()) {
        Some(true) => Retry::WentOn(told),
        Some(false) if marks => Retry::RanAnew,
        // A caller that was told that it still runs has seen it go on.
        Some(false) | None if probe.is_told_to_wait(&met) => Retry::WentOn(told),
        Some(false) | None => Retry::Unmarked(told),
    })
}
