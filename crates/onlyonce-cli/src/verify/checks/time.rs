//! What depends on time passing: expiry, and the date of a replay.

use std::time::Duration;

use http::HeaderValue;
use http::header::DATE;
use onlyonce_core::policy::{TtlRule, TtlUnit};

use crate::verify::cause::Code;
use crate::verify::check::Ruling;
use crate::verify::probe::Probe;
use crate::verify::report::Judged;

/// How long a record is asked to live.
const TTL: Duration = Duration::from_secs(2);
/// A longer minimum is not worth the wait.
const TTL_MAX: Duration = Duration::from_secs(10);
/// How late an expired record may still be found.
const LATE_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(250);
/// `Date` counts seconds: after two of them it cannot be the same.
const DATES_APART: Duration = Duration::from_millis(2100);

pub(crate) async fn a_key_whose_time_is_over_runs_anew(probe: &Probe<'_>) -> Ruling {
    let Some(rule) = &probe.policy().ttl else {
        return Ok(Judged::not_applicable(
            "a request cannot ask for a time to live",
        ));
    };
    let ttl = TTL.max(rule.min);
    if ttl > TTL_MAX {
        return Ok(Judged::not_applicable("the shortest time to live is long"));
    }
    let ask = probe.ask("a new key with a short time to live");
    let ask = ask
        .key(&probe.fresh_key())
        .header(&rule.header, written(rule, ttl));

    let sent = probe.now();
    let first = probe.run(&ask).await?;
    let answered = probe.now();
    let retry = probe.send(&ask.clone().labelled("its retry")).await?;
    // Its time began after the request was sent, so within that it cannot be over.
    if probe.now().saturating_sub(sent) < ttl {
        let told = probe.replays(&first, &retry, "a retry in time");
        told.map_err(|judged| Judged {
            code: judged.code.or(Some(Code::ExpiresEarly)),
            ..judged
        })?;
    }

    tokio::time::sleep((answered + ttl).saturating_sub(probe.now())).await;
    loop {
        let answer = probe
            .send(&ask.clone().labelled("its retry, too late"))
            .await?;
        let late = probe.now().saturating_sub(answered + ttl);
        let judged = probe.runs_anew(&first, &answer, "a retry after that time");
        if judged.judgement != crate::verify::Judgement::Fail || late > LATE_MAX {
            return Ok(judged);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn written(rule: &TtlRule, ttl: Duration) -> HeaderValue {
    match rule.unit {
        TtlUnit::Seconds => HeaderValue::from(ttl.as_secs()),
        TtlUnit::Milliseconds => {
            HeaderValue::from(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
        }
    }
}

pub(crate) async fn the_date_of_a_replay_is_its_own(probe: &Probe<'_>) -> Ruling {
    let soundings = &probe.soundings();
    if soundings.first.lines(&DATE).is_empty() {
        return Ok(Judged::not_applicable("the server sends no Date"));
    }
    let due = soundings.at + DATES_APART;
    tokio::time::sleep(due.saturating_sub(probe.now())).await;

    let retry = probe.ask("a retry, two seconds later").key(&soundings.key);
    let replay = probe.send(&retry).await?;

    let dates = replay.lines(&DATE);
    Ok(match dates[..] {
        [] => Judged::pass("the replay has no Date"),
        [date] if soundings.first.lines(&DATE).contains(&date) => {
            Judged::fail("the replay has the first answer's Date")
        }
        [_] => Judged::pass("the replay has a Date of its own"),
        [..] => Judged::fail("the replay has more than one Date"),
    })
}
