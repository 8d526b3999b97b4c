//! Keys: read as a second, simpler reader reads them; never shown.

use onlyonce_core::key::Charset;
use onlyonce_core::{Key, KeyRule, Scope, SlotSecret};

use crate::NEEDLE;

/// The first byte picks the rule, the rest is a header's value.
pub fn key(data: &[u8]) {
    let Some((&choice, raw)) = data.split_first() else {
        return;
    };
    let rule = rule(choice);
    let parsed = Key::parse(raw, &rule);
    if let Some(expected) = expected(raw, &rule) {
        let found = parsed.as_ref().ok().map(Key::expose);
        assert_eq!(found, expected.as_deref(), "{parsed:?}");
    }
    if let Ok(key) = &parsed {
        check(key, &rule);
    }
    hides(raw, &rule);
}

fn rule(choice: u8) -> KeyRule {
    KeyRule {
        bytes_max: [200, 255, 16, 64 * 1024][usize::from(choice >> 2) % 4],
        charset: match choice & 3 {
            0 => Charset::UrlSafe,
            1 => Charset::Visible,
            2 => Charset::Text,
            _ => Charset::UuidV4,
        },
        random: choice & 0x80 != 0,
    }
}

/// What a key must be; nothing where only RFC 9651's parameters could tell.
fn expected(raw: &[u8], rule: &KeyRule) -> Option<Option<String>> {
    let raw = raw.trim_ascii();
    let text = match raw.strip_prefix(b"\"") {
        Some(rest) => match unquote(rest) {
            Some((text, b"")) => text,
            Some((_, [b';' | b' ', ..])) => return None,
            Some(_) | None => return Some(None),
        },
        None => match std::str::from_utf8(raw) {
            Ok(text) => text.to_owned(),
            Err(_) => return Some(None),
        },
    };
    let fits = !text.trim().is_empty() && text.len() <= rule.bytes_max && admits(rule, &text);
    Some(fits.then_some(text))
}

/// The text of a string whose first quote is gone, and what follows its last one.
fn unquote(bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut text = String::new();
    let mut at = 0;
    loop {
        let byte = match bytes.get(at)? {
            b'"' => return Some((text, &bytes[at + 1..])),
            b'\\' => {
                at += 1;
                *bytes.get(at).filter(|byte| b"\"\\".contains(byte))?
            }
            byte => *byte,
        };
        if !(0x20..0x7f).contains(&byte) {
            return None;
        }
        text.push(char::from(byte));
        at += 1;
    }
}

fn admits(rule: &KeyRule, text: &str) -> bool {
    let all = |allowed: fn(char) -> bool| text.chars().all(allowed);
    match rule.charset {
        Charset::UrlSafe => all(|c| c.is_ascii() && (c.is_alphanumeric() || "_.-".contains(c))),
        Charset::Visible => all(|c| ('!'..='~').contains(&c)),
        Charset::Text => all(|c| !c.is_control()),
        Charset::UuidV4 => {
            let groups: Vec<&str> = text.split('-').collect();
            let hex = |c: char| c.is_ascii_hexdigit();
            groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
                && groups.iter().all(|group| group.chars().all(hex))
                && groups[2].starts_with('4')
                && groups[3].starts_with(['8', '9', 'a', 'b', 'A', 'B'])
        }
    }
}

/// What holds for a key once it is one.
fn check(key: &Key, rule: &KeyRule) {
    let text = key.expose();
    assert!(text.len() <= rule.bytes_max && !text.trim().is_empty());
    assert_eq!(Key::new(text, rule).as_ref(), Ok(key));
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        assert_eq!(Key::parse(quoted.as_bytes(), rule).as_ref(), Ok(key));
    }
    let _ = key.looks_weak();

    let secret = SlotSecret::from_bytes([7; SlotSecret::BYTES]);
    let shown_max = if text.chars().count() >= 28 { 8 } else { 4 };
    assert!(key.hint().to_string().len() <= shown_max);
    assert!(secret.hint(key).to_text().len() <= 16);
    let scope = Scope::new("n").with("user", "u");
    let longer = Key::new(&format!("{text}x"), &KeyRule::any()).expect("text and a letter");
    assert_eq!(secret.slot(&scope, key), secret.slot(&scope, &key.clone()));
    assert_ne!(secret.slot(&scope, key), secret.slot(&scope, &longer));
    assert_ne!(
        secret.slot(&Scope::new("nu"), key),
        secret.slot(&scope, key)
    );
}

/// Neither an error nor what is printed of a key shows it.
fn hides(raw: &[u8], rule: &KeyRule) {
    for secret in [
        [NEEDLE.as_bytes(), raw].concat(),
        [raw, NEEDLE.as_bytes()].concat(),
    ] {
        let told = match Key::parse(&secret, rule) {
            Ok(key) => format!("{key:?} {}", key.hint()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!told.contains(NEEDLE), "{told}");
        assert!(told.len() < 400, "{told}");
    }
}
