//! Which stores let a program complete a record in its own transaction, and what it says for that.

use std::fmt;

use onlyonce_storekit::OpenError;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use onlyonce_storekit::Options;

use super::around::Around;

/// What a program says to its database to complete a record in its own transaction, with the lease
/// that it was handed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionSql {
    /// The statement, with the marks for values that its database takes.
    pub statement: String,
    /// What an administrator grants to the program's user, where databases have users.
    pub grant: Option<String>,
    /// What to know of it.
    pub about: &'static str,
}

impl fmt::Display for CompletionSql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.about.lines() {
            writeln!(f, "-- {line}")?;
        }
        if let Some(grant) = &self.grant {
            writeln!(f, "{grant};")?;
        }
        write!(f, "{};", self.statement)
    }
}

/// Says how programs complete records of the store that `url` names in their own transactions; an
/// error where they cannot.
pub fn completion_sql(url: &str) -> Result<CompletionSql, OpenError> {
    let backend = super::backend(url);
    super::check_url(url)?;
    let (_, around) = Around::split(url, backend)?;
    if !matches!(backend, "postgres" | "mysql" | "sqlite") {
        let why = "only databases (postgres, mysql, sqlite) take part in a transaction of their \
                   users: keep the records in the database that the upstream writes to";
        return Err(OpenError::refused(backend, why));
    }
    if around.sealed.is_some() {
        let why = "a sealed store keeps only what was encrypted with its keys, which a database \
                   does not have: leave `sealed` out where upstreams complete records themselves";
        return Err(OpenError::refused(backend, why));
    }
    spelled(url, backend)
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn spelled(url: &str, backend: &'static str) -> Result<CompletionSql, OpenError> {
    let (_, mut options) = Options::split_off(url, &["table"])?;
    let name = onlyonce_sql::completion_name(options.take("table").as_deref())?;
    Ok(match backend {
        "postgres" => CompletionSql {
            statement: format!("SELECT {name}($1, $2, $3::jsonb, $4)"),
            grant: Some(format!(
                "GRANT EXECUTE ON FUNCTION {name}(text, integer, jsonb, bytea) TO app"
            )),
            about: "PostgreSQL: the lease, status, headers (as JSON) and body (as bytea).\n\
                    SQLSTATE ONCE1: the lease is lost; ONCE2: not a lease; ONCE3: not an answer.\n\
                    Whatever it says, the transaction has failed and can only be rolled back.",
        },
        "mysql" => CompletionSql {
            statement: format!("CALL {name}(?, ?, ?, ?)"),
            grant: Some(format!("GRANT EXECUTE ON PROCEDURE {name} TO 'app'@'%'")),
            about: "MariaDB: the lease, status, headers (as JSON) and body (as bytes).\n\
                    SQLSTATE ONCE1: the lease is lost; ONCE2: not a lease; ONCE3: not an answer.\n\
                    Where it fails with one of these it has rolled the transaction back.",
        },
        _ => CompletionSql {
            statement: format!(
                "INSERT INTO {name} (lease, status, headers, body) VALUES (?, ?, ?, ?)"
            ),
            grant: None,
            about: "SQLite: the lease as 48 bytes (read from its 96 hexadecimal digits, or unhex(?)\n\
                    since SQLite 3.41), status, headers (as JSON) and body (as bytes).\n\
                    Where it fails with a message that begins with `onlyonce:` it has rolled the\n\
                    transaction back.",
        },
    })
}

#[cfg(not(any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
fn spelled(_: &str, backend: &'static str) -> Result<CompletionSql, OpenError> {
    Err(OpenError::refused(backend, "it is not part of this build"))
}
