//! Different tuples never share a slot, whatever they are made of, and a slot gives away nothing.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::entropy::OsEntropy;
use crate::key::{Charset, KeyRule};

use super::*;

fn key(text: &str) -> Key {
    let rule = KeyRule {
        bytes_max: usize::MAX,
        charset: Charset::Text,
        random: false,
    };
    Key::new(text, &rule).unwrap()
}

fn secret(n: u8) -> SlotSecret {
    SlotSecret::from_bytes([n; SlotSecret::BYTES])
}

fn slot(scope: &Scope, text: &str) -> Slot {
    secret(1).slot(scope, &key(text))
}

/// What a scope is made of: the namespace, then named parts that are there or absent.
type Parts = (String, Vec<(String, Option<Vec<u8>>)>);

fn scope((namespace, parts): &Parts) -> Scope {
    let empty = Scope::new(namespace);
    parts
        .iter()
        .fold(empty, |scope, (name, value)| match value {
            Some(value) => scope.with(name, value),
            None => scope.without(name),
        })
}

/// Short parts of few letters, so that different tuples come close to each other.
fn close_parts() -> impl Strategy<Value = Parts> {
    let value = option::of("[a:]{0,2}".prop_map(String::into_bytes));
    ("[a:]{0,2}", vec(("[a:]{0,2}", value), 0..3))
}

fn any_parts() -> impl Strategy<Value = Parts> {
    let value = option::of(vec(any::<u8>(), 0..20));
    (".{0,8}", vec((".{0,8}", value), 0..4))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn two_tuples_share_a_slot_only_if_they_are_equal(
        a in close_parts(), b in close_parts(), x in "[a:]{1,2}", y in "[a:]{1,2}",
    ) {
        let same_slot = slot(&scope(&a), &x) == slot(&scope(&b), &y);

        prop_assert_eq!(same_slot, (&a, &x) == (&b, &y));
        prop_assert_eq!(scope(&a) == scope(&b), a == b);
    }

    #[test]
    fn one_tuple_has_one_slot(parts in any_parts(), text in "[^\\p{Cc}\\p{Z}]{1,20}") {
        let slots = [slot(&scope(&parts), &text), slot(&scope(&parts), &text)];

        prop_assert_eq!(slots[0], slots[1]);
    }

    #[test]
    fn a_byte_moved_from_one_part_to_the_next_changes_the_slot(
        text in "[a-z:]{2,12}", at in 0usize..12, to in 0usize..12,
    ) {
        let cut = |at: usize| {
            let (left, right) = text.split_at(at % (text.len() + 1));
            slot(&Scope::new("n").with("tenant", left).with("user", right), "k")
        };
        let same_cut = at % (text.len() + 1) == to % (text.len() + 1);

        prop_assert_eq!(cut(at) == cut(to), same_cut);
    }

    #[test]
    fn different_secrets_give_different_slots(
        parts in any_parts(), a in any::<[u8; 32]>(), b in any::<[u8; 32]>(),
    ) {
        let [one, other] = [a, b].map(|bytes| {
            SlotSecret::from_bytes(bytes).slot(&scope(&parts), &key("k"))
        });

        prop_assert_eq!(one == other, a == b);
    }

    #[test]
    fn a_slot_survives_being_written_down(bytes in any::<[u8; 32]>()) {
        let slot = Slot::from_bytes(bytes);
        let text = slot.to_string();

        prop_assert_eq!(Slot::from_hex(&text), Some(slot));
        prop_assert_eq!(Slot::from_hex(&text.to_uppercase()), Some(slot));
        prop_assert_eq!(slot.as_bytes(), &bytes);
        prop_assert!(text.starts_with(&slot.short().to_string()));
        prop_assert_eq!(text.len(), 64);
    }

    #[test]
    fn no_text_panics_as_a_slot(text in ".{0,80}") {
        if let Some(slot) = Slot::from_hex(&text) {
            prop_assert_eq!(slot.to_string(), text.to_lowercase());
        }
    }

    #[test]
    fn slots_are_ordered_as_their_hexadecimal_digits_are(
        a in any::<[u8; 32]>(), b in any::<[u8; 32]>(),
    ) {
        let (a, b) = (Slot::from_bytes(a), Slot::from_bytes(b));

        prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
    }
}

#[test]
fn a_separator_inside_a_part_does_not_move_its_border() {
    let pairs = [("a:b", "c"), ("a", "b:c"), ("a:b:c", ""), ("", "a:b:c")];

    let slots = pairs.map(|(tenant, user)| {
        slot(
            &Scope::new("n").with("tenant", tenant).with("user", user),
            "k",
        )
    });

    assert_all_differ(&slots);
}

#[test]
fn a_part_can_move_neither_into_the_key_nor_into_the_namespace() {
    let slots = [
        slot(&Scope::new("n").with("user", "a"), "b"),
        slot(&Scope::new("n").with("user", "ab"), "b"),
        slot(&Scope::new("n").with("user", ""), "ab"),
        slot(&Scope::new("n"), "ab"),
        slot(&Scope::new("na").with("user", ""), "b"),
        slot(&Scope::new("nuser").with("a", ""), "b"),
    ];

    assert_all_differ(&slots);
}

#[test]
fn an_absent_part_is_not_an_empty_one() {
    let slots = [
        slot(&Scope::new("n").with("user", ""), "k"),
        slot(&Scope::new("n").without("user"), "k"),
        slot(&Scope::new("n"), "k"),
        slot(&Scope::new("n").with("user", "\0"), "k"),
        slot(&Scope::new("n").without("tenant"), "k"),
    ];

    assert_all_differ(&slots);
}

/// A value that spells the frame of the next part is still only a value.
#[test]
fn a_value_cannot_pretend_to_be_another_part() {
    let two = Scope::new("n").with("a", "1").with("b", "2");
    let mut forged = b"1".to_vec();
    forged.extend_from_slice(&two.framed[two.framed.len() - 2 * 10..]);

    let one = Scope::new("n").with("a", &forged);

    assert_ne!(slot(&one, "k"), slot(&two, "k"));
}

#[test]
fn the_order_of_parts_counts() {
    let one = Scope::new("n").with("a", "1").with("b", "2");
    let other = Scope::new("n").with("b", "2").with("a", "1");

    assert_ne!(slot(&one, "k"), slot(&other, "k"));
}

#[test]
fn keys_that_differ_in_case_have_different_slots() {
    let scope = Scope::new("n");

    assert_ne!(slot(&scope, "abc"), slot(&scope, "ABC"));
}

#[test]
fn a_credential_is_recognised_by_the_same_secret_only() {
    let digest = secret(1).credential(b"Bearer abc");

    assert_eq!(digest, secret(1).credential(b"Bearer abc"));
    assert_ne!(digest, secret(2).credential(b"Bearer abc"));
    assert_ne!(digest, secret(1).credential(b"Bearer abd"));
}

#[test]
fn a_credential_is_never_a_slot() {
    let scope = Scope::new("n");
    let slot = slot(&scope, "k");

    for credential in [&b"k"[..], &scope.framed, b"slot"] {
        assert_ne!(&secret(1).credential(credential), slot.as_bytes());
    }
}

#[test]
fn generated_secrets_differ() {
    let entropy = OsEntropy::new();
    let secrets = [(); 3].map(|()| *SlotSecret::generate(&entropy).expose());

    assert_ne!(secrets[0], secrets[1]);
    assert_ne!(secrets[1], secrets[2]);
    assert_ne!(secrets[0], [0; SlotSecret::BYTES]);
}

#[test]
fn a_secret_is_what_it_was_made_from() {
    let bytes = *secret(7).expose();
    let again = SlotSecret::from_bytes(bytes);

    let scope = Scope::new("n");
    assert_eq!(
        again.slot(&scope, &key("k")),
        secret(7).slot(&scope, &key("k"))
    );
}

#[test]
fn what_is_printed_of_a_scope_is_its_size_only() {
    let scope = Scope::new("acme-production")
        .with("user", "alice@example.org")
        .without("tenant");

    let shown = format!("{scope:?} {scope:#?}");

    for part in ["acme", "alice", "user", "tenant", "namespace"] {
        assert!(!shown.contains(part), "{shown}");
    }
}

#[test]
fn what_is_printed_of_a_secret_is_nothing_of_it() {
    let secret = SlotSecret::from_bytes(*b"0123456789abcdefghijklmnopqrstuv");

    for shown in [format!("{secret:?}"), format!("{secret:#?}")] {
        assert_eq!(shown, "SlotSecret(…)");
    }
}

#[test]
fn what_is_printed_of_a_slot_for_logs_is_its_start_only() {
    let slot = Slot::from_bytes([0xab; 32]);

    assert_eq!(slot.short().to_string(), "abababab");
    assert_eq!(format!("{slot:?}"), "Slot(abababab)");
}

#[test]
fn only_64_hexadecimal_digits_are_a_slot() {
    let good = "0123456789abcdefABCDEF".repeat(3)[..64].to_owned();
    assert!(Slot::from_hex(&good).is_some());

    for bad in [
        "",
        "ab",
        &good[..63],
        &format!("{good}0"),
        &good.replace('0', "g"),
    ] {
        assert_eq!(Slot::from_hex(bad), None, "{bad}");
    }
    assert_eq!(Slot::from_hex(&"é".repeat(32)), None);
    assert_eq!(Slot::from_hex(&"+1".repeat(32)), None);
}

fn assert_all_differ(slots: &[Slot]) {
    for (index, slot) in slots.iter().enumerate() {
        assert!(!slots[..index].contains(slot), "number {index} is taken");
    }
}

#[test]
fn a_hint_is_of_one_key_and_one_secret() {
    let secret = |byte| SlotSecret::from_bytes([byte; SlotSecret::BYTES]);
    let (one, other) = (key("a-key-of-some-length-1"), key("a-key-of-some-length-2"));

    let hint = secret(1).hint(&one);

    assert_eq!(hint, secret(1).hint(&one));
    assert_ne!(hint, secret(1).hint(&other));
    assert_ne!(hint, secret(2).hint(&one));
    assert_ne!(hint, one.hint(), "it bears a mark");
    assert_eq!(hint.to_string(), "a-ke");
    assert_eq!((hint.to_text().len(), &hint.to_text()[..4]), (16, "a-ke"));
}
