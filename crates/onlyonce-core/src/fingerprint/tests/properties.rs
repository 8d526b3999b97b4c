//! What must hold for any JSON at all, with serde_json as the judge of what JSON is.
//! Numbers beyond a double's range and 128 levels are ours alone; [`Tree`] takes both into account.

mod tree;

use proptest::collection::vec;
use proptest::prelude::*;

use super::Request;
use crate::fingerprint::{canonical_json, derive_key, form, json, multipart};
use tree::Tree;

fn canonical(text: impl AsRef<[u8]>) -> Option<String> {
    canonical_json(text.as_ref()).map(|bytes| String::from_utf8(bytes).unwrap())
}

/// Strings that favour what a canonical form must get right.
fn text() -> impl Strategy<Value = String> {
    let chars = prop_oneof![
        4 => any::<char>(),
        4 => prop::char::range('a', 'c'),
        2 => prop::char::range('\0', ' '),
        1 => prop::char::range('\u{d7f0}', '\u{e00f}'),
        1 => prop::char::range('\u{fff0}', '\u{1000f}'),
        2 => prop::sample::select(vec!['"', '\\', '/', 'u', '\u{7f}', '\u{80}', 'é', '😂']),
    ];
    vec(chars, 0..12).prop_map(String::from_iter)
}

/// Names from a small alphabet, so that some repeat.
fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[abé\n]{0,2}", text()]
}

fn tree() -> impl Strategy<Value = Tree> {
    let number = "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,9})?([eE][+-]?[0-9]{1,3})?";
    let leaf = prop_oneof![
        "(true|false|null)".prop_map(Tree::Scalar),
        number.prop_map(Tree::Scalar),
        text().prop_map(Tree::Text),
    ];
    leaf.prop_recursive(5, 40, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Tree::List),
            vec((name(), inner), 0..8).prop_map(Tree::Members),
        ]
    })
}

/// A value's text at the whim of `choices`, which are repeated for as long as they are needed.
fn spelt(tree: &Tree, choices: &[u8]) -> String {
    tree.spelt(&mut choices.iter().copied().cycle())
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..60)
}

/// Changes to a text: where, what to, and whether the byte there is kept, replaced or taken out.
fn mutations() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, u8)>> {
    let alphabet =
        b"{}[]\",:\\/ubn0019.-+eEtrufals \t\n\r\x00\x1f\x7f\x80\xc3\xed\xa0\xff".to_vec();
    let byte = prop_oneof![9 => prop::sample::select(alphabet), 1 => any::<u8>()];
    vec((any::<prop::sample::Index>(), byte, 0..3_u8), 1..4)
}

fn mutate(text: String, mutations: Vec<(prop::sample::Index, u8, u8)>) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    for (index, byte, kind) in mutations {
        let at = index.index(bytes.len() + 1);
        let taken = usize::from(kind > 0 && at < bytes.len());
        bytes.splice(at..at + taken, (kind < 2).then_some(byte));
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn spelling_and_member_order_do_not_count(
        tree in tree(), seed in any::<u64>(), first in choices(), second in choices(),
    ) {
        let shuffled = spelt(&tree.shuffled(seed), &second);

        prop_assert_eq!(canonical(spelt(&tree, &first)), Some(tree.canonical()));
        prop_assert_eq!(canonical(shuffled), Some(tree.canonical()));
    }

    #[test]
    fn a_canonical_text_is_its_own_canonical_form(tree in tree(), choices in choices()) {
        let once = canonical(spelt(&tree, &choices)).unwrap();

        prop_assert_eq!(canonical(&once), Some(once));
    }

    /// A form that reads back as the value it was made from is the form of no other value.
    #[test]
    fn different_values_have_different_canonical_forms(tree in tree(), choices in choices()) {
        let read_back = Tree::read(canonical(spelt(&tree, &choices)).unwrap().as_bytes());

        prop_assert_eq!(read_back, Some(tree.sorted()));
    }

    #[test]
    fn exactly_what_serde_json_accepts_is_accepted(
        tree in tree(), choices in choices(), mutations in mutations(),
    ) {
        let text = mutate(spelt(&tree, &choices), mutations);

        prop_assert_eq!(canonical(&text), Tree::read(&text).map(|tree| tree.canonical()));
    }

    #[test]
    fn exactly_what_serde_json_accepts_of_fragments_is_accepted(
        fragments in vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\"b\"", "\"\"", "0", "1", "-", ".", "e",
            "true", "null", " ", "\n", "\\", "\\u", "d83d", "de02", "\\ud83d", "\\ude02", "é",
        ]), 0..12),
    ) {
        let text = fragments.concat();

        prop_assert_eq!(canonical(&text), Tree::read(text.as_bytes()).map(|tree| tree.canonical()));
    }

    #[test]
    fn every_depth_is_judged_alike(arrays in vec(any::<bool>(), 100..150)) {
        let open = |&array: &bool| if array { "[" } else { "{\"a\":" };
        let close = |&array: &bool| if array { "]" } else { "}" };
        let text = arrays.iter().map(open).collect::<String>()
            + "1"
            + &arrays.iter().rev().map(close).collect::<String>();

        prop_assert_eq!(canonical(&text).is_some(), arrays.len() <= 128);
        prop_assert_eq!(canonical(&text), Tree::read(text.as_bytes()).map(|tree| tree.canonical()));
    }

    #[test]
    fn trimming_trims_every_value_and_nothing_else(tree in tree(), choices in choices()) {
        let spelt = spelt(&tree, &choices);

        let trimmed = json::canonicalise(spelt.as_bytes(), true).unwrap();

        prop_assert_eq!(String::from_utf8(trimmed.into_owned()).unwrap(), tree.trimmed().canonical());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..200), trim in any::<bool>()) {
        let _ = derive_key("c", &bytes, trim);
        let _ = form::canonical_path(&bytes);
        let _ = form::canonical_query(&bytes);
        let _ = form::canonicalise(&bytes);
        let _ = multipart::digest(&bytes, b"b");
        prop_assert_eq!(canonical(&bytes), Tree::read(&bytes).map(|tree| tree.canonical()));
    }

    #[test]
    fn no_delimiters_make_it_panic(
        fragments in vec(prop::sample::select(vec![
            "--b", "--", "\r\n", "\r", "\n", "A: b", ":", "x",
        ]), 0..20),
    ) {
        let body = fragments.concat();

        let request = Request::of("multipart/mixed; boundary=b", &body);

        prop_assert_eq!(request.fingerprint(), request.fingerprint());
    }

    #[test]
    fn a_canonical_query_or_form_is_its_own_canonical_form(text in "[ab=&+%0-9A-Fa-f]{0,40}") {
        if let Some(once) = form::canonicalise(text.as_bytes()) {
            prop_assert_eq!(form::canonicalise(&once), Some(once));
        }
        // An escape cut short may become whole once its digits are bare; that takes broken input.
        if form::canonicalise(text.as_bytes()).is_some() {
            let once = form::canonical_query(text.as_bytes()).into_owned();
            prop_assert_eq!(form::canonical_query(&once).into_owned(), once);
        }
    }

    #[test]
    fn forms_are_equal_exactly_if_their_fields_are(
        one in "[ab]=[%+]?(2[0b])?(&[ab]=[%+]?(2[0b])?){0,2}",
        other in "[ab]=[%+]?(2[0b])?(&[ab]=[%+]?(2[0b])?){0,2}",
    ) {
        let fields = |text: &str| {
            let mut fields: Vec<_> = form_urlencoded::parse(text.as_bytes()).into_owned().collect();
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            fields
        };
        let forms = form::canonicalise(one.as_bytes()).zip(form::canonicalise(other.as_bytes()));
        if let Some((form, other_form)) = forms {
            prop_assert_eq!(form == other_form, fields(&one) == fields(&other));
        }
    }
}
