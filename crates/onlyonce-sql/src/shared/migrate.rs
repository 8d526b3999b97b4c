//! The schema, in versions: each migration is applied once, in order, and a schema newer than this
//! build is left alone.

use onlyonce_storekit::OpenError;

use super::Table;

/// All migrations of one database, the oldest first: number `n` leads to version `n + 1`.
pub(crate) struct Migrations {
    pub(crate) store: &'static str,
    pub(crate) all: &'static [&'static str],
}

impl Migrations {
    /// The version this build works with.
    pub(crate) fn latest(&self) -> i64 {
        i64::try_from(self.all.len()).unwrap_or(i64::MAX)
    }

    /// What leads from version `found` (0: nothing there) to the latest: each step's version and
    /// its statements.
    pub(crate) fn from(&self, found: i64, table: &Table) -> Result<Vec<(i64, String)>, OpenError> {
        let latest = self.latest();
        if found > latest {
            let why = format!(
                "table `{table}` has schema version {found}, this build knows version {latest}: upgrade this process, or name another table"
            );
            let store = self.store;
            return Err(OpenError::Refused { store, why });
        }
        let done = usize::try_from(found).unwrap_or(0);
        let left = (1..).zip(self.all).skip(done);
        // More statements will follow; an empty one between them would be an error.
        let bare = |sql: &str| table.fill(sql.trim_end().trim_end_matches(';'));
        Ok(left.map(|(to, sql)| (to, bare(sql))).collect())
    }
}
