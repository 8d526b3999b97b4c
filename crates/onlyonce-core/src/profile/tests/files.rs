//! Contracts as files: every value can be written, and what is wrong says what would be right.

use proptest::prelude::*;

use super::*;
use crate::policy::{BodyMarks, DeriveRule, KeyTime, KeyTimeRule, Methods, StoredRule, TtlRule};

#[test]
fn a_preset_is_its_file_over_its_base_and_its_whole_text_gives_it_again() {
    for profile in Profile::ALL {
        let policy = profile.policy();

        assert_eq!(Profile::from_toml(profile.file()), Ok(policy.clone()));
        assert_eq!(
            Profile::from_toml(&policy.to_toml()),
            Ok(policy),
            "{profile}"
        );
    }
}

#[test]
fn every_preset_says_what_it_is_for_and_only_standard_has_no_base() {
    for profile in Profile::ALL {
        let rules = Rules::read(profile.file()).unwrap();

        assert!(rules.about.is_some(), "{profile}");
        assert_eq!(rules.base.is_none(), profile == Profile::Standard);
        assert!(!profile.about().is_empty());
    }
}

/// A base is merged member by member, so a file says no more than its differences.
#[test]
fn a_contract_of_one_s_own_differs_from_its_base_in_what_it_says() {
    let policy = Profile::from_toml(
        "base = \"stripe\"\nttl = \"7d\"\n[refusals]\nmismatch = { status = 409 }\n",
    )
    .unwrap();

    let mut expected = Profile::Stripe.policy();
    expected.keep_for = 7 * DAY;
    expected.http.refusals.set_status(Reason::Mismatch, 409);
    assert_eq!(policy, expected);
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_what_would_be_right() {
    for (text, told) in [
        (
            "base = \"strype\"",
            "unknown profile \"strype\"; there are: standard",
        ),
        (
            "\nwaiters = 5",
            "line 2: unknown field `waiters`, expected one of `base`",
        ),
        (
            "\n\nttl = \"0s\"",
            "line 3: `0s` is too short: write a length of time from 1s",
        ),
        ("ttl = 5", "line 1: `5` has no unit"),
        (
            "wait = \"forever\"",
            "line 1: `forever` is not a length of time",
        ),
        (
            "methods = \"POST\"",
            "line 1: `POST` is not right here: write `unsafe` or a list",
        ),
        (
            "methods = [\"post\"]",
            "line 1: `post` is not a method: write it like POST",
        ),
        ("methods = 5", "`unsafe` or a list of methods"),
        (
            "key = [\"GET\"]",
            "key: GET is not among the covered `methods`",
        ),
        (
            "methods = \"unsafe\"\nkey = [\"POST\"]",
            "goes with a list of `methods`",
        ),
        (
            "key_charset = \"ascii\"",
            "unknown variant `ascii`, expected one of `url-safe`",
        ),
        (
            "scope = [\"tenant\"]",
            "is not a part of a scope; there are route, caller",
        ),
        (
            "replay_marks = [\"replayed\"]",
            "like \"idempotent-replayed: true\"",
        ),
        (
            "replay_marks = [\"a: {what}\"]",
            "may be {key}, {expires} or {original-time}",
        ),
        (
            "key_header = \"two words\"",
            "is not a header name: write one like",
        ),
        (
            "[stored]\nfrom = 300\nbelow = 300",
            "stored.below: `below` must be above `from`",
        ),
        ("[stored]\nexcept = [99]", "line 2: `99` is too small"),
        (
            "[refusals]\nno-key = { status = 400 }",
            "there is no refusal `no-key`; there are missing-key",
        ),
        (
            "[refusals]\nmismatch = { status = 302 }",
            "refusals.mismatch.status: 302 does not say",
        ),
        (
            "[refusals]\nmismatch = { status = 202 }",
            "only in-progress may be 202",
        ),
        ("ttl_header = \"x-ttl\"", "line 1: "),
        (
            "key_member = \"/a~b\"",
            "is not a place in a JSON body: write ~ as ~0",
        ),
        (
            "[fingerprint]\nexcept = [\"\"]",
            "is not a place in a JSON body: write a JSON Pointer",
        ),
        (
            "key_time = { from = \"date\", ahead_max = \"5m\" }",
            "write uuid-v7 or header:NAME",
        ),
        (
            "ttl = \"5m\"\nkey_time = { from = \"uuid-v7\", ahead_max = \"5m\" }",
            "key_time.ahead_max: `ttl` must be longer",
        ),
        (
            "base = \"middleware\"\nkey_time = { from = \"uuid-v7\", ahead_max = \"5m\" }",
            "key_time: it cannot go with a `ttl_header`",
        ),
        (
            "ttl_header = { name = \"a\", unit = \"seconds\", min = \"2s\", max = \"1s\" }",
            "`max` is below `min`",
        ),
    ] {
        let error = Profile::from_toml(text).unwrap_err().to_string();

        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn a_running_duplicate_may_be_answered_with_202_or_425() {
    for status in [202, 425] {
        let text = format!("wait = \"0s\"\n[refusals]\nin-progress = {{ status = {status} }}");

        let policy = Profile::from_toml(&text).unwrap();

        assert_eq!(policy.http.refusals.row(Reason::InProgress).status, status);
        assert_eq!(policy.duplicate, Duplicate::Refuse);
    }
}

#[test]
fn rules_alone_are_no_policy() {
    let error = Rules::read("ttl = \"1h\"").unwrap().policy().unwrap_err();

    assert!(error.why.contains("there is no base that gives it"));
    assert!(matches!(ProfileError::from(error), ProfileError::Rules(_)));
}

prop_compose! {
    /// A policy that differs from a preset in anything that a file may say.
    fn policies()(
        preset in 0..Profile::ALL.len(),
        flags in any::<[bool; 12]>(),
        millis in 1_000_u64..3_600_000,
        count in 1_usize..1000,
        status in 400_u16..600,
    ) -> Policy {
        let mut policy = Profile::ALL[preset].policy();
        let span = Duration::from_millis(millis);
        policy.key.bytes_max = count;
        policy.key.random = flags[0];
        policy.key.charset = if flags[1] { Charset::Visible } else { Charset::UuidV4 };
        policy.fingerprint.method = flags[2];
        policy.fingerprint.path = flags[3];
        policy.fingerprint.query = flags[4];
        policy.fingerprint.content_type = flags[5];
        policy.fingerprint.headers = vec![http::header::ACCEPT; usize::from(flags[6])];
        policy.fingerprint.body = if flags[6] { BodyRule::Bytes } else { BodyRule::Canonical };
        (policy.lease_for, policy.keep_for, policy.execution_max) = (span, span, span);
        policy.retry_after = span;
        policy.duplicate = if flags[7] { Duplicate::Wait(span) } else { Duplicate::Refuse };
        policy.on_lapse = if flags[8] { OnLapse::Hold } else { OnLapse::Rerun };
        policy.store_down = if flags[9] { StoreDown::Open } else { StoreDown::Closed };
        (policy.waiters_max, policy.local_waiters_max) = (count, count + 1);
        policy.limits.request_bytes_max = count;
        policy.limits.header_bytes_max = count;
        policy.stored = StoredRule { from: 200, below: status, except: vec![status, 404] };
        policy.ttl = flags[10].then(|| TtlRule {
            header: http::header::AGE,
            unit: TtlUnit::Seconds,
            min: span,
            max: span * 2,
        });
        policy.http.methods = if flags[11] {
            Methods::Unsafe(KeyNeed::Required)
        } else {
            Methods::Only(vec![(Method::GET, KeyNeed::Required), (Method::PUT, KeyNeed::Optional)])
        };
        policy.http.key_member = flags[0].then(|| "a \"quoted\" member".parse().unwrap());
        policy.http.actor_type = flags[5].then(|| "jwt:kind".parse().unwrap());
        policy.http.key_first = if flags[1] { KeyFirst::Body } else { KeyFirst::Header };
        policy.http.key_time = (flags[3] && !flags[10]).then(|| KeyTimeRule {
            from: if flags[4] { KeyTime::UuidV7 } else { KeyTime::Header(http::header::DATE) },
            ahead_max: Duration::from_millis(millis / 2),
        });
        policy.fingerprint.only = vec!["/a~1b".parse().unwrap(); usize::from(flags[7])];
        policy.fingerprint.except = vec!["/\"/0".parse().unwrap(); usize::from(flags[8])];
        policy.fingerprint.numbers = if flags[9] { Numbers::Value } else { Numbers::Digits };
        policy.http.derive = flags[1].then(|| DeriveRule {
            context_field: "c".into(),
            data_field: "d".into(),
            trim: flags[2],
        });
        policy.http.body_marks = flags[3].then(|| BodyMarks {
            flag: "f".into(),
            submitted_at: "s".into(),
            message: "m".into(),
            message_text: "line\none".into(),
        });
        policy.http.refusals.set_status(Reason::Mismatch, status);
        policy.http.scope = vec![ScopePart::PathAfter("x".into()), ScopePart::Jwt("sub".into())];
        policy
    }
}

proptest! {
    /// Nothing that a policy can be is out of a file's reach.
    #[test]
    fn every_value_of_a_policy_can_be_written(policy in policies()) {
        let text = policy.to_toml();

        prop_assert_eq!(Profile::from_toml(&text), Ok(policy), "{}", text);
    }
}
