use serde_json::json;

use super::{Effect, Ending, Hold, Story, judge};
use crate::plan::Kind;

fn effect(number: u64, what: &str, repeats: Option<u64>) -> Effect {
    Effect {
        number,
        what: what.to_owned(),
        repeats,
    }
}

fn answered(number: u64) -> Ending {
    Ending::Answered(json!({"charge": number}))
}

/// One kill, one effect, one answer.
fn sound() -> Story {
    Story {
        kills: 1,
        ending: answered(7),
        hold: None,
        replays: vec![answered(7), answered(7)],
        effects: vec![effect(7, "charge", None)],
    }
}

fn held(hold: Option<Hold>) -> Story {
    Story {
        ending: Ending::Held,
        hold,
        ..sound()
    }
}

#[test]
fn one_effect_and_one_answer_are_right_for_every_kind_of_one_effect() {
    for kind in [
        Kind::Transactional,
        Kind::Keyed,
        Kind::Readable,
        Kind::Opaque,
        Kind::Job,
    ] {
        assert_eq!(judge(kind, &sound()), [""; 0], "{kind:?}");
    }
}

#[test]
fn a_second_effect_is_found() {
    let mut story = sound();
    story.effects.insert(0, effect(6, "charge", None));

    assert_eq!(judge(Kind::Keyed, &story)[0], "charge happened 2 times");
}

#[test]
fn an_answer_without_its_effect_or_of_another_one_is_found() {
    let mut nothing = sound();
    nothing.effects.clear();
    let mut other = sound();
    other.effects = vec![effect(8, "charge", None)];

    assert_eq!(judge(Kind::Job, &nothing).len(), 1);
    assert_eq!(judge(Kind::Job, &other).len(), 1);
}

#[test]
fn doubt_is_right_only_where_nothing_settles_it_and_an_operator_can() {
    let seen = Hold {
        is_listed: true,
        is_resolved: true,
    };
    let unseen = Hold::default();
    let stuck = Hold {
        is_listed: true,
        is_resolved: false,
    };

    assert_eq!(judge(Kind::Opaque, &held(Some(seen.clone()))), [""; 0]);
    assert_eq!(judge(Kind::Readable, &held(Some(seen))).len(), 1);
    assert_eq!(judge(Kind::Opaque, &held(Some(unseen))).len(), 1);
    assert_eq!(judge(Kind::Opaque, &held(Some(stuck))).len(), 1);
    assert_eq!(judge(Kind::Opaque, &held(None)).len(), 2);
}

#[test]
fn what_is_never_settled_is_found() {
    let story = Story {
        ending: Ending::Unsettled("503".to_owned()),
        replays: Vec::new(),
        ..sound()
    };

    assert_eq!(judge(Kind::Transactional, &story).len(), 1);
}

#[test]
fn a_retry_with_another_answer_is_found() {
    let mut story = sound();
    story.replays[1] = answered(8);

    assert_eq!(judge(Kind::Readable, &story).len(), 1);
}

#[test]
fn a_finished_step_that_runs_again_is_found_and_one_that_was_cut_off_may() {
    let mut story = Story {
        ending: answered(3),
        replays: vec![answered(3)],
        effects: vec![
            effect(0, "reserve", None),
            effect(1, "reserve", Some(0)),
            effect(2, "charge", None),
            effect(3, "mail", None),
        ],
        ..sound()
    };
    assert_eq!(judge(Kind::Steps, &story), [""; 0]);

    story.effects.push(effect(4, "charge", Some(2)));

    assert_eq!(judge(Kind::Steps, &story).len(), 1);
}
