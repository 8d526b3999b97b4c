//! The presets against the table of profiles in the requirements: a changed cell fails here.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;

use super::{Policy, Profile, ProfileError, Rules};
use crate::fingerprint::{BodyRule, Numbers};
use crate::key::Charset;
use crate::policy::{
    Duplicate, Envelope, KeyFirst, KeyNeed, Mark, Pointer, ReplayStatus, ScopePart, StoreDown,
    TtlUnit,
};
use crate::record::OnLapse;
use crate::refusal::Reason;

mod files;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn a_profile_is_known_by_its_name() {
    for profile in Profile::ALL {
        assert_eq!(profile.name().parse(), Ok(profile));
        assert_eq!(profile.to_string(), profile.name());
    }
    let names: BTreeSet<_> = Profile::ALL.map(Profile::name).into();
    assert_eq!(names.len(), Profile::ALL.len());
}

#[test]
fn an_unknown_name_is_answered_with_all_there_are() {
    for name in ["", "Standard", "standard ", "formbridge-009", "none"] {
        let shown = name.parse::<Profile>().unwrap_err().to_string();

        assert!(shown.contains(&format!("{name:?}")), "{shown}");
        for profile in Profile::ALL {
            assert!(shown.contains(profile.name()), "{shown}");
        }
    }
}

#[test]
fn the_default_policy_is_the_standard_profile() {
    assert_eq!(Policy::default(), Profile::Standard.policy());
}

#[test]
fn every_refusal_has_a_row_with_an_error_status_and_a_code() {
    for profile in Profile::ALL {
        let table = profile.policy().http.refusals;
        for reason in Reason::ALL {
            let row = table.row(reason);
            assert_eq!(row.reason, reason, "{profile}");
            assert!((400..600).contains(&row.status), "{profile} {row:?}");
            assert!(!row.code.is_empty(), "{profile} {row:?}");
            assert!(row.code.is_ascii(), "{profile} {row:?}");
        }
    }
}

/// What did not happen, or may still happen, can be tried again; what is settled cannot.
#[test]
fn a_refusal_may_be_retried_only_where_that_can_help() {
    for profile in Profile::ALL {
        let table = profile.policy().http.refusals;
        for reason in Reason::ALL {
            let can_help = match reason {
                Reason::RequestUnreadable
                | Reason::InProgress
                | Reason::TooManyWaiters
                | Reason::TooManyRunning
                | Reason::TooMuchBuffered
                | Reason::OverQuota
                | Reason::TooManyBadRequests
                | Reason::TimedOut
                | Reason::NotRun
                | Reason::NotStored
                | Reason::StoreDown
                | Reason::ShuttingDown => true,
                Reason::MissingKey
                | Reason::BadKey
                | Reason::KeyOutOfTime
                | Reason::BadTtl
                | Reason::Unscoped
                | Reason::Unverified
                | Reason::RequestTooLarge
                | Reason::RequestEncoded
                | Reason::Mismatch
                | Reason::OtherCredential
                | Reason::OutcomeUnknown
                | Reason::Panicked
                | Reason::ResponseTooLarge => false,
            };
            assert_eq!(
                table.row(reason).retryable,
                can_help,
                "{profile} {reason:?}"
            );
        }
    }
}

#[test]
fn refusals_have_the_statuses_of_their_profile() {
    // missing key, bad key, mismatch, in progress, too many waiters, unknown, store down, too large
    let table = [
        (Profile::Standard, [400, 400, 422, 409, 429, 409, 503, 507]),
        (
            Profile::Formbridge,
            [400, 400, 409, 503, 503, 409, 503, 507],
        ),
        (
            Profile::Formbridge008,
            [400, 400, 422, 409, 503, 409, 503, 507],
        ),
        (Profile::Broker, [400, 400, 422, 409, 503, 409, 503, 507]),
        (Profile::Guardian, [400, 400, 422, 409, 409, 409, 503, 507]),
        (
            Profile::Middleware,
            [400, 422, 409, 409, 429, 409, 503, 507],
        ),
        (Profile::Ietf, [400, 400, 422, 409, 429, 409, 503, 507]),
        (Profile::Stripe, [400, 400, 400, 409, 429, 409, 503, 507]),
        (Profile::StripeV2, [400, 400, 400, 409, 429, 409, 503, 507]),
        (
            Profile::RepeatableRequests,
            [400, 400, 400, 409, 409, 409, 503, 507],
        ),
        (Profile::Aip155, [400, 400, 400, 409, 409, 500, 503, 507]),
        (Profile::Paypal, [400, 400, 422, 409, 409, 409, 503, 507]),
        (Profile::Square, [400, 400, 400, 409, 409, 409, 503, 507]),
        (Profile::Acp, [400, 400, 422, 409, 409, 409, 503, 507]),
    ];
    let reasons = [
        Reason::MissingKey,
        Reason::BadKey,
        Reason::Mismatch,
        Reason::InProgress,
        Reason::TooManyWaiters,
        Reason::OutcomeUnknown,
        Reason::StoreDown,
        Reason::ResponseTooLarge,
    ];

    for (profile, statuses) in table {
        let refusals = profile.policy().http.refusals;
        let found = reasons.map(|reason| refusals.row(reason).status);
        assert_eq!(found, statuses, "{profile}");
    }
}

#[test]
fn codes_that_clients_know_are_kept() {
    let code = |profile: Profile, reason| {
        let refusals = profile.policy().http.refusals;
        refusals.row(reason).code.clone()
    };

    assert_eq!(code(Profile::Formbridge, Reason::Mismatch), "conflict");
    assert_eq!(
        code(Profile::Formbridge, Reason::StoreDown),
        "service_unavailable"
    );
    assert_eq!(
        code(Profile::Guardian, Reason::InProgress),
        "CONCURRENT_REQUEST"
    );
    assert_eq!(code(Profile::Stripe, Reason::Mismatch), "idempotency_error");
    for reason in Reason::ALL {
        assert_eq!(code(Profile::Standard, reason), reason.name());
    }
}

#[test]
fn methods_are_covered_as_their_profile_says() {
    use KeyNeed::{Optional, Required};
    let (some, must, none) = (Some(Optional), Some(Required), None);
    // POST, PUT, PATCH, DELETE, GET
    let table = [
        (Profile::Standard, [some, some, some, some, none]),
        (Profile::Formbridge, [some, some, some, none, none]),
        (Profile::Formbridge008, [must, some, some, none, none]),
        (Profile::Broker, [some, none, none, none, none]),
        (Profile::Guardian, [must, must, must, must, none]),
        (Profile::Middleware, [some, some, some, some, none]),
        (Profile::Ietf, [must, none, must, none, none]),
        (Profile::Stripe, [some, none, none, none, none]),
        (Profile::StripeV2, [some, none, none, some, none]),
        (Profile::RepeatableRequests, [some, some, some, some, none]),
        (Profile::Aip155, [some, some, some, some, none]),
        (Profile::Paypal, [some, none, none, none, none]),
        (Profile::Square, [some, some, none, none, none]),
        (Profile::Acp, [must, none, none, none, none]),
    ];
    let methods = [
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::GET,
    ];

    for (profile, needs) in table {
        let covered = profile.policy().http.methods;
        let found = methods.clone().map(|method| covered.need(&method));
        assert_eq!(found, needs, "{profile}");
    }
}

#[test]
fn keys_are_bound_as_their_profile_says() {
    let table = [
        (Profile::Standard, 255, Charset::Visible),
        (Profile::Formbridge, 255, Charset::UrlSafe),
        (Profile::Formbridge008, 256, Charset::Text),
        (Profile::Broker, 255, Charset::Text),
        (Profile::Guardian, 255, Charset::UuidV4),
        (Profile::Middleware, 200, Charset::Text),
        (Profile::Ietf, 255, Charset::Text),
        (Profile::Stripe, 255, Charset::Text),
        (Profile::StripeV2, 255, Charset::Text),
        (Profile::RepeatableRequests, 255, Charset::Visible),
        (Profile::Aip155, 36, Charset::Visible),
        (Profile::Paypal, 108, Charset::Visible),
        (Profile::Square, 255, Charset::Text),
        (Profile::Acp, 255, Charset::Text),
    ];

    for (profile, bytes_max, charset) in table {
        let rule = profile.policy().key;
        assert_eq!(
            (rule.bytes_max, rule.charset),
            (bytes_max, charset),
            "{profile}"
        );
    }
}

#[test]
fn outcomes_are_stored_as_their_profile_says() {
    // 200, 302, 400, 401, 404, 409, 429, 500, 503
    let table = [
        (Profile::Standard, "200 302 400 404 409 500"),
        (Profile::Formbridge, "200 302 400 404 409"),
        (
            Profile::Formbridge008,
            "200 302 400 401 404 409 429 500 503",
        ),
        (Profile::Broker, "200"),
        (Profile::Guardian, "200 302 400 401 404 409 429 500 503"),
        (Profile::Middleware, "200 302 400 401 404 409 429 500 503"),
        (Profile::Ietf, "200 302 400 404 409 500"),
        (Profile::Stripe, "200 302 404 500 503"),
        (Profile::StripeV2, "200"),
        (Profile::RepeatableRequests, "200 302 400 404 409"),
        (Profile::Aip155, "200"),
        (Profile::Paypal, "200 302 400 404 409"),
        (Profile::Square, "200"),
        (Profile::Acp, "200 302 400 404 409"),
    ];

    for (profile, stored) in table {
        let rule = profile.policy().stored;
        let found: Vec<_> = [200, 302, 400, 401, 404, 409, 429, 500, 503]
            .into_iter()
            .filter(|status| rule.stores(*status))
            .map(|status| status.to_string())
            .collect();
        assert_eq!(found.join(" "), stored, "{profile}");
    }
}

#[test]
fn duplicates_wait_or_not_as_their_profile_says() {
    let half_a_minute = Duration::from_secs(30);

    for profile in Profile::ALL {
        let waits = match profile {
            Profile::Standard
            | Profile::Formbridge
            | Profile::Formbridge008
            | Profile::Broker
            | Profile::Middleware => Duplicate::Wait(half_a_minute),
            Profile::Guardian
            | Profile::Ietf
            | Profile::Stripe
            | Profile::StripeV2
            | Profile::RepeatableRequests
            | Profile::Aip155
            | Profile::Paypal
            | Profile::Square
            | Profile::Acp => Duplicate::Refuse,
        };
        assert_eq!(profile.policy().duplicate, waits, "{profile}");
    }
}

#[test]
fn replays_are_marked_as_their_profile_says() {
    let table = [
        (
            Profile::Standard,
            "idempotent-replayed idempotency-key idempotency-expires",
            "idempotency-key idempotency-expires",
        ),
        (
            Profile::Formbridge,
            "idempotent-replayed x-original-request-time",
            "",
        ),
        (
            Profile::Formbridge008,
            "idempotency-key x-idempotent-replayed x-idempotent-expires",
            "idempotency-key x-idempotent-expires",
        ),
        (Profile::Broker, "", ""),
        (Profile::Guardian, "", ""),
        (
            Profile::Middleware,
            "idempotent-replay idempotency-key",
            "idempotency-key",
        ),
        (Profile::Ietf, "", ""),
        (Profile::Stripe, "idempotent-replayed", "idempotency-key"),
        (Profile::StripeV2, "idempotent-replayed", "idempotency-key"),
        (
            Profile::RepeatableRequests,
            "repeatability-result",
            "repeatability-result",
        ),
        (Profile::Aip155, "", ""),
        (Profile::Paypal, "", ""),
        (Profile::Square, "", ""),
        (
            Profile::Acp,
            "idempotent-replayed idempotency-key",
            "idempotency-key",
        ),
    ];

    for (profile, replay, first) in table {
        let http = profile.policy().http;
        assert_eq!(names(&http.replay_marks), replay, "{profile}");
        assert_eq!(names(&http.first_marks), first, "{profile}");
        let is_marked_in_body = http.body_marks.is_some();
        assert_eq!(is_marked_in_body, profile == Profile::Broker, "{profile}");
    }
}

fn names(marks: &[Mark]) -> String {
    marks
        .iter()
        .map(|mark| mark.name().to_string())
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn the_rest_differs_as_the_profiles_say() {
    for profile in Profile::ALL {
        let policy = profile.policy();

        let is_form_like = matches!(
            profile,
            Profile::Formbridge | Profile::Formbridge008 | Profile::Broker
        );
        let replays_as_ok = policy.http.replay_status == ReplayStatus::Ok;
        assert_eq!(replays_as_ok, is_form_like, "{profile}");

        let runs_unprotected = policy.store_down == StoreDown::Open;
        assert_eq!(
            runs_unprotected,
            profile == Profile::Formbridge008,
            "{profile}"
        );

        let ttl = policy.ttl.map(|rule| (rule.header.to_string(), rule.unit));
        let expected = match profile {
            Profile::Formbridge => Some(("x-idempotency-ttl".into(), TtlUnit::Milliseconds)),
            Profile::Middleware => Some(("idempotency-ttl".into(), TtlUnit::Seconds)),
            Profile::Standard
            | Profile::Formbridge008
            | Profile::Broker
            | Profile::Guardian
            | Profile::Ietf
            | Profile::Stripe
            | Profile::StripeV2
            | Profile::RepeatableRequests
            | Profile::Aip155
            | Profile::Paypal
            | Profile::Square
            | Profile::Acp => None,
        };
        assert_eq!(ttl, expected, "{profile}");

        let envelope = match profile {
            Profile::Standard | Profile::Middleware | Profile::Ietf => Envelope::Problem,
            Profile::Formbridge | Profile::Formbridge008 => Envelope::OkError,
            Profile::Broker => Envelope::SuccessError,
            Profile::Guardian | Profile::RepeatableRequests => Envelope::CodeError,
            Profile::Stripe | Profile::StripeV2 => Envelope::TypeError,
            Profile::Aip155 => Envelope::StatusError,
            Profile::Paypal => Envelope::NamedError,
            Profile::Square => Envelope::ErrorList,
            Profile::Acp => Envelope::FlatError,
        };
        assert_eq!(policy.http.envelope, envelope, "{profile}");

        let ignores_body = policy.fingerprint.body == BodyRule::Ignore;
        let expected = matches!(profile, Profile::Broker | Profile::Guardian);
        assert_eq!(ignores_body, expected, "{profile}");
    }
}

/// The numbers of the requirements, in every profile.
#[test]
fn the_default_numbers_are_those_of_the_requirements() {
    for profile in Profile::ALL {
        let policy = profile.policy();

        assert_eq!(policy.lease_for, Duration::from_secs(30), "{profile}");
        let kept = match profile.name() {
            "stripe-v2" => 30 * DAY,
            "paypal" => 45 * DAY,
            _ => DAY,
        };
        assert_eq!(policy.keep_for, kept, "{profile}");
        assert_eq!(policy.execution_max, Duration::from_secs(30), "{profile}");
        assert_eq!(policy.retry_after, Duration::from_secs(5), "{profile}");
        assert_eq!(policy.waiters_max, 10, "{profile}");
        assert!(policy.local_waiters_max > policy.waiters_max, "{profile}");
        assert_eq!(policy.limits.request_bytes_max, 1 << 20, "{profile}");
        assert_eq!(policy.limits.response_bytes_max, 1 << 20, "{profile}");
        assert_eq!(policy.on_lapse, OnLapse::Rerun, "{profile}");
    }
}

/// Where a key is besides the usual header, and what of a request is compared.
#[test]
fn keys_and_payloads_of_other_contracts_are_where_these_say() {
    for profile in Profile::ALL {
        let policy = profile.policy();
        let (http, fingerprint) = (&policy.http, &policy.fingerprint);
        let shown = |places: &[Pointer]| places.iter().map(Pointer::to_string).collect::<String>();

        let header = match profile.name() {
            "repeatable-requests" => "repeatability-request-id",
            "paypal" => "paypal-request-id",
            _ => "idempotency-key",
        };
        let member = match profile.name() {
            "aip-155" => "/request_id",
            "square" => "/idempotency_key",
            _ => "",
        };
        let time = http.key_time.as_ref().map(|rule| rule.from.to_string());
        assert_eq!(http.key_header, header, "{profile}");
        assert_eq!(shown(http.key_member.as_slice()), member, "{profile}");
        assert_eq!(shown(&fingerprint.except), member, "{profile}");
        assert_eq!(http.key_first == KeyFirst::Body, !member.is_empty());
        assert_eq!(shown(&fingerprint.only), "", "{profile}");
        assert_eq!(
            time.as_deref(),
            (header == "repeatability-request-id").then_some("header:repeatability-first-sent"),
            "{profile}"
        );
        assert_eq!(
            fingerprint.numbers == Numbers::Value,
            profile == Profile::Acp,
            "{profile}"
        );
    }
}

/// No caller may meet another's record.
#[test]
fn every_profile_keeps_callers_apart() {
    for profile in Profile::ALL {
        let scope = profile.policy().http.scope;
        assert!(scope.contains(&ScopePart::Caller), "{profile}");
    }
}

#[test]
fn a_time_to_live_is_bounded_on_both_sides() {
    for rule in Profile::ALL.into_iter().filter_map(|it| it.policy().ttl) {
        assert_eq!(rule.parse(b"0"), Ok(Duration::from_secs(1)));
        assert_eq!(rule.parse(b"99999999999999999999"), Ok(30 * DAY));
    }
}
