//! A violation of every rule, planted into a history, is found and named.

use std::collections::BTreeSet;

use onlyonce_core::Reason;
use onlyonce_testkit::history::RULES;
use onlyonce_testkit::history::log::{Ask, Ending, Fault, Heard, Reply, SeenState, What};

use super::story::{Asks, KEY, Name, PLAIN, Story, id, token};

const A: Name = (0, 1);
const B: Name = (1, 1);
const C: Name = (2, 1);

const HOLD: Asks = Asks {
    hold: true,
    ..PLAIN
};
const OTHER: Asks = Asks {
    payload: 1,
    ..PLAIN
};
const FLEETING: Asks = Asks { keep: 500, ..PLAIN };

/// A rule, and how to break it.
type Plant = (&'static str, fn(&mut Story));

const PLANTED: &[Plant] = &[
    ("a slot has at most one live lease", |story| {
        story.calls(10, A, &PLAIN).is_granted((11, 12), A);
        story.calls(20, B, &PLAIN).takes_over((21, 22), B, A);
    }),
    ("a slot has at most one live lease", |story| {
        // Nobody knows when A was granted, but its lease was seen.
        story.calls(10, A, &PLAIN);
        story.is_granted((11, 500), A);
        story.calls(600, C, &PLAIN);
        let held = Reply::Taken(story.seen(A, SeenState::Pending(900)));
        story.claims((601, 602), C, held);
        story.calls(1100, B, &PLAIN).takes_over((1101, 1102), B, A);
    }),
    (
        "two runs overlap only if the lease of the first had lapsed",
        |story| {
            story.begins(10, A, &PLAIN);
            story.verb((340, 341), A, Ask::Renew, Reply::Kept);
            story.calls(30, B, &PLAIN);
            story.takes_over((1012, 1013), B, A).starts(1014, B);
            story.ends(1100, A, true);
        },
    ),
    (
        "a second run starts only after a lapse that can have happened, or after the first ended unstored",
        |story| {
            story.begins(10, A, &PLAIN).killed(20, 0);
            story.calls(30, B, &PLAIN);
            story.takes_over((500, 501), B, A).starts(502, B);
        },
    ),
    (
        "a finished record neither becomes pending nor goes before it expires",
        |story| {
            story.runs(10, A, &PLAIN);
            story.calls(50, B, &PLAIN).takes_over((51, 52), B, A);
        },
    ),
    (
        "a finished record neither becomes pending nor goes before it expires",
        |story| {
            // Nobody runs again, but a reply does not show it.
            story.runs(10, A, &PLAIN);
            story.calls(50, B, &PLAIN);
            let held = Reply::Taken(story.seen(A, SeenState::Pending(500)));
            story.claims((51, 52), B, held);
        },
    ),
    ("a lost lease never completes", |story| {
        story.begins(10, A, &PLAIN);
        story.note(1500, 0, What::Late { since: 20_000 });
        story.calls(30, B, &PLAIN);
        story.takes_over((1012, 1013), B, A).starts(1014, B);
        story.ends(1600, A, true);
        story.completes((1601, 1602), A, Reply::Stored);
    }),
    (
        "when either side says hold, what may have run is not run again",
        |story| {
            story.begins(10, A, &HOLD).killed(20, 0);
            story.calls(30, B, &PLAIN);
            story.takes_over((1500, 1501), B, A).starts(1502, B);
        },
    ),
    (
        "when either side says hold, what may have run is not run again",
        |story| {
            story.begins(10, A, &PLAIN).killed(20, 0);
            story.calls(30, B, &HOLD);
            story.takes_over((1500, 1501), B, A).starts(1502, B);
        },
    ),
    ("a different payload never takes over", |story| {
        story.begins(10, A, &PLAIN).killed(20, 0);
        story.calls(30, B, &OTHER);
        story.takes_over((1500, 1501), B, A).starts(1502, B);
    }),
    ("a take-over counts one attempt more", |story| {
        story.begins(10, A, &PLAIN).killed(20, 0);
        story.calls(30, B, &PLAIN);
        story.is_granted((1500, 1501), B).starts(1502, B);
    }),
    ("a released token stays dead for one lease", |story| {
        story
            .calls(10, A, &PLAIN)
            .claims((11, 12), A, Reply::Failed);
        story.verb((13, 14), A, Ask::GiveBack, Reply::Over);
        story.is_granted((20, 21), A);
    }),
    ("what a reply shows was claimed for that key", |story| {
        story.runs(10, A, &Asks { key: 8, ..PLAIN });
        story.calls(50, B, &PLAIN);
        let stored = Reply::Taken(story.finished(A));
        story.claims((51, 52), B, stored);
    }),
    (
        "a reply shows only an answer that its holder sent",
        |story| {
            story.runs(10, A, &PLAIN);
            story.calls(50, B, &PLAIN);
            let other = SeenState::Finished(story.word(B));
            let stored = Reply::Taken(story.seen(A, other));
            story.claims((51, 52), B, stored);
        },
    ),
    ("a reply shows what is there, not what was", |story| {
        story.calls(10, A, &PLAIN).is_granted((11, 12), A);
        story.verb((13, 14), A, Ask::GiveBack, Reply::Over);
        story.calls(50, B, &PLAIN);
        let held = Reply::Taken(story.seen(A, SeenState::Pending(900)));
        story.claims((51, 52), B, held);
    }),
    ("a reply shows what is there, not what was", |story| {
        story.begins(10, A, &PLAIN).killed(20, 0);
        story.calls(30, B, &PLAIN);
        story.takes_over((1012, 1013), B, A).starts(1014, B);
        story.calls(1100, C, &PLAIN);
        let lapsed = Reply::Taken(story.seen(A, SeenState::Pending(0)));
        story.claims((1101, 1102), C, lapsed);
    }),
    ("an expired record is absent", |story| {
        story.runs(10, A, &FLEETING);
        story.replays(900, B, A, &FLEETING);
    }),
    ("an expired record is absent", |story| {
        story.fault(15, Fault::Store);
        story.runs(10, A, &FLEETING);
        story.fault(300, Fault::StoreOver("a server hung".to_owned()));
        story.replays(900, B, A, &FLEETING);
    }),
    ("an answer was made by a run of its key", |story| {
        story.runs(10, A, &PLAIN);
        story.calls(50, B, &PLAIN);
        let heard = Heard::Replayed {
            said: "something".to_owned(),
            original: Some(id(A)),
            stored: true,
        };
        story.hears(53, B, heard);
    }),
    ("an answer was made by a run of its key", |story| {
        story.runs(10, A, &Asks { key: 8, ..PLAIN });
        story.replays(50, B, A, &PLAIN);
    }),
    ("an answer was made by a run of its key", |story| {
        // Told before its run has ended.
        story.begins(10, A, &PLAIN);
        story.hears_own(15, A, true).ends(20, A, true);
    }),
    ("a different payload never gets another's answer", |story| {
        story.runs(10, A, &PLAIN);
        story.replays(50, B, A, &OTHER);
    }),
    (
        "an answer is told as stored only once the store has acknowledged it",
        |story| {
            story.begins(10, A, &PLAIN).ends(20, A, true);
            story.hears_own(21, A, true);
            story.completes((22, 23), A, Reply::Stored);
        },
    ),
    (
        "every caller hears the same stored answer, as long as it is kept",
        |story| {
            story.runs(10, A, &PLAIN);
            story.runs(100, B, &PLAIN);
        },
    ),
    (
        "what was told as stored is not run again before it expires",
        |story| {
            story.runs(10, A, &PLAIN);
            story.begins(100, B, &OTHER);
        },
    ),
    (
        "an answer is left unstored only if it is not one to store, or its record is gone",
        |story| {
            story.begins(10, A, &PLAIN).ends(20, A, true);
            story.hears_own(21, A, false);
        },
    ),
    (
        "an answer that is not stored is shared only in its process",
        |story| {
            story.begins(10, A, &PLAIN).ends(20, A, false);
            story.calls(15, B, &PLAIN);
            story.hears_of(25, B, A, false);
        },
    ),
    (
        "a handler starts only under a claim of its own that was granted",
        |story| {
            story.calls(10, A, &PLAIN).starts(11, A);
        },
    ),
    (
        "a handler starts only under a claim of its own that was granted",
        |story| {
            story.calls(10, A, &PLAIN);
            let started = What::Started {
                call: id(A),
                token: None,
                attempt: 1,
            };
            story.note(11, 0, started);
        },
    ),
    ("a token is for one attempt", |story| {
        story.begins(10, A, &PLAIN);
        story.calls(10, (0, 2), &PLAIN);
        let started = What::Started {
            call: id((0, 2)),
            token: Some(token(A)),
            attempt: 1,
        };
        story.note(15, 0, started);
    }),
    ("a handler starts only while its lease lives", |story| {
        story.calls(10, A, &PLAIN).is_granted((11, 12), A);
        story.starts(1100, A);
    }),
    (
        "a started handler goes on to its end, whether or not its caller waits",
        |story| {
            story.begins(10, A, &PLAIN);
            story.note(20, 0, What::HungUp { call: id(A) });
            story.note(21, 0, What::Dropped { call: id(A) });
        },
    ),
    ("what is stored is what the handler answered", |story| {
        story.begins(10, A, &PLAIN).ends(20, A, false);
        story.completes((21, 22), A, Reply::Stored);
    }),
    (
        "a claim is given back only if nothing ran or nothing is to be stored",
        |story| {
            story.begins(10, A, &PLAIN);
            story.verb((15, 16), A, Ask::GiveBack, Reply::Over);
        },
    ),
    (
        "a claim is given back only if nothing ran or nothing is to be stored",
        |story| {
            story.begins(10, A, &PLAIN).ends_as(20, A, Ending::NotRun);
            story.verb((21, 22), A, Ask::Doubt, Reply::Over);
        },
    ),
    (
        "a mismatch is told only of a record of another payload",
        |story| {
            story.runs(10, A, &PLAIN);
            story.calls(50, B, &PLAIN);
            let stored = Reply::Taken(story.finished(A));
            story.claims((51, 52), B, stored);
            story.is_refused(53, B, Reason::Mismatch);
        },
    ),
    ("store down is told only if the store failed", |story| {
        story.calls(10, A, &PLAIN);
        story.is_refused(11, A, Reason::StoreDown);
    }),
    ("not stored is told only if a completion failed", |story| {
        story.begins(10, A, &PLAIN).ends(20, A, true);
        story.completes((21, 22), A, Reply::Stored);
        story.is_refused(23, A, Reason::NotStored);
    }),
    ("a healthy holder never loses its lease", |story| {
        story.begins(10, A, &PLAIN);
        story.calls(30, B, &PLAIN);
        story.takes_over((1012, 1013), B, A).starts(1014, B);
    }),
    (
        "when all is well again, every key is answered within its time",
        |story| {
            story.begins(10, A, &PLAIN).killed(20, 0);
            let last = Asks {
                sweep: true,
                ..PLAIN
            };
            story.calls(2000, B, &last);
            story.is_refused(4000, B, Reason::InProgress);
        },
    ),
    (
        "when all is well again, every key is answered within its time",
        |story| {
            // Nobody began it, so nobody can be in doubt.
            let last = Asks {
                sweep: true,
                ..HOLD
            };
            story.calls(2000, B, &last);
            story.is_refused(2001, B, Reason::OutcomeUnknown);
        },
    ),
];

#[test]
fn every_planted_violation_is_found_and_named() {
    for (number, (rule, plant)) in PLANTED.iter().enumerate() {
        let mut story = Story::new();
        plant(&mut story);

        let report = story.report();

        let named = report.violations.iter().find(|it| it.rule == *rule);
        let named = named.unwrap_or_else(|| panic!("{number}, {rule}: {report}"));
        assert_eq!(named.key, KEY, "{number}, {rule}");
        assert!(!named.events.is_empty(), "{number}, {rule}");
    }
}

#[test]
fn every_rule_has_a_planted_violation() {
    let planted: BTreeSet<_> = PLANTED.iter().map(|(rule, _)| *rule).collect();

    assert_eq!(planted, RULES.iter().copied().collect());
}
