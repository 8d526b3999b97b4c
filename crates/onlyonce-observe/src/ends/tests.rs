//! Every end is told once, in its time, with what was known of the key.

use onlyonce_core::Timestamp;
use onlyonce_core::key::Hint;

use super::*;

/// Writes down what it is told.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Subscriber for Heard {
    fn on_event(&self, about: &About<'_>, event: &Event) {
        let Event::Expired {
            keep_for,
            forgotten: false,
            ..
        } = event
        else {
            panic!("{} is not what was to be told", event.name());
        };
        let meta = about.meta;
        let line = format!(
            "{} {} {:?} {:?} {:?} {:?} {keep_for:?}",
            about.slot.short(),
            meta.operation,
            meta.actor,
            meta.holder,
            meta.trace,
            about.intake,
        );
        self.0.lock().unwrap().push(line);
    }
}

fn ends() -> (Ends, Arc<Heard>) {
    let told = Arc::new(Heard::default());
    let ends = Ends {
        clock: SystemClock::new(),
        told: Told {
            remembered: vec![Arc::clone(&told) as _],
            handed: vec![],
        },
        due: Mutex::default(),
        awaited: None,
    };
    (ends, told)
}

fn meta(actor: Option<&str>, trace: Option<&str>) -> Arc<Meta> {
    Arc::new(Meta {
        hint: Hint::default(),
        operation: "POST /orders".into(),
        actor: actor.map(Into::into),
        holder: "here".into(),
        trace: trace.map(Into::into),
        credential: None,
    })
}

fn store(ends: &Ends, slot: u8, meta: &Arc<Meta>, intake: Option<&str>, keep_for: Duration) {
    let about = About {
        slot: &Slot::from_bytes([slot; Slot::BYTES]),
        meta,
        fingerprint: None,
        intake,
        route: None,
    };
    let event = Event::Stored {
        status: 200,
        bytes: 1,
        took: Duration::ZERO,
        expires_at: Timestamp::from_millis(0),
        keep_for,
        resource: None,
    };
    ends.on_event(&about, &event);
}

fn forget(ends: &Ends, slot: u8, meta: &Arc<Meta>, left: Duration) {
    let about = About {
        slot: &Slot::from_bytes([slot; Slot::BYTES]),
        meta,
        fingerprint: None,
        intake: None,
        route: None,
    };
    let event = Event::Expired {
        keep_for: left,
        lifetime: Duration::ZERO,
        forgotten: true,
        replays: 0,
        resource: None,
    };
    ends.on_event(&about, &event);
}

#[test]
fn the_end_of_a_key_is_told_with_all_that_was_known_of_it() {
    let (ends, told) = ends();
    store(&ends, 1, &meta(None, None), None, Duration::ZERO);
    let known = meta(Some("alice"), Some("00-7"));
    store(&ends, 2, &known, Some("form-7"), Duration::ZERO);

    ends.tell_due();

    let expected = [
        "01010101 POST /orders None \"here\" None None 0ns",
        "02020202 POST /orders Some(\"alice\") \"here\" Some(\"00-7\") Some(\"form-7\") 0ns",
    ];
    assert_eq!(told.take(), expected);
}

#[test]
fn a_key_is_told_once_and_not_before_its_time() {
    let (ends, told) = ends();
    let known = meta(None, None);
    store(&ends, 1, &known, None, Duration::from_secs(3600));
    store(&ends, 2, &known, None, Duration::ZERO);
    ends.tell_due();
    assert_eq!(told.take().len(), 1);

    ends.tell_due();

    assert!(told.take().is_empty());
    assert_eq!(ends.due.lock().unwrap().keys, 1);
}

#[test]
fn a_key_that_an_operator_has_forgotten_does_not_end_again() {
    const MINUTE: Duration = Duration::from_secs(60);
    let (ends, _) = ends();
    let known = meta(None, None);
    store(&ends, 1, &known, None, MINUTE);
    store(&ends, 2, &known, None, MINUTE);
    forget(&ends, 1, &known, MINUTE);
    let later = ends.clock.now() + 2 * MINUTE;
    // The key is used again.
    store(&ends, 1, &known, None, 2 * MINUTE);

    let mut due = ends.due.lock().unwrap();
    let first = due.take_over(later);
    let second = due.take_over(later + MINUTE);

    let slots = |over: &[(Alike, End, u64)]| -> Vec<_> {
        over.iter()
            .map(|(_, end, _)| end.slot.as_bytes()[0])
            .collect()
    };
    assert_eq!((slots(&first), slots(&second)), (vec![2], vec![1]));
}

#[test]
fn a_key_that_is_kept_longer_ends_then() {
    let mut due = Due::default();
    let slot = Slot::from_bytes([1; Slot::BYTES]);
    let alike = Alike {
        keep_for: Duration::from_secs(10),
        operation: "POST /orders".into(),
        holder: "here".into(),
        resumed: false,
    };
    let end = End {
        at: Duration::from_secs(10),
        slot,
        hint: Hint::default(),
        more: None,
    };
    due.remember(alike, end);
    due.extended(slot, Duration::from_secs(5));

    assert!(due.take_over(Duration::from_secs(14)).is_empty());
    let over = due.take_over(Duration::from_secs(15));

    let [(alike, end, _)] = over.as_slice() else {
        panic!("one end");
    };
    assert_eq!(
        (alike.keep_for, end.at),
        (Duration::from_secs(15), Duration::from_secs(15))
    );
}

#[test]
fn keys_kept_for_different_times_end_in_the_order_of_their_ends() {
    let mut due = Due::default();
    let end = |millis| End {
        at: Duration::from_millis(millis),
        slot: Slot::from_bytes([0; Slot::BYTES]),
        hint: Hint::default(),
        more: None,
    };
    let alike = |keep_for| Alike {
        keep_for: Duration::from_millis(keep_for),
        operation: "POST /orders".into(),
        holder: "here".into(),
        resumed: false,
    };
    for (stored, keep_for) in [(0, 50), (10, 20), (20, 50), (30, 5), (40, 5)] {
        due.remember(alike(keep_for), end(stored + keep_for));
    }

    let over = due.take_over(Duration::from_millis(50));

    let times = over.iter().map(|(_, end, _)| end.at.as_millis());
    assert_eq!(times.collect::<Vec<_>>(), [30, 35, 45, 50]);
    assert_eq!((due.keys, due.queues.len()), (1, 1));
}

#[test]
fn no_more_keys_are_remembered_than_the_bound() {
    let (ends, _) = ends();
    let known = meta(None, None);

    for _ in 0..KEYS_MAX + 10 {
        store(&ends, 1, &known, None, Duration::from_secs(3600));
    }

    assert_eq!(ends.due.lock().unwrap().keys, KEYS_MAX);
}
