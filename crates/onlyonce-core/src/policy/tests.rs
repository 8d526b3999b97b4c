//! The rules that compute something: time-to-live headers, which outcomes are stored, which methods
//! need a key, and the tables of refusals.

use super::*;

const MAX: Duration = Duration::from_secs(3600);

fn ttl(unit: TtlUnit) -> TtlRule {
    TtlRule {
        header: HeaderName::from_static("idempotency-ttl"),
        unit,
        min: Duration::from_secs(1),
        max: MAX,
    }
}

#[test]
fn rules_that_make_no_sense_are_brought_within_their_bounds() {
    let mut nonsense = Policy {
        lease_for: Duration::ZERO,
        keep_for: Duration::ZERO,
        execution_max: Duration::ZERO,
        duplicate: Duplicate::Wait(Duration::MAX),
        retry_after: Duration::MAX,
        waiters_max: usize::MAX,
        local_waiters_max: usize::MAX,
        ttl: Some(TtlRule {
            min: MAX,
            max: Duration::ZERO,
            ..ttl(TtlUnit::Seconds)
        }),
        ..Policy::default()
    };
    nonsense.limits.request_bytes_max = usize::MAX;
    nonsense.limits.response_bytes_max = usize::MAX;
    nonsense.limits.header_bytes_max = usize::MAX;
    assert!(!nonsense.is_bounded());

    let bounded = nonsense.bounded();

    assert!(bounded.is_bounded());
    assert!(bounded.lease_for / 3 > Duration::from_millis(1));
    let asked = bounded.ttl.as_ref().unwrap().parse(b"60");
    assert_eq!(
        asked,
        Ok(MAX),
        "a shortest above the longest does not panic"
    );
    assert_eq!(bounded.clone().bounded(), bounded);
}

#[test]
fn each_rule_beyond_its_bounds_is_seen_alone() {
    let wrong: [fn(&mut Policy); 10] = [
        |it| it.lease_for = Duration::ZERO,
        |it| it.lease_for = Duration::MAX,
        |it| it.keep_for = Duration::ZERO,
        |it| it.keep_for = Duration::MAX,
        |it| it.execution_max = Duration::ZERO,
        |it| it.execution_max = Duration::MAX,
        |it| it.duplicate = Duplicate::Wait(Duration::MAX),
        |it| it.retry_after = Duration::MAX,
        |it| it.local_waiters_max = usize::MAX,
        |it| it.limits.response_bytes_max = usize::MAX,
    ];

    for (number, change) in wrong.into_iter().enumerate() {
        let mut policy = Policy::default();
        change(&mut policy);
        assert!(!policy.is_bounded(), "{number}");
        assert!(policy.bounded().is_bounded(), "{number}");
    }
}

#[test]
fn every_profile_is_within_the_bounds() {
    for profile in crate::profile::all() {
        let policy = profile.policy();
        assert_eq!(policy.clone().bounded(), policy, "{profile}");
    }
}

#[test]
fn a_whole_number_is_a_time_to_live() {
    let millis = Duration::from_millis;
    let table = [
        ("60", Duration::from_secs(60), Duration::from_secs(1)),
        ("1", Duration::from_secs(1), Duration::from_secs(1)),
        ("3600", MAX, millis(3600)),
        ("2500", Duration::from_secs(2500), millis(2500)),
        ("  60\t", Duration::from_secs(60), Duration::from_secs(1)),
        ("0060", Duration::from_secs(60), Duration::from_secs(1)),
    ];

    for (value, seconds, milliseconds) in table {
        let read = |unit| ttl(unit).parse(value.as_bytes());
        assert_eq!(read(TtlUnit::Seconds), Ok(seconds), "{value:?}");
        assert_eq!(read(TtlUnit::Milliseconds), Ok(milliseconds), "{value:?}");
    }
}

#[test]
fn a_time_to_live_beyond_the_policy_is_clamped() {
    let huge = "9".repeat(500);

    for unit in [TtlUnit::Seconds, TtlUnit::Milliseconds] {
        for value in [
            "3600001",
            "18446744073709551615",
            "18446744073709551616",
            &huge,
        ] {
            assert_eq!(ttl(unit).parse(value.as_bytes()), Ok(MAX), "{value}");
        }
        for value in ["0", "000"] {
            let least = Duration::from_secs(1);
            assert_eq!(ttl(unit).parse(value.as_bytes()), Ok(least), "{value}");
        }
    }
}

#[test]
fn anything_but_a_whole_number_is_no_time_to_live() {
    let values: [&[u8]; 17] = [
        b"",
        b" ",
        b"-1",
        b"+1",
        b"1.5",
        b"1e3",
        b"0x10",
        b"1_000",
        b"1,000",
        b"1 000",
        b"60s",
        b"soon",
        b"\"60\"",
        b"60, 60",
        b"\xff",
        b"6\x000",
        "٦٠".as_bytes(),
    ];

    for value in values {
        for unit in [TtlUnit::Seconds, TtlUnit::Milliseconds] {
            assert!(ttl(unit).parse(value).is_err(), "{value:?}");
        }
    }
}

#[test]
fn a_bad_time_to_live_says_what_would_be_right() {
    let shown = |unit| ttl(unit).parse(b"soon").unwrap_err().to_string();

    assert_eq!(
        shown(TtlUnit::Seconds),
        "idempotency-ttl must be a whole number of seconds"
    );
    assert_eq!(
        shown(TtlUnit::Milliseconds),
        "idempotency-ttl must be a whole number of milliseconds"
    );
}

#[test]
fn a_stored_rule_stores_what_it_says() {
    let before_the_work = StoredRule::all().except(&[401, 503]);
    let table = [
        (
            StoredRule::all(),
            &[100, 200, 204, 302, 400, 401, 500, 503, 599, 999][..],
            &[][..],
        ),
        (
            StoredRule::success(),
            &[200, 201, 204, 299],
            &[100, 199, 300, 304, 400, 500, 999],
        ),
        (
            StoredRule::all().below(500),
            &[100, 200, 404, 499],
            &[500, 503, 599, 999],
        ),
        (
            before_the_work.clone(),
            &[200, 400, 402, 500, 504],
            &[401, 503],
        ),
        (
            before_the_work.clone().below(500),
            &[200, 404],
            &[401, 500, 503],
        ),
        (
            before_the_work.except(&[429]),
            &[200, 428],
            &[401, 429, 503],
        ),
        (
            StoredRule::success().except(&[204]),
            &[200, 205],
            &[204, 404],
        ),
    ];

    for (rule, stored, not_stored) in table {
        for status in stored {
            assert!(rule.stores(*status), "{status} under {rule:?}");
        }
        for status in not_stored {
            assert!(!rule.stores(*status), "{status} under {rule:?}");
        }
    }
}

#[test]
fn the_bounds_of_a_stored_rule_are_the_first_stored_and_the_first_not() {
    let rule = StoredRule {
        from: 200,
        below: 500,
        except: vec![],
    };

    let edges = [199, 200, 499, 500].map(|status| rule.stores(status));

    assert_eq!(edges, [false, true, true, false]);
}

#[test]
fn unsafe_methods_are_those_that_change_something() {
    let methods = Methods::Unsafe(KeyNeed::Required);
    let unusual = Method::from_bytes(b"PURGE").unwrap();

    for method in [
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        unusual,
    ] {
        assert_eq!(methods.need(&method), Some(KeyNeed::Required), "{method}");
    }
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
        assert_eq!(methods.need(&method), None, "{method}");
    }
}

#[test]
fn listed_methods_have_their_own_need() {
    let methods = Methods::Only(vec![
        (Method::POST, KeyNeed::Required),
        (Method::PUT, KeyNeed::Optional),
    ]);

    assert_eq!(methods.need(&Method::POST), Some(KeyNeed::Required));
    assert_eq!(methods.need(&Method::PUT), Some(KeyNeed::Optional));
    assert_eq!(methods.need(&Method::DELETE), None);
    let all = methods.all_need(KeyNeed::Optional);
    assert_eq!(all.need(&Method::POST), Some(KeyNeed::Optional));
    assert_eq!(all.need(&Method::DELETE), None);
    let unsafe_ones = Methods::Unsafe(KeyNeed::Optional).all_need(KeyNeed::Required);
    assert_eq!(unsafe_ones.need(&Method::POST), Some(KeyNeed::Required));
}

#[test]
fn only_a_duplicate_that_waits_has_patience() {
    assert_eq!(Duplicate::Wait(MAX).patience(), MAX);
    assert_eq!(Duplicate::Refuse.patience(), Duration::ZERO);
}

#[test]
fn a_table_answers_every_reason_and_one_status_can_be_changed() {
    let mut table = RefusalTable::of(Vec::from(Reason::ALL.map(|reason| RefusalRow {
        reason,
        status: 400,
        code: reason.name().to_owned(),
        kind: None,
        marks: None,
        retryable: false,
        retry_after: None,
    })));
    table.set_status(Reason::Mismatch, 422);

    for reason in Reason::ALL {
        let row = table.row(reason);
        assert_eq!(row.reason, reason);
        assert_eq!(row.code, reason.name());
        let status = if reason == Reason::Mismatch { 422 } else { 400 };
        assert_eq!(row.status, status, "{reason:?}");
    }
}
