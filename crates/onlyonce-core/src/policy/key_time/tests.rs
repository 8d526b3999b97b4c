//! Keys that carry their time: which are taken, and which are refused.

use super::*;
use crate::key::KeyRule;

const HOUR: Duration = Duration::from_secs(60 * 60);
const MINUTE: Duration = Duration::from_secs(60);
/// `Fri, 01 Dec 2023 00:00:00 GMT`.
const MADE: Timestamp = Timestamp::from_millis(1_701_388_800_000);
const FIRST_SENT: HeaderName = HeaderName::from_static("first-sent");

fn rule(from: KeyTime) -> KeyTimeRule {
    KeyTimeRule {
        from,
        ahead_max: 5 * MINUTE,
    }
}

fn v7(at: Timestamp) -> String {
    let bytes = (u128::from(at.as_millis()) << 80) | (7 << 76) | (0b10 << 62) | 0x1234;
    Uuid::from_u128(bytes).to_string()
}

fn check(rule: &KeyTimeRule, key: &str, headers: &HeaderMap, now: Timestamp) -> Result<(), Reason> {
    let key = Key::new(key, &KeyRule::any()).unwrap();
    let checked = rule.check(&key, headers, now, HOUR);
    checked.map_err(|refusal| refusal.reason)
}

fn sent(lines: &[&str]) -> HeaderMap {
    let lines = lines.iter().map(|line| (FIRST_SENT, line.parse().unwrap()));
    lines.collect()
}

/// Both ways to say the same time.
fn ways() -> [(KeyTimeRule, String, HeaderMap); 2] {
    let date = sent(&["Fri, 01 Dec 2023 00:00:00 GMT"]);
    [
        (rule(KeyTime::UuidV7), v7(MADE), HeaderMap::new()),
        (rule(KeyTime::Header(FIRST_SENT)), "any".to_owned(), date),
    ]
}

#[test]
fn a_key_is_good_as_long_as_its_answer_is_surely_kept() {
    let tick = Duration::from_millis(1);
    for (rule, key, headers) in ways() {
        let at = |now| check(&rule, &key, &headers, now);
        let ahead = Timestamp::from_millis(MADE.as_millis() - millis(5 * MINUTE));
        let too_far_ahead = Timestamp::from_millis(ahead.as_millis() - 1);

        assert_eq!(at(MADE), Ok(()));
        assert_eq!(at(MADE.plus(55 * MINUTE)), Ok(()));
        assert_eq!(at(MADE.plus(55 * MINUTE + tick)), Err(Reason::KeyOutOfTime));
        assert_eq!(at(ahead), Ok(()));
        assert_eq!(at(too_far_ahead), Err(Reason::KeyOutOfTime));
    }
}

/// The worst that a client's clock may be: its key's answer is stored at once, and kept for an hour.
#[test]
fn a_key_of_a_fast_clock_is_not_taken_after_its_answer_is_forgotten() {
    for (rule, key, headers) in ways() {
        let first = Timestamp::from_millis(MADE.as_millis() - millis(rule.ahead_max));
        let forgotten = first.plus(HOUR + Duration::from_millis(1));

        assert_eq!(check(&rule, &key, &headers, first), Ok(()));
        assert_eq!(
            check(&rule, &key, &headers, forgotten),
            Err(Reason::KeyOutOfTime)
        );
    }
}

#[test]
fn a_key_without_a_readable_time_is_a_bad_key() {
    let (by_key, by_header) = (rule(KeyTime::UuidV7), rule(KeyTime::Header(FIRST_SENT)));
    for key in [
        "order-7",
        "550e8400-e29b-41d4-a716-446655440000",
        &v7(MADE).replace('-', ""),
        &format!("{{{}}}", v7(MADE)),
    ] {
        let checked = check(&by_key, key, &HeaderMap::new(), MADE);
        assert_eq!(checked, Err(Reason::BadKey), "{key}");
    }
    for lines in [
        &[][..],
        &["yesterday"],
        &["2023-12-01T00:00:00Z"],
        &["1701388800"],
        &[
            "Fri, 01 Dec 2023 00:00:00 GMT",
            "Fri, 01 Dec 2023 00:00:00 GMT",
        ],
    ] {
        let checked = check(&by_header, "k", &sent(lines), MADE);
        assert_eq!(checked, Err(Reason::BadKey), "{lines:?}");
    }
}

#[test]
fn where_a_time_is_can_be_written() {
    for text in ["uuid-v7", "header:repeatability-first-sent"] {
        assert_eq!(text.parse::<KeyTime>().unwrap().to_string(), text);
    }
    for wrong in ["", "uuid", "header:", "header:two words", "date"] {
        let told = wrong.parse::<KeyTime>().unwrap_err();
        assert!(told.contains("write uuid-v7 or header:NAME"), "{told}");
    }
}
