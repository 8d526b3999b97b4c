use super::*;

fn contents(boot: Option<Boot>) -> Contents {
    Contents {
        first: 3,
        last: 17,
        written: Some(Written {
            salt: 4711,
            end: 1 << 40,
        }),
        agreed: 2,
        moment: Moment {
            boot,
            wall: Duration::from_millis(1_735_689_600_123),
            store: Duration::from_millis(1_735_689_600_456),
        },
    }
}

#[test]
fn what_is_written_is_read_back() {
    let boot = Boot {
        id: "2f2e9a4c-0c1f-4f0e-9d43-6b3f2a9c1d10".to_owned(),
        since: Duration::from_millis(4711),
    };
    for boot in [None, Some(boot)] {
        let contents = contents(boot);

        assert_eq!(parse(&text(&contents)), Some(contents));
    }
}

#[test]
fn a_manifest_from_before_the_end_of_the_log_was_kept_is_read() {
    let contents = Contents {
        written: None,
        ..contents(None)
    };
    let text = text(&contents);

    assert!(!text.contains("written"));
    assert_eq!(parse(&text), Some(contents));
}

#[test]
fn a_changed_or_cut_text_is_damaged() {
    let whole = text(&contents(None));
    for at in 0..whole.len() {
        assert_eq!(parse(&whole[..at]), None, "cut at {at}");
        let mut bytes = whole.clone().into_bytes();
        bytes[at] ^= 1;
        let changed = String::from_utf8(bytes).unwrap();
        assert_eq!(parse(&changed), None, "changed at {at}");
    }
}
