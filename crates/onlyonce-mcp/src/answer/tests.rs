use super::*;

fn told(reason: Reason, on_lapse: OnLapse) -> String {
    let audience = Audience {
        origin: KeyOrigin::Sent,
        says_complete: false,
        on_lapse,
    };
    advice(reason, &audience)
}

#[test]
fn nothing_was_run_is_said_only_of_a_key_that_can_never_have_run() {
    let never = [
        Reason::BadKey,
        Reason::MissingKey,
        Reason::BadTtl,
        Reason::Unscoped,
    ];
    for reason in Reason::ALL {
        for on_lapse in [OnLapse::Hold, OnLapse::Rerun] {
            let told = told(reason, on_lapse);

            let claims = told.to_lowercase().contains("nothing was run");
            assert_eq!(claims, never.contains(&reason), "{}: {told}", reason.name());
        }
    }
}

#[test]
fn a_model_is_told_that_the_same_key_may_run_the_tool_again() {
    let again = |on_lapse| told(Reason::OutcomeUnknown, on_lapse).contains("may run again");

    assert!(again(OnLapse::Rerun));
    assert!(!again(OnLapse::Hold));
}
