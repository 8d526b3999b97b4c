//! How a store is told what to do: in code, or in the query of its URL.

use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use url::Url;

use crate::open::{OpenError, Options};

/// Left out of the length of an identifier for what is added to the table's name.
const TABLE_BYTES_MAX: usize = 48;

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

/// Choices of a [`PostgresStore`](super::PostgresStore) on a pool that is there already; in a URL
/// they are options of the same names.
///
/// ```
/// use onlyonce_stores::sql::PostgresOptions;
///
/// let options = PostgresOptions::new().table("shop_once").archive(true);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    pub(super) table: String,
    pub(super) connections: u32,
    pub(super) batch_max: usize,
    pub(super) notify: bool,
    pub(super) archive: bool,
    pub(super) pooled: bool,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
}

impl PostgresOptions {
    /// What suits most.
    pub fn new() -> Self {
        Self {
            table: "onlyonce_records".to_owned(),
            connections: 8,
            batch_max: 128,
            notify: true,
            archive: false,
            pooled: false,
            timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(3),
        }
    }

    /// What its tables are called, or begin with.
    #[must_use]
    pub fn table(mut self, table: &str) -> Self {
        table.clone_into(&mut self.table);
        self
    }

    /// How many connections of the pool it uses at the same time.
    #[must_use]
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// How many questions one statement carries.
    #[must_use]
    pub fn batch_max(mut self, batch_max: usize) -> Self {
        self.batch_max = batch_max;
        self
    }

    /// Whether ends of claims are announced to other processes, and theirs listened for on one
    /// more connection. Without, who waits for another process asks several times a second.
    #[must_use]
    pub fn notify(mut self, notify: bool) -> Self {
        self.notify = notify;
        self
    }

    /// Whether a sweep moves finished records to an archive instead of dropping them.
    #[must_use]
    pub fn archive(mut self, archive: bool) -> Self {
        self.archive = archive;
        self
    }

    /// How long a statement may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// That every choice makes sense.
    pub(super) fn check(&self) -> Result<(), OpenError> {
        let first = self.table.bytes().next().unwrap_or(b'0');
        let plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_';
        if first.is_ascii_digit()
            || !self.table.bytes().all(plain)
            || self.table.len() > TABLE_BYTES_MAX
        {
            let why = format!(
                "must be at most {TABLE_BYTES_MAX} lower-case letters, digits and underscores, \
                 and begin with no digit"
            );
            return Err(wrong("table", &why));
        }
        if self.connections == 0 {
            return Err(wrong("connections", "at least one is needed"));
        }
        if self.batch_max == 0 {
            return Err(wrong("batch_max", "at least one is needed"));
        }
        if self.timeout.is_zero() || self.connect_timeout.is_zero() {
            return Err(wrong("timeout_ms", "must be more than no time"));
        }
        Ok(())
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The choices in a URL, and how to connect.
pub(super) fn read(url: &str) -> Result<(PostgresOptions, PgConnectOptions), OpenError> {
    let mut address = Url::parse(url).map_err(|error| unreadable(&error.to_string()))?;
    let (set, ours): (Vec<_>, Vec<_>) = address
        .query_pairs()
        .into_owned()
        .partition(|(name, _)| name.starts_with("options["));
    let ours = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(ours)
        .finish();
    let mut given = Options::of(&format!("postgres:?{ours}"))?;
    let options = choices(&mut given)?;
    let mut passed = url::form_urlencoded::Serializer::new(String::new());
    // The later of two wins: what the URL says.
    passed.extend_pairs(session(&options)).extend_pairs(set);
    for name in CONNECTING {
        if let Some(value) = given.take(name) {
            passed.append_pair(name, &value);
        }
    }
    given.finish()?;
    options.check()?;
    address.set_query(Some(&passed.finish()));
    let connect = PgConnectOptions::from_url(&address)
        .map_err(|_| unreadable("an option of the connection has a wrong value"))?;
    // Statements are never logged: where values are spelled into them, they hold what was answered
    // to somebody.
    let connect = connect.disable_statement_logging();
    let connect = match connect.get_application_name() {
        Some(_) => connect,
        None => connect.application_name("onlyonce"),
    };
    let connect = if options.pooled {
        // A pooler refuses what it does not know.
        connect.extra_float_digits(None)
    } else {
        connect
    };
    Ok((options, connect))
}

fn choices(given: &mut Options) -> Result<PostgresOptions, OpenError> {
    let mut options = PostgresOptions::new();
    if let Some(table) = given.take("table") {
        options.table = table;
    }
    if let Some(connections) = given.parse("connections", "a number")? {
        options.connections = connections;
    }
    if let Some(batch_max) = given.parse("batch_max", "a number")? {
        options.batch_max = batch_max;
    }
    if let Some(notify) = given.parse("notify", "true or false")? {
        options.notify = notify;
    }
    if let Some(archive) = given.parse("archive", "true or false")? {
        options.archive = archive;
    }
    if let Some(pooled) = given.parse("pooled", "true or false")? {
        options.pooled = pooled;
    }
    if let Some(millis) = given.parse("timeout_ms", "a number of milliseconds")? {
        options.timeout = Duration::from_millis(millis);
    }
    if let Some(millis) = given.parse("connect_timeout_ms", "a number of milliseconds")? {
        options.connect_timeout = Duration::from_millis(millis);
    }
    Ok(options)
}

/// How the server is to treat our sessions; behind a pooler they are not ours to set up.
fn session(options: &PostgresOptions) -> Vec<(String, &'static str)> {
    let settings = [
        // A plan made while the table is small must not read all of it when it has grown.
        ("plan_cache_mode", "force_generic_plan"),
        ("enable_seqscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
        ("jit", "off"),
        ("default_transaction_isolation", "read committed"),
        // What we have given up on is not to wait for a lock for ever.
        ("statement_timeout", "60000"),
    ];
    let settings = settings.map(|(name, value)| (format!("options[{name}]"), value));
    if options.pooled {
        return Vec::new();
    }
    settings.to_vec()
}

fn unreadable(why: &str) -> OpenError {
    OpenError::Url {
        why: why.to_owned(),
    }
}

fn wrong(name: &str, why: &str) -> OpenError {
    OpenError::Option {
        name: name.to_owned(),
        why: why.to_owned(),
    }
}
