//! Which members of a JSON body count, and how its numbers do.

use super::super::{FingerprintRule, Numbers};
use super::{Request, rule};
use crate::policy::Pointer;

fn json(body: &str) -> Request {
    Request::of("application/json", body)
}

fn places(places: &[&str]) -> Vec<Pointer> {
    places.iter().map(|place| place.parse().unwrap()).collect()
}

fn same(rule: &FingerprintRule, one: &str, other: &str) -> bool {
    json(one).under(rule) == json(other).under(rule)
}

#[test]
fn what_is_left_out_does_not_count_there_or_not() {
    let rule = FingerprintRule {
        except: places(&["/trace", "/order/at"]),
        ..rule()
    };
    let body = r#"{"order":{"id":1,"at":5},"trace":"x"}"#;

    assert!(same(
        &rule,
        body,
        r#"{"trace":["y"],"order":{"at":6,"id":1}}"#
    ));
    assert!(same(&rule, body, r#"{"order":{"id":1}}"#));
    assert!(same(
        &rule,
        body,
        r#"{"trace":1,"order":{"id":1},"trace":2}"#
    ));
    assert!(!same(
        &rule,
        body,
        r#"{"order":{"id":2,"at":5},"trace":"x"}"#
    ));
    assert!(!same(&rule, body, r#"{"order":{"id":1,"at":5,"to":1}}"#));
    assert!(!same(&rule, body, r#"{"order":{"id":1},"at":5}"#));
}

#[test]
fn what_is_chosen_counts_and_nothing_else() {
    let rule = FingerprintRule {
        only: places(&["/amount", "/to/iban"]),
        ..rule()
    };
    let body = r#"{"amount":5,"to":{"iban":"X","name":"bob"}}"#;

    assert!(same(
        &rule,
        body,
        r#"{"to":{"name":"eve","iban":"X"},"amount":5,"n":1}"#
    ));
    assert!(!same(&rule, body, r#"{"amount":6,"to":{"iban":"X"}}"#));
    assert!(!same(&rule, body, r#"{"amount":5,"to":{"iban":"Y"}}"#));
    assert!(!same(&rule, r#"{"amount":null}"#, r#"{"x":1}"#));
    // A value cannot pass for one in another place, nor two for one.
    assert!(!same(&rule, r#"{"amount":"X"}"#, r#"{"to":{"iban":"X"}}"#));
    assert!(!same(
        &rule,
        r#"{"amount":5}"#,
        r#"{"amount":5,"amount":6}"#
    ));
}

#[test]
fn a_body_that_is_not_json_counts_whole() {
    let rule = FingerprintRule {
        only: places(&["/a"]),
        except: places(&["/b"]),
        ..rule()
    };

    assert!(!same(&rule, "{broken", "{broken too"));
    let text = |body: &str| Request::of("text/plain", body);
    assert_ne!(text("1").under(&rule), text("2").under(&rule));
}

#[test]
fn numbers_count_by_digits_or_by_value() {
    let by_value = FingerprintRule {
        numbers: Numbers::Value,
        ..rule()
    };
    for (one, other, equal) in [
        (r#"{"a":1.0}"#, r#"{"a":1}"#, true),
        (r#"{"a":[1e2, -0]}"#, r#"{"a":[100,0]}"#, true),
        (r#"{"b":2.50,"a":1}"#, r#"{"a":1.0,"b":25e-1}"#, true),
        ("1.0", "1", true),
        (r#"{"a":1}"#, r#"{"a":"1"}"#, false),
        (r#"{"a":null}"#, "{}", false),
        ("[1,2]", "[2,1]", false),
        (
            r#"{"a":9007199254740993}"#,
            r#"{"a":9007199254740992}"#,
            false,
        ),
        (r#"{"a":0.1}"#, r#"{"a":0.10000000000000001}"#, false),
        // A number that has no value in reach: the bodies count by their bytes.
        (
            r#"{"a":1e99999999999999999999}"#,
            r#"{"a": 1e99999999999999999999}"#,
            false,
        ),
    ] {
        assert_eq!(same(&by_value, one, other), equal, "{one} {other}");
        assert!(!same(&rule(), one, other) || !equal, "{one} {other}");
    }
}
