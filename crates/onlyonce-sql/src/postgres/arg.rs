//! The values of a statement: bound to a prepared one, or spelled into its text where there is no
//! session to prepare it in. Spelled values are numbers and hexadecimal digits only, so that no
//! text of anybody's reaches the server's parser.

use std::fmt::Write as _;

use bytes::Bytes;
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

/// One value. Nothing in it is secret to the server, and nothing of it is ever shown.
pub(super) enum Arg {
    Bool(bool),
    Int(i64),
    Text(Option<String>),
    Bytes(Bytes),
    Bools(Vec<bool>),
    Ints(Vec<i64>),
    Texts(Vec<Option<String>>),
    Bytess(Vec<Bytes>),
}

type Prepared<'q> = Query<'q, Postgres, PgArguments>;

/// Binds all values, in their order.
pub(super) fn bind<'q>(query: Prepared<'q>, args: &[Arg]) -> Prepared<'q> {
    args.iter().fold(query, |query, arg| match arg {
        Arg::Bool(value) => query.bind(*value),
        Arg::Int(value) => query.bind(*value),
        Arg::Text(value) => query.bind(value.clone()),
        Arg::Bytes(value) => query.bind(value.to_vec()),
        Arg::Bools(values) => query.bind(values.clone()),
        Arg::Ints(values) => query.bind(values.clone()),
        Arg::Texts(values) => query.bind(values.clone()),
        Arg::Bytess(values) => query.bind(values.iter().map(|it| &it[..]).collect::<Vec<_>>()),
    })
}

/// The statement with every `$n` replaced by its value.
pub(super) fn inline(sql: &str, args: &[Arg]) -> String {
    let mut text = String::with_capacity(sql.len() + args.iter().map(Arg::room).sum::<usize>());
    let mut pieces = sql.split('$');
    text.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let digits = piece.len()
            - piece
                .trim_start_matches(|it: char| it.is_ascii_digit())
                .len();
        let (number, rest) = piece.split_at(digits);
        let number: usize = number.parse().expect("a parameter has a number");
        args[number - 1].spell(&mut text);
        text.push_str(rest);
    }
    text
}

impl Arg {
    fn spell(&self, out: &mut String) {
        match self {
            Self::Bool(value) => spell_shown(out, value),
            Self::Int(value) => spell_shown(out, value),
            Self::Text(value) => spell_text(out, value),
            Self::Bytes(value) => spell_bytes(out, value),
            Self::Bools(values) => spell_all(out, values, spell_shown),
            Self::Ints(values) => spell_all(out, values, spell_shown),
            Self::Texts(values) => spell_all(out, values, spell_text),
            Self::Bytess(values) => spell_all(out, values, spell_bytes),
        }
    }

    /// How much its spelling takes, near enough.
    fn room(&self) -> usize {
        const AROUND: usize = 32;
        let bytes = |length: usize| 2 * length + AROUND;
        match self {
            Self::Bool(_) | Self::Int(_) => AROUND,
            Self::Text(value) => bytes(value.as_ref().map_or(0, String::len)),
            Self::Bytes(value) => bytes(value.len()),
            Self::Bools(values) => AROUND * values.len(),
            Self::Ints(values) => AROUND * values.len(),
            Self::Texts(values) => values
                .iter()
                .map(|it| bytes(it.as_ref().map_or(0, String::len)))
                .sum(),
            Self::Bytess(values) => values.iter().map(|it| bytes(it.len())).sum(),
        }
    }
}

fn spell_all<T>(out: &mut String, values: &[T], spell: fn(&mut String, &T)) {
    out.push_str("ARRAY[");
    for (n, value) in values.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        spell(out, value);
    }
    out.push(']');
}

fn spell_shown(out: &mut String, value: &impl ToString) {
    out.push('(');
    out.push_str(&value.to_string());
    out.push(')');
}

fn spell_text(out: &mut String, value: &Option<String>) {
    match value {
        None => out.push_str("NULL"),
        Some(value) => {
            out.push_str("convert_from(");
            spell_hex(out, value.as_bytes());
            out.push_str(",'UTF8')");
        }
    }
}

fn spell_bytes(out: &mut String, value: &Bytes) {
    spell_hex(out, value);
}

fn spell_hex(out: &mut String, value: &[u8]) {
    out.push_str("decode('");
    for byte in value {
        write!(out, "{byte:02x}").expect("a string takes whatever is written");
    }
    out.push_str("','hex')");
}
