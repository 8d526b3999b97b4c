use super::AttemptId;
use crate::clock::Timestamp;
use crate::slot::Slot;

#[test]
fn an_attempt_is_read_as_it_is_written_and_nothing_else_is() {
    let id = AttemptId {
        slot: Slot::from_bytes([0xa7; Slot::BYTES]),
        created_at: Timestamp::from_millis(1_763_588_400_123),
        attempt: 2,
    };
    let text = id.to_string();
    let slot = "a7".repeat(Slot::BYTES);

    assert_eq!(text, format!("{slot}-1763588400123-2"));
    assert_eq!(text.parse(), Ok(id));
    for wrong in [
        "",
        &slot,
        &format!("{slot}-1"),
        &format!("{slot}-1-"),
        &format!("{slot}-1--2"),
        &format!("{slot}-1-2-3"),
        &format!("{}-1-2", &slot[1..]),
    ] {
        assert!(wrong.parse::<AttemptId>().is_err(), "{wrong}");
    }
}
