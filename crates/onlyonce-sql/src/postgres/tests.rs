//! What needs no server.

use bytes::Bytes;

use super::arg::{Arg, inline};
use super::statements::{Statement, Statements};
use crate::shared::Table;

fn all(statements: &Statements) -> [&Statement; 21] {
    [
        &statements.claim,
        &statements.renew,
        &statements.complete,
        &statements.complete_in,
        &statements.lock_in,
        &statements.release,
        &statements.look,
        &statements.get,
        &statements.get_durable,
        &statements.list,
        &statements.forget,
        &statements.extend,
        &statements.resolve,
        &statements.discard,
        &statements.sweep,
        &statements.stats,
        &statements.ping,
        &statements.count,
        &statements.offer,
        &statements.agreed,
        &statements.notify,
    ]
}

#[test]
fn every_word_of_a_statement_is_spelled_out() {
    for archive in [false, true] {
        for statement in all(&Statements::new(&Table::parse("shop").unwrap(), archive)) {
            let left = statement.sql.contains(['{', '}']);
            assert!(!left, "{}", statement.sql);
        }
    }
}

/// A prepared statement is one text however many rows it carries.
#[test]
fn only_what_takes_no_values_is_more_than_one_command() {
    for statement in all(&Statements::new(&Table::parse("shop").unwrap(), true)) {
        let commands = statement.sql.contains(';');
        assert!(
            !commands || !statement.sql.contains('$'),
            "{}",
            statement.sql
        );
    }
}

#[test]
fn what_is_spelled_into_a_text_is_digits() {
    let args = [
        Arg::Texts(vec![Some("a'; DROP TABLE x; --$1\\".to_owned()), None]),
        Arg::Bytess(vec![Bytes::from_static(b"\0'"), Bytes::new()]),
        Arg::Ints(vec![-1, i64::MAX]),
        Arg::Bools(vec![true, false]),
        Arg::Text(Some("ä".to_owned())),
        Arg::Int(7),
    ];

    let text = inline("f($1::text[], $2, $3, $4, $6) || $5", &args);

    assert_eq!(
        text,
        "f(ARRAY[convert_from(decode('61273b2044524f50205441424c4520783b202d2d24315c','hex'),\
         'UTF8'),NULL]::text[], ARRAY[decode('0027','hex'),decode('','hex')], \
         ARRAY[(-1),(9223372036854775807)], ARRAY[(true),(false)], (7)) \
         || convert_from(decode('c3a4','hex'),'UTF8')"
    );
}
