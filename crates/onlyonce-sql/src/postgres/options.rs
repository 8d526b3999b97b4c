//! How a store is told what to do: in code, or in the query of its URL.

use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use url::Url;

use super::hosts::Host;
use super::target;
use crate::shared::{SqlOptions, Table};
use onlyonce_storekit::{OpenError, Options};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// What the URL may tell the connection, in the words of libpq.
const CONNECTING: [&str; 13] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "statement-cache-capacity",
];

/// Choices of a [`PostgresStore`](super::PostgresStore): those of every SQL store, and its own.
///
/// ```
/// use onlyonce_sql::{PostgresOptions, SqlOptions};
///
/// let options = PostgresOptions::from(SqlOptions::new().table("shop_once")).notify(false);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PostgresOptions {
    pub(super) sql: SqlOptions,
    pub(super) notify: bool,
    pub(super) pooled: bool,
    pub(super) connect_timeout: Duration,
}

impl PostgresOptions {
    /// What suits most.
    pub fn new() -> Self {
        SqlOptions::new().into()
    }

    /// Whether ends of claims are announced to other processes, and theirs listened for on one
    /// more connection. Without, who waits for another process asks several times a second.
    pub fn notify(mut self, notify: bool) -> Self {
        self.notify = notify;
        self
    }

    /// The table, once everything is seen to be within bounds.
    pub(super) fn check(&self) -> Result<Table, OpenError> {
        if self.connect_timeout.is_zero() {
            return Err(OpenError::option(
                "connect_timeout_ms",
                "must be more than no time",
            ));
        }
        self.sql.check()
    }
}

impl From<SqlOptions> for PostgresOptions {
    fn from(sql: SqlOptions) -> Self {
        Self {
            sql,
            notify: true,
            pooled: false,
            connect_timeout: CONNECT_TIMEOUT,
        }
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// What a store connects to.
pub(super) enum Target {
    /// One server, whatever it is.
    One(Box<PgConnectOptions>),
    /// That of these servers that takes writes.
    Writable(Vec<Host>),
}

/// The choices in a URL, and how to connect.
pub(super) fn read(url: &str) -> Result<(PostgresOptions, Target), OpenError> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or_default();
    let (set, ours): (Vec<_>, Vec<_>) = url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .partition(|(name, _)| name.starts_with("options["));
    let ours = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(ours)
        .finish();
    let mut given = Options::of(&format!("postgres:?{ours}"))?;
    let addresses = target::addresses(url, &mut given)?;
    let options = choices(&mut given)?;
    let mut passed = url::form_urlencoded::Serializer::new(String::new());
    // The later of two wins: what the URL says.
    passed
        .extend_pairs(session(&options, addresses.writable))
        .extend_pairs(set);
    for name in CONNECTING {
        if let Some(value) = given.take(name) {
            passed.append_pair(name, &value);
        }
    }
    given.finish()?;
    options.check()?;
    let passed = passed.finish();
    let connects = addresses.each.into_iter().map(|mut address| {
        address.set_query(Some(&passed));
        connect(&address, &options)
    });
    let connects = connects.collect::<Result<Vec<_>, _>>()?;
    let target = match <[PgConnectOptions; 1]>::try_from(connects) {
        Ok([connect]) if !addresses.writable => Target::One(Box::new(connect)),
        Ok(one) => Target::Writable(one.map(Host::new).into()),
        Err(several) => Target::Writable(several.into_iter().map(Host::new).collect()),
    };
    Ok((options, target))
}

/// How to connect to one server.
fn connect(address: &Url, options: &PostgresOptions) -> Result<PgConnectOptions, OpenError> {
    let connect = PgConnectOptions::from_url(address)
        .map_err(|_| OpenError::url("an option of the connection has a wrong value"))?;
    // Statements are never logged: where values are spelled into them, they hold what was answered
    // to somebody.
    let connect = connect.disable_statement_logging();
    let connect = match connect.get_application_name() {
        Some(_) => connect,
        None => connect.application_name("onlyonce"),
    };
    Ok(if options.pooled {
        // A pooler refuses what it does not know.
        connect.extra_float_digits(None)
    } else {
        connect
    })
}

fn choices(given: &mut Options) -> Result<PostgresOptions, OpenError> {
    let mut options = PostgresOptions::from(SqlOptions::take(given)?);
    if let Some(notify) = given.parse("notify", "true or false")? {
        options.notify = notify;
    }
    if let Some(pooled) = given.parse("pooled", "true or false")? {
        options.pooled = pooled;
    }
    if let Some(millis) = given.parse("connect_timeout_ms", "a number of milliseconds")? {
        options.connect_timeout = Duration::from_millis(millis);
    }
    Ok(options)
}

/// How the server is to treat our sessions, whatever the defaults of the role and the database are.
/// Behind a pooler they are not ours to set up: see [`before_each`].
fn session(options: &PostgresOptions, writable: bool) -> Vec<(String, String)> {
    if options.pooled {
        return Vec::new();
    }
    let lock_timeout = lock_millis(options.sql.timeout);
    let settings = [
        // A plan made while the table is small must not read all of it when it has grown.
        ("plan_cache_mode", "force_generic_plan"),
        ("enable_seqscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
        ("jit", "off"),
        ("default_transaction_isolation", "read committed"),
        ("bytea_output", "hex"),
        // What we have given up on ends, also where it could not be cancelled.
        ("statement_timeout", "60000"),
        ("lock_timeout", &lock_timeout.to_string()),
    ];
    // Of several servers, one whose sessions begin read-only is closed to us, and found out by that.
    let writes = (!writable).then_some(("default_transaction_read_only", "off"));
    let settings = settings.into_iter().chain(writes);
    let named = settings.map(|(name, value)| (format!("options[{name}]"), value.to_owned()));
    named.collect()
}

/// What precedes a statement in its own transaction, where the session is somebody else's: the same
/// as for a session of ours. `at_most` is how long the statement may take.
pub(super) fn before_each(at_most: Duration) -> String {
    let statement_timeout = millis(at_most);
    let lock_timeout = lock_millis(at_most);
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
         SET LOCAL bytea_output = hex;
         SET LOCAL statement_timeout = {statement_timeout};
         SET LOCAL lock_timeout = {lock_timeout};
         "
    )
}

/// How long a lock may be waited for: a little less than the whole, so that a statement that gets
/// none ends on the server before we give it up.
fn lock_millis(at_most: Duration) -> i32 {
    millis(at_most - at_most / 10)
}

/// As the server takes it. Zero would be no bound at all.
fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).map_or(i32::MAX, |millis| millis.max(1))
}
