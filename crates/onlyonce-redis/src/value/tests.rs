//! The layout of a value, byte by byte: the scripts cut by these positions.

use onlyonce_core::key::Hint;
use onlyonce_core::{Meta, Slot};

use super::*;

fn claim() -> Claim {
    Claim {
        slot: Slot::from_bytes([1; Slot::BYTES]),
        fingerprint: Fingerprint::new(7, [2; 32]),
        token: Token::from_bytes([3; Token::BYTES]),
        on_lapse: OnLapse::Hold,
        must_last: false,
        lease_for: Duration::from_millis(5),
        keep_for: Duration::from_millis(258),
        meta: Arc::new(Meta {
            hint: Hint::default(),
            operation: "op".into(),
            actor: None,
            holder: "here".into(),
            trace: None,
            credential: None,
        }),
    }
}

#[test]
fn a_claim_is_where_the_scripts_look_for_it() {
    let value = pending(&claim());

    assert_eq!(&value[..3], b"O1P");
    assert_eq!(value[3..19], [3; 16]);
    assert_eq!(value[19], 7);
    assert_eq!(value[20..52], [2; 32]);
    assert_eq!(value[52], b'h');
    assert_eq!(value[53..57], [0, 0, 0, 1]);
    assert_eq!(value[57..65], [0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(value[65..73], [0; 8]);
    assert_eq!(value[73..81], [0, 0, 0, 0, 0, 0, 1, 7]);
    assert_eq!(value[81..121], [0; 40]);
    assert_eq!(value[125], 0);
    let meta = codec::encode_meta(&claim().meta);
    assert_eq!(value[121..125], (meta.len() as u32).to_be_bytes());
    assert_eq!(value[HEAD_BYTES..], meta);
}

#[test]
fn a_claim_reads_back_as_a_record() {
    let value = pending(&claim());
    let head = Head::read(&value).unwrap();

    let record = head.record(&value, 260, 10_000).unwrap();

    assert_eq!(record.meta, claim().meta);
    assert_eq!(record.created_at.as_millis(), 10_000 - 263);
    assert_eq!(record.expires_at.as_millis(), 10_000);
    let lease_left = Duration::from_millis(2);
    assert_eq!(record.state, State::Pending { lease_left });
    assert_eq!(head.known_end(), None);
}

#[test]
fn a_key_that_lives_for_its_graves_holds_no_record() {
    let mut value = pending(&claim()).to_vec();
    value[97..105].copy_from_slice(&1000_u64.to_be_bytes());
    value[105..113].copy_from_slice(&1500_u64.to_be_bytes());
    let head = Head::read(&value).unwrap();

    assert_eq!(head.keep_left(600), Some(100));
    assert_eq!(head.keep_left(500), None);
    assert_eq!(head.keep_left(-1), Some(MILLIS_MAX));
}

#[test]
fn what_is_not_ours_is_refused() {
    let value = pending(&claim()).to_vec();
    let changed = |at: usize, to: u8| {
        let mut value = value.clone();
        value[at] = to;
        Bytes::from(value)
    };

    assert!(Head::read(b"").is_err());
    assert!(Head::read(&value[..HEAD_BYTES - 1]).is_err());
    for (at, to) in [(0, b'X'), (2, b'Q'), (52, b'x')] {
        assert!(Head::read(&changed(at, to)).is_err(), "byte {at}");
    }
    for (at, to) in [(121, 255), (125, 255), (HEAD_BYTES + 9, 255)] {
        let value = changed(at, to);
        let head = Head::read(&value).unwrap();
        assert!(head.record(&value, 1, 1).is_err(), "byte {at}");
    }
}

#[test]
fn durations_are_rounded_up_and_bounded() {
    assert_eq!(millis(Duration::ZERO), 0);
    assert_eq!(millis(Duration::from_nanos(1)), 1);
    assert_eq!(millis(Duration::from_millis(7)), 7);
    assert_eq!(millis(Duration::MAX), MILLIS_MAX);
    let never = Claim {
        lease_for: Duration::ZERO,
        keep_for: Duration::ZERO,
        ..claim()
    };
    assert_eq!(claim_px(&never), 1);
}
