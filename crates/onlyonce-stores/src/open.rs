//! From a URL to a store. What is wrong with a URL is said with what would be right; credentials
//! in it are never repeated.

use std::fmt;
use std::sync::Arc;

use onlyonce_core::event::ServerAddress;
use onlyonce_core::{MemoryStore, Store};
use onlyonce_storekit::{OpenError, Options, SCHEMES, nearest};

use self::around::Around;
pub use self::transactional::{CompletionSql, completion_sql};

mod around;
#[cfg(feature = "file")]
mod file;
#[cfg(test)]
mod tests;
mod transactional;

/// The stores that are features, and whether this build has them.
const BUILT: [(&str, bool); 5] = [
    ("file", cfg!(feature = "file")),
    ("sqlite", cfg!(feature = "sqlite")),
    ("redis", cfg!(feature = "redis")),
    ("postgres", cfg!(feature = "postgres")),
    ("mysql", cfg!(feature = "mysql")),
];

/// Opens the store that `url` names, ready for use: created or migrated if it has to be.
///
/// Options follow a question mark, as in `redis://127.0.0.1?prefix=shop&wait_replicas=1`; an
/// unknown one is an error. Each store's own page lists its options. Those that say what goes around
/// a store are for every one of them: `sealed=KEYFILE` (and `plain=true` while it has records from
/// before), `compressed=true`, `cache=64MiB`, and for databases on a server `tier=redis://…`.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    let backend = backend(url);
    let (place, around) = Around::split(url, backend)?;
    let store = bare(&place).await?;
    around.wrap(store, backend).await
}

/// The store itself, with nothing around it.
async fn bare(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    let (scheme, _) = url
        .split_once(':')
        .ok_or_else(|| OpenError::url("it has no scheme"))?;
    let opened = match scheme {
        "memory" => Ok(Arc::new(memory(url)?) as _),
        "file" => folder(url).await,
        "sqlite" => sqlite(url).await,
        "redis" | "rediss" | "redis+cluster" | "redis+sentinel" => redis(url).await,
        "redis+quorum" | "redlock" => quorum(url).await,
        "postgres" | "postgresql" => postgres(url).await,
        "mysql" | "mariadb" => mysql(url).await,
        found => Err(unknown_scheme(found)),
    };
    opened.map_err(|error| located(error, url))
}

/// Checks that a store has URLs like this one and is part of this build, without opening it.
///
/// What goes around it is checked too, and the options of a PostgreSQL store. Those of the others, and
/// whether it can be reached, are seen only by [`open`].
pub fn check_url(url: &str) -> Result<(), OpenError> {
    let (scheme, _) = url
        .split_once(':')
        .ok_or_else(|| OpenError::url("it has no scheme"))?;
    let (place, _) = Around::split(url, backend(url))?;
    let feature = match scheme {
        "memory" => return memory(&place).map(drop),
        "file" => "file",
        "sqlite" => "sqlite",
        "redis" | "rediss" | "redis+cluster" | "redis+sentinel" | "redis+quorum" | "redlock" => {
            "redis"
        }
        "postgres" | "postgresql" => "postgres",
        "mysql" | "mariadb" => "mysql",
        found => return Err(unknown_scheme(found)),
    };
    if !BUILT.contains(&(feature, true)) {
        return Err(OpenError::NotBuilt {
            scheme: scheme.to_owned(),
            feature,
        });
    }
    match feature {
        "postgres" => check_postgres(&place),
        _ => Ok(()),
    }
}

#[cfg(feature = "postgres")]
fn check_postgres(url: &str) -> Result<(), OpenError> {
    onlyonce_sql::PostgresStore::check_url(url)
}

#[cfg(not(feature = "postgres"))]
fn check_postgres(_: &str) -> Result<(), OpenError> {
    Ok(())
}

/// A store that cannot be reached, with where it was looked for.
#[derive(Debug)]
struct At {
    address: String,
    cause: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.cause)
    }
}

impl std::error::Error for At {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.source()
    }
}

/// The same error with the server's address.
fn located(error: OpenError, url: &str) -> OpenError {
    let OpenError::Store(mut error) = error else {
        return error;
    };
    if let Some(address) = address(url) {
        let cause = error.source.take();
        let cause = cause.unwrap_or_else(|| "it does not answer".into());
        error.source = Some(Box::new(At { address, cause }));
    }
    OpenError::Store(error)
}

/// The host and port of a server's URL. A password may have any character, also those that should
/// have been escaped: nothing before the last `@` is shown. A tier has an address of its own.
fn address(url: &str) -> Option<String> {
    let url = match Options::split_off(url, &["tier"]) {
        Ok((url, _)) => url,
        Err(_) => return None,
    };
    let (_, rest) = url.split_once("://")?;
    let host = rest.rsplit('@').next()?;
    let host = host.split(['/', '?', '#']).next()?;
    (!host.is_empty()).then(|| host.to_owned())
}

/// Where the server is that `url` names: the first one, where it names several. Nothing for a store
/// without a server, and for one that is reached by a socket's path.
pub fn server(url: &str) -> Option<ServerAddress> {
    let usual = match backend(url) {
        "redis" if url.starts_with("redis+sentinel:") => 26379,
        "redis" => 6379,
        "postgres" => 5432,
        "mysql" => 3306,
        _ => return None,
    };
    let first = address(url)?;
    let first = first.split(',').next()?;
    let (host, port) = match first.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        Some(_) | None => (first, usual),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| ServerAddress {
        host: host.to_owned(),
        port,
    })
}

fn unknown_scheme(found: &str) -> OpenError {
    OpenError::Scheme {
        found: found.to_owned(),
        hint: nearest(found, &SCHEMES)
            .map(|near| format!(" (did you mean {near}:?)"))
            .unwrap_or_default(),
    }
}

/// The URL of a store as it can be shown: without credentials and options.
pub fn shown(url: &str) -> String {
    match (url.split_once("://"), address(url)) {
        (Some((scheme, _)), Some(address)) => format!("{scheme}://{address}"),
        // What stands before a path may still be a password.
        (Some((scheme, _)), None) => format!("{scheme}://"),
        (None, _) => url.split('?').next().unwrap_or_default().to_owned(),
    }
}

/// The kind of store that `url` names, as logs and metrics call it.
pub fn backend(url: &str) -> &'static str {
    match url.split(':').next().unwrap_or_default() {
        "memory" => "memory",
        "file" => "file",
        "sqlite" => "sqlite",
        "postgres" | "postgresql" => "postgres",
        "mysql" | "mariadb" => "mysql",
        scheme if scheme.starts_with("redis") || scheme == "redlock" => "redis",
        _ => "store",
    }
}

fn memory(url: &str) -> Result<MemoryStore, OpenError> {
    let mut options = Options::of(url)?;
    let mut store = MemoryStore::new();
    if let Some(records_max) = options.parse("records_max", "a number of records")? {
        store = store.records_max(records_max);
    }
    if let Some(bytes_max) = options.parse("bytes_max", "a number of bytes")? {
        store = store.bytes_max(bytes_max);
    }
    options.finish()?;
    Ok(store)
}

macro_rules! backend {
    ($name:ident, $feature:literal, $url:ident => $open:expr) => {
        #[cfg(feature = $feature)]
        async fn $name($url: &str) -> Result<Arc<dyn Store>, OpenError> {
            $open
        }

        #[cfg(not(feature = $feature))]
        async fn $name($url: &str) -> Result<Arc<dyn Store>, OpenError> {
            let scheme = $url.split(':').next().unwrap_or_default().to_owned();
            let feature = $feature;
            Err(OpenError::NotBuilt { scheme, feature })
        }
    };
}

backend!(folder, "file", url => file::open(url).await);
backend!(sqlite, "sqlite", url => Ok(Arc::new(onlyonce_sql::SqliteStore::open(url).await?)));
backend!(redis, "redis", url => Ok(Arc::new(onlyonce_redis::RedisStore::open(url).await?)));
backend!(quorum, "redis", url => {
    Ok(Arc::clone(onlyonce_redis::RedisQuorum::open(url).await?.store()) as _)
});
backend!(postgres, "postgres", url => Ok(Arc::new(onlyonce_sql::PostgresStore::open(url).await?)));
backend!(mysql, "mysql", url => Ok(Arc::new(onlyonce_sql::MySqlStore::open(url).await?)));
