//! Numbers, times and states as pages show them.

use std::time::{Duration, UNIX_EPOCH};

use maud::{Markup, html};
use onlyonce_core::Timestamp;

use super::super::view::RecordView;

const SLOT_DIGITS_SHOWN: usize = 7;

/// A number with its thousands apart.
pub(in crate::admin) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share from 0 to 1.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A time in milliseconds.
pub(super) fn millis(millis: f64) -> String {
    if millis >= 10.0 {
        format!("{millis:.0} ms")
    } else {
        format!("{millis:.2} ms")
    }
}

/// A number of bytes, near enough.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// A length of time in its two largest units.
pub(super) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// A length of time in its largest unit: of an age, the rest is in the moment beside it.
fn brief(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A moment, and how long ago it was.
pub(super) fn moment(at: &str, now: Timestamp) -> Markup {
    html! {
        time datetime=(at) title=(at) { (to_second(at)) }
        @if let Some(seconds) = age(at, now) {
            " " span.dim { (brief(seconds)) " ago" }
        }
    }
}

/// How long ago a moment was, in seconds.
pub(super) fn age(at: &str, now: Timestamp) -> Option<u64> {
    let at = humantime::parse_rfc3339(at).ok()?;
    let at = at.duration_since(UNIX_EPOCH).ok()?;
    let now = Duration::from_millis(now.as_millis());
    Some(now.saturating_sub(at).as_secs())
}

/// A moment without its fractions, as people write it.
pub(in crate::admin) fn to_second(at: &str) -> String {
    let second = at.split('.').next().unwrap_or(at);
    format!("{} UTC", second.trim_end_matches('Z').replace('T', " "))
}

/// A link to a record.
pub(super) fn slot_link(slot: &str) -> Markup {
    html! { a.slot href=(record_address(slot)) { (short(slot)) } }
}

/// Where a record is shown.
pub(super) fn record_address(slot: &str) -> String {
    format!("/records/{slot}")
}

/// Enough of a slot to tell it by.
pub(super) fn short(slot: &str) -> &str {
    slot.get(..SLOT_DIGITS_SHOWN).unwrap_or(slot)
}

/// The state of a record as a badge.
pub(super) fn state(state: &str) -> Markup {
    html! { span class={ "badge " (class(state)) } { (state) } }
}

fn class(state: &str) -> &'static str {
    match state {
        "done" => "good",
        "failed" | "unknown" => "bad",
        "lapsed" => "warn",
        _ => "calm",
    }
}

/// Who asked, where that is known.
pub(super) fn actor(actor: Option<&str>) -> Markup {
    html! {
        @match actor {
            Some(actor) => (actor),
            None => span.dim { "not known" },
        }
    }
}

/// What is known of an outcome in doubt.
pub(super) fn doubt(record: &RecordView) -> &'static str {
    if record.state == "unknown" {
        "it was sent, and how it ended is unknown"
    } else {
        "its gateway is gone, and it may have run"
    }
}

/// Whether an operator has to decide.
pub(super) fn is_in_doubt(record: &RecordView) -> bool {
    record.state == "unknown" || record.state == "lapsed" && record.on_lapse == "hold"
}

#[cfg(test)]
mod tests {
    use super::brief;

    #[test]
    fn an_age_is_told_in_its_largest_unit() {
        let told = [0, 59, 60, 200, 3599, 3600, 100_000, 172_800, 1_000_000].map(brief);

        assert_eq!(
            told,
            [
                "0 s", "59 s", "1 min", "3 min", "59 min", "1 h", "27 h", "2 days", "11 days"
            ]
        );
    }
}
