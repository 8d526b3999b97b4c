//! Statements as text, many in one round trip. Values are spelled as hexadecimal digits or
//! numbers, so nothing of a request can ever be read as a statement.

use std::fmt::Write;

use sqlx::AssertSqlSafe;

/// One or more statements.
#[derive(Clone, Default)]
pub(super) struct Text(String);

const BEGIN: &str = "START TRANSACTION;";

impl Text {
    /// Statements that hold no values.
    pub(super) fn of(sql: impl Into<String>) -> Self {
        Self(sql.into())
    }

    /// The beginning of a transaction.
    pub(super) fn transaction() -> Self {
        Self::of(BEGIN)
    }

    /// Whether a transaction may be left open if one of the statements fails.
    pub(super) fn is_transaction(&self) -> bool {
        self.0.starts_with(BEGIN)
    }

    /// Statements of ours; never anything from outside.
    pub(super) fn sql(&mut self, sql: &str) -> &mut Self {
        self.0.push_str(sql);
        self
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.0.reserve(2 * bytes.len() + 3);
        self.0.push_str("x'");
        for byte in bytes {
            self.0.push(char::from(DIGITS[usize::from(byte >> 4)]));
            self.0.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        self.0.push('\'');
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.sql("_utf8mb4 ").bytes(text.as_bytes())
    }

    pub(super) fn int(&mut self, number: i64) -> &mut Self {
        write!(self.0, "{number}").expect("a string takes whatever is written");
        self
    }

    /// `each` for every item, with commas between.
    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T) -> &mut Self,
    ) -> &mut Self {
        for (n, item) in items.into_iter().enumerate() {
            if n > 0 {
                self.0.push(',');
            }
            each(self, item);
        }
        self
    }

    pub(super) fn into_sql(self) -> AssertSqlSafe<String> {
        AssertSqlSafe(self.0)
    }
}
