//! Rows "key rule" and "bad key".

use onlyonce_core::Event;

use super::{CONTRACTS, Charset, Contract};
use crate::support::{App, PATH, post, uuid};

/// Asserts that each key is taken, or else refused before anything runs.
async fn assert_keys(contract: &Contract, keys: &[(&[u8], bool)]) {
    for (key, taken) in keys {
        let shown = String::from_utf8_lossy(key);
        let app = App::under(contract.profile).open().await;

        let answer = app.send(&post(PATH).key(key)).await;

        if *taken {
            let profile = contract.profile;
            assert_eq!(answer.status, 200, "{profile} {shown}: {}", answer.text());
            assert_eq!(app.records().await.len(), 1, "{profile} {shown}");
        } else {
            contract.assert_refused(&answer, contract.bad_key);
            assert_eq!(app.runs(), 0, "{} {shown}", contract.profile);
        }
    }
}

#[tokio::test]
async fn a_key_may_be_as_long_as_the_bound_and_not_one_byte_longer() {
    for contract in &CONTRACTS {
        let Some(bytes_max) = contract.key_bytes_max else {
            continue;
        };
        let (longest, longer) = ("k".repeat(bytes_max), "k".repeat(bytes_max + 1));
        let (quoted, longer_quoted) = (format!("\"{longest}\""), format!("\"{longer}\""));

        assert_keys(
            contract,
            &[
                (b"k", true),
                (longest.as_bytes(), true),
                (longer.as_bytes(), false),
                // Its quotes are not part of a key.
                (quoted.as_bytes(), true),
                (longer_quoted.as_bytes(), false),
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn each_profile_takes_the_characters_it_promises() {
    for contract in &CONTRACTS {
        let visible = matches!(contract.charset, Charset::Visible | Charset::Text);
        let text = contract.charset == Charset::Text;
        let url_safe = visible || contract.charset == Charset::UrlSafe;

        assert_keys(
            contract,
            &[
                (b"Order_7.retry-1", url_safe),
                (b"a:b", visible),
                (b"a/b+c=d,e;f~!", visible),
                (b"\"a:b\"", visible),
                (b"\"say \\\"hi\\\"\"", text),
                (b"a b", text),
                (b"\"a b\"", text),
                ("bestell-ü".as_bytes(), text),
                (b"a\tb", false),
                (b"bestell-\xfc", false),
                (b"\"never closed", false),
                (b"\"closed\" too early", false),
                (b"", false),
                (b"   ", false),
                (b"\"\"", false),
                (b"\"  \"", false),
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn only_a_uuid_of_version_4_will_do_where_the_profile_says_so() {
    for contract in &CONTRACTS {
        if contract.charset != Charset::UuidV4 {
            continue;
        }

        assert_keys(
            contract,
            &[
                (b"550e8400-e29b-41d4-a716-446655440000", true),
                (b"550E8400-E29B-41D4-B716-446655440000", true),
                (b"\"550e8400-e29b-41d4-8716-446655440000\"", true),
                // Version 1, version 7, another variant.
                (b"550e8400-e29b-11d4-a716-446655440000", false),
                (b"550e8400-e29b-71d4-a716-446655440000", false),
                (b"550e8400-e29b-41d4-c716-446655440000", false),
                // One digit too few, one too many, other spellings, no UUID.
                (b"550e8400-e29b-41d4-a716-44665544000", false),
                (b"550e8400-e29b-41d4-a716-4466554400000", false),
                (b"550e8400e29b41d4a716446655440000", false),
                (b"{550e8400-e29b-41d4-a716-446655440000}", false),
                (b"urn:uuid:550e8400-e29b-41d4-a716-446655440000", false),
                (b"550e8400-e29b-41d4-a716-44665544000g", false),
                (b"order-7", false),
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn the_quoted_and_the_bare_form_are_one_key() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;
        app.send(&post(PATH).key(uuid(1))).await;

        for quoted in [
            format!("\"{}\"", uuid(1)),
            format!("  \"{}\"  ", uuid(1)),
            format!("\"{}\";v=1", uuid(1)),
        ] {
            let retry = app.send(&post(PATH).key(&quoted)).await;

            assert_eq!(retry.run(), 1, "{}: {quoted}", contract.profile);
        }
        assert_eq!(app.runs(), 1, "{}", contract.profile);
    }
}

#[tokio::test]
async fn keys_are_case_sensitive() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;

        app.send(&post(PATH).key(uuid(1))).await;
        app.send(&post(PATH).key(uuid(1).to_uppercase())).await;

        assert_eq!(app.runs(), 2, "{}", contract.profile);
    }
}

#[tokio::test]
async fn two_key_lines_are_refused_even_if_they_agree() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;

        let answer = app.send(&post(PATH).key(uuid(1)).key(uuid(1))).await;

        contract.assert_refused(&answer, contract.bad_key);
        assert_eq!(app.runs(), 0);
    }
}

#[tokio::test]
async fn a_guessable_key_is_reported_where_the_document_asks_for_random_ones() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;
        let guessable = match contract.charset {
            Charset::UuidV4 => "11111111-1111-4111-8111-111111111111",
            Charset::UrlSafe | Charset::Visible | Charset::Text => "order-7",
        };

        let strong = app.send(&post(PATH).key(uuid(0x5eed_1234))).await;
        let reported_for_strong = app.events.count(|event| *event == Event::WeakKey);
        let weak = app.send(&post(PATH).key(guessable)).await;

        let wants_random = matches!(contract.profile.name(), "guardian" | "middleware");
        assert_eq!((strong.status, weak.status), (200, 200));
        assert_eq!(reported_for_strong, 0, "{}", contract.profile);
        assert_eq!(
            app.events.count(|event| *event == Event::WeakKey),
            usize::from(wants_random),
            "{}",
            contract.profile
        );
    }
}
