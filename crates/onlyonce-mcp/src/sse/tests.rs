use super::{Event, Events, event};

fn read(pieces: &[&[u8]]) -> Vec<Event> {
    let mut events = Events::new(100);
    let read = pieces.iter().map(|piece| events.feed(piece).unwrap());
    read.flatten().collect()
}

fn data(text: &str) -> Event {
    Event {
        data: Some(text.to_owned()),
        id: None,
    }
}

#[test]
fn events_are_the_same_however_their_lines_end_and_their_bytes_come() {
    for stream in [
        "data: one\n\ndata: two\ndata: more\n\n",
        "data: one\r\n\r\ndata: two\r\ndata: more\r\n\r\n",
        "\u{feff}:x\rdata:one\r\rdata:two\rdata:more\r\r",
    ] {
        let expected = [data("one"), data("two\nmore")];
        assert_eq!(read(&[stream.as_bytes()]), expected, "{stream:?}");
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes), expected, "{stream:?}");
    }
}

#[test]
fn an_event_without_data_has_only_its_id() {
    let events = read(&[b"id: 7\ndata:\n\nretry: 5\n\n: x\n\n"]);

    let primed = Event {
        data: None,
        id: Some("7".to_owned()),
    };
    assert_eq!(events, [primed]);
}

#[test]
fn an_event_over_the_bound_is_an_error() {
    let mut events = Events::new(10);

    assert!(events.feed(b"data: 0123456789").is_err());
    let mut events = Events::new(10);
    assert!(
        events
            .feed(b"data: 0123\ndata: 4567\ndata: 89ab\n")
            .is_err()
    );
}

#[test]
fn a_message_is_one_line_of_an_event() {
    assert_eq!(
        read(&[event("{\n\"a\":\r\n1}").as_bytes()]),
        [data("{ \"a\":  1}")]
    );
}

#[test]
fn a_large_event_is_left_out_where_only_small_ones_are_wanted() {
    let mut events = Events::small(8);
    let mut heard = Vec::new();
    for piece in [
        "data: 123456789",
        "0\n",
        "data: 1\n",
        "\r\n",
        "data: a\r\n\r\n",
    ] {
        heard.extend(events.feed(piece.as_bytes()).unwrap());
    }

    let data: Vec<_> = heard.into_iter().map(|event| event.data).collect();
    assert_eq!(data, [Some("a".to_owned())]);
}
