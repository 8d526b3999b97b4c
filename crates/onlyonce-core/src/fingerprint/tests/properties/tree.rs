//! A JSON value, read with serde_json and spelt canonically the slow and obvious way.

use serde_json::value::RawValue;

/// A value that keeps numbers as written and repeated names in their order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    /// A number, `true`, `false` or `null`.
    Scalar(String),
    Text(String),
    List(Vec<Tree>),
    Members(Vec<(String, Tree)>),
}

impl Tree {
    /// What serde_json accepts, down to 128 levels. Going level by level spares us its own depth
    /// limit and its range of numbers; lone surrogates it refuses itself.
    pub(super) fn read(input: &[u8]) -> Option<Self> {
        Self::read_raw(serde_json::from_slice::<&RawValue>(input).ok()?.get(), 0)
    }

    fn read_raw(raw: &str, depth: usize) -> Option<Self> {
        match raw.as_bytes()[0] {
            b'"' => Some(Self::Text(serde_json::from_str(raw).ok()?)),
            b'[' | b'{' if depth == 128 => None,
            b'[' => {
                let items: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
                let items = items
                    .into_iter()
                    .map(|item| Self::read_raw(item.get(), depth + 1));
                items.collect::<Option<_>>().map(Self::List)
            }
            b'{' => Self::read_members(&raw[1..raw.len() - 1], depth + 1).map(Self::Members),
            _ => Some(Self::Scalar(raw.to_owned())),
        }
    }

    /// The members of an object that is known to be well-formed; a map would drop repeated names.
    fn read_members(mut rest: &str, depth: usize) -> Option<Vec<(String, Self)>> {
        let mut members = Vec::new();
        while !rest.trim().is_empty() {
            let (name, after_name) = first_value(rest);
            let (value, after_value) = first_value(after_name.trim_start().strip_prefix(':')?);
            members.push((
                serde_json::from_str(name).ok()?,
                Self::read_raw(value, depth)?,
            ));
            let after_value = after_value.trim_start();
            rest = after_value.strip_prefix(',').unwrap_or(after_value);
        }
        Some(members)
    }

    pub(super) fn canonical(&self) -> String {
        match self.sorted() {
            Self::Scalar(written) => written,
            Self::Text(text) => quote(&text),
            Self::List(items) => {
                let items: Vec<_> = items.iter().map(Self::canonical).collect();
                format!("[{}]", items.join(","))
            }
            Self::Members(members) => {
                let spell = |(name, value): &(String, Self)| quote(name) + ":" + &value.canonical();
                let members: Vec<_> = members.iter().map(spell).collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    /// The value with all members in canonical order.
    pub(super) fn sorted(&self) -> Self {
        self.with_members_by(&|name| name.encode_utf16().collect())
    }

    /// The value with all members in some other order, but equal names as they came.
    pub(super) fn shuffled(&self, seed: u64) -> Self {
        self.with_members_by(&|name| {
            let mixed = name.bytes().fold(seed, |mixed, byte| {
                (mixed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
            vec![(mixed >> 24) as u16]
        })
    }

    fn with_members_by(&self, key: &dyn Fn(&str) -> Vec<u16>) -> Self {
        match self {
            Self::Scalar(_) | Self::Text(_) => self.clone(),
            Self::List(items) => {
                Self::List(items.iter().map(|item| item.with_members_by(key)).collect())
            }
            Self::Members(members) => {
                let inside = members
                    .iter()
                    .map(|(name, value)| (name.clone(), value.with_members_by(key)));
                let mut members: Vec<_> = inside.collect();
                // Two names may share a shuffled key: the name itself then keeps them apart.
                members.sort_by_key(|(name, _)| (key(name), name.clone()));
                Self::Members(members)
            }
        }
    }

    /// The value with surrounding whitespace taken off its strings, names excepted.
    pub(super) fn trimmed(&self) -> Self {
        match self {
            Self::Scalar(_) => self.clone(),
            Self::Text(text) => Self::Text(text.trim().to_owned()),
            Self::List(items) => Self::List(items.iter().map(Self::trimmed).collect()),
            Self::Members(members) => {
                let trim = |(name, value): &(String, Self)| (name.clone(), value.trimmed());
                Self::Members(members.iter().map(trim).collect())
            }
        }
    }

    /// The value as text at the whim of `choices`: whitespace anywhere, escapes for anything.
    pub(super) fn spelt(&self, choices: &mut dyn Iterator<Item = u8>) -> String {
        let mut out = space(choices).to_owned();
        match self {
            Self::Scalar(written) => out += written,
            Self::Text(text) => out += &spell_text(text, choices),
            Self::List(items) => {
                let items: Vec<_> = items.iter().map(|item| item.spelt(choices)).collect();
                out += &format!("[{}{}]", space(choices), items.join(","));
            }
            Self::Members(members) => {
                let spell = |(name, value): &(String, Self)| {
                    let before = space(choices).to_owned() + &spell_text(name, choices);
                    before + space(choices) + ":" + &value.spelt(choices)
                };
                let members: Vec<_> = members.iter().map(spell).collect();
                out += &format!("{{{}{}}}", space(choices), members.join(","));
            }
        }
        out + space(choices)
    }
}

/// The first of the values in `text`, as written, and what follows it.
fn first_value(text: &str) -> (&str, &str) {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let value = values.next().unwrap().unwrap().get();
    (value, &text[values.byte_offset()..])
}

fn quote(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

fn space(choices: &mut dyn Iterator<Item = u8>) -> &'static str {
    let choice = choices.next().unwrap_or_default();
    ["", "", "", " ", "\n", "\t\r "][usize::from(choice % 6)]
}

fn spell_text(text: &str, choices: &mut dyn Iterator<Item = u8>) -> String {
    let mut spell = |char: char| match choices.next().unwrap_or_default() % 8 {
        0 => char
            .encode_utf16(&mut [0; 2])
            .iter()
            .map(|unit| format!("\\u{unit:04x}"))
            .collect(),
        1 => char
            .encode_utf16(&mut [0; 2])
            .iter()
            .map(|unit| format!("\\u{unit:04X}"))
            .collect(),
        2 if char == '/' => "\\/".to_owned(),
        _ => quote(char.encode_utf8(&mut [0; 4]))
            .trim_matches('"')
            .to_owned(),
    };
    let inner: String = text
        .chars()
        .map(|char| {
            if char == '"' {
                "\\\"".to_owned()
            } else {
                spell(char)
            }
        })
        .collect();
    format!("\"{inner}\"")
}
