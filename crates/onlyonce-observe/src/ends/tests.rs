//! Every end is told once, in its time, with what was known of the key.

use onlyonce_core::Timestamp;

use super::*;

/// Writes down what it is told.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Subscriber for Told {
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

fn ends() -> (Ends, Arc<Told>) {
    let told = Arc::new(Told::default());
    let ends = Ends {
        clock: SystemClock::new(),
        concerned: vec![Arc::clone(&told) as _],
        due: Mutex::default(),
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
