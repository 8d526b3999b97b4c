//! How a SQL store is set up: options of its own, beside what the driver wants to know.

use std::fmt;
use std::time::Duration;

use onlyonce_storekit::{OpenError, Options};

/// How a SQL store is set up. In a URL these are options of the same names:
/// `mysql://127.0.0.1/shop?table=payments&archive=true`.
///
/// ```
/// use onlyonce_sql::SqlOptions;
///
/// let options = SqlOptions::new().table("payments").archive(true);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SqlOptions {
    pub(crate) table: String,
    pub(crate) connections: u32,
    pub(crate) batch_max: usize,
    pub(crate) archive: bool,
    pub(crate) timeout: Duration,
}

const TABLE: &str = "onlyonce_records";
const COMPLETE: &str = "onlyonce_complete";
const CONNECTIONS: u32 = 8;
const CONNECTIONS_MAX: u32 = 256;
const TIMEOUT: Duration = Duration::from_secs(5);
const BATCH: usize = 128;
const BATCH_MAX: usize = 256;

impl SqlOptions {
    /// Table `onlyonce_records`, eight connections, up to 128 requests a statement, no archive,
    /// five seconds for an answer.
    pub fn new() -> Self {
        Self {
            table: TABLE.to_owned(),
            connections: CONNECTIONS,
            batch_max: BATCH,
            archive: false,
            timeout: TIMEOUT,
        }
    }

    /// Keeps the records in this table, and the rest in tables whose names begin with it.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Opens at most this many connections.
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// Gathers at most this many concurrent requests into one statement.
    pub fn batch_max(mut self, batch_max: usize) -> Self {
        self.batch_max = batch_max;
        self
    }

    /// Moves expired records to an archive table instead of dropping them.
    pub fn archive(mut self, archive: bool) -> Self {
        self.archive = archive;
        self
    }

    /// Waits this long for an answer of the server, or a lock; `timeout_ms` in a URL.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Takes what is ours from a URL's options.
    pub(crate) fn take(options: &mut Options) -> Result<Self, OpenError> {
        let mut taken = Self::new();
        if let Some(table) = options.take("table") {
            taken.table = table;
        }
        if let Some(connections) = options.parse("connections", "a number")? {
            taken.connections = connections;
        }
        if let Some(batch_max) = options.parse("batch_max", "a number")? {
            taken.batch_max = batch_max;
        }
        if let Some(archive) = options.parse("archive", "true or false")? {
            taken.archive = archive;
        }
        if let Some(millis) = options.parse("timeout_ms", "a number of milliseconds")? {
            taken.timeout = Duration::from_millis(millis);
        }
        Ok(taken)
    }

    /// The table, once everything is seen to be within bounds.
    pub(crate) fn check(&self) -> Result<Table, OpenError> {
        let within = |name: &str, found: usize, most: usize| match found {
            0 => Err(OpenError::option(name, "must be at least 1")),
            found if found > most => {
                Err(OpenError::option(name, &format!("must be at most {most}")))
            }
            _ => Ok(()),
        };
        within(
            "connections",
            self.connections as usize,
            CONNECTIONS_MAX as usize,
        )?;
        within("batch_max", self.batch_max, BATCH_MAX)?;
        if self.timeout.is_zero() {
            return Err(OpenError::option("timeout_ms", "must be more than no time"));
        }
        Table::parse(&self.table)
    }
}

impl Default for SqlOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Our options of `url`, and the URL with what is left: options of the driver, which are those
/// named in `drivers`. Any other is an error.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn split(
    url: &str,
    drivers: &[&'static str],
) -> Result<(SqlOptions, String), OpenError> {
    let mut options = Options::of(url)?;
    let ours = SqlOptions::take(&mut options)?;
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for name in drivers {
        if let Some(value) = options.take(name) {
            query.append_pair(name, &value);
        }
    }
    options.finish()?;
    let address = url.split_once('?').map_or(url, |(address, _)| address);
    match query.finish() {
        query if query.is_empty() => Ok((ours, address.to_owned())),
        query => Ok((ours, format!("{address}?{query}"))),
    }
}

/// The name of what completes a record of `table` in its caller's transaction: a function, a procedure
/// or a view. Without a table, of the usual one.
pub fn completion_name(table: Option<&str>) -> Result<String, OpenError> {
    Table::parse(table.unwrap_or(TABLE)).map(|table| table.complete())
}

/// The name of a table: one that needs no quoting anywhere, so that it can be put into statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table(String);

impl Table {
    /// The longest name: with what we append it still fits every database.
    const BYTES_MAX: usize = 48;

    pub(crate) fn parse(name: &str) -> Result<Self, OpenError> {
        let mut letters = name.bytes();
        let starts = letters
            .next()
            .is_some_and(|it| it.is_ascii_lowercase() || it == b'_');
        let plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_';
        if !starts || !letters.all(plain) || name.len() > Self::BYTES_MAX {
            let why = format!(
                "must be of at most {} lower-case letters, digits and underscores, and not begin with a digit",
                Self::BYTES_MAX
            );
            return Err(OpenError::option("table", &why));
        }
        Ok(Self(name.to_owned()))
    }

    /// `sql` about this table: its name instead of every `{table}`, and that of what completes its
    /// records for `{complete}`.
    pub(crate) fn fill(&self, sql: &str) -> String {
        sql.replace("{table}", &self.0)
            .replace("{complete}", &self.complete())
    }

    /// What a program calls to complete a record in its own transaction.
    pub(crate) fn complete(&self) -> String {
        match &*self.0 {
            TABLE => COMPLETE.to_owned(),
            // The two would be called alike otherwise.
            table if COMPLETE.strip_suffix("_complete") == Some(table) => {
                format!("{TABLE}_complete")
            }
            table => format!("{table}_complete"),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
