//! As whom a server runs: as ourselves, but never as root.
//!
//! PostgreSQL and MariaDB refuse to run as root, and no test server should be able to do harm.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use super::ServerError;

const ACCOUNTS_FILE: &str = "/etc/passwd";
/// Every Linux has it; used where a package came without a user of its own.
const NOBODY: &str = "nobody";

/// Whom to become; `None` stands for ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account(Option<Ids>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ids {
    user: u32,
    group: u32,
}

impl Account {
    /// `wished` if we are root, where it has to exist, otherwise ourselves. Without a wish it is
    /// `usual`, or nobody.
    pub(super) fn choose(wished: Option<&str>, usual: &str) -> Result<Self, ServerError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self(None));
        }
        let cannot = || ServerError::io(format!("read {ACCOUNTS_FILE}"));
        let accounts = fs::read_to_string(ACCOUNTS_FILE).map_err(cannot())?;
        let ids = match wished {
            Some(name) => find(&accounts, name),
            None => find(&accounts, usual).or_else(|| find(&accounts, NOBODY)),
        };
        match ids {
            Some(ids) if ids.user != 0 => Ok(Self(Some(ids))),
            Some(_) | None => Err(ServerError::User {
                name: wished.unwrap_or(usual).to_owned(),
            }),
        }
    }

    /// The words to put in front of a command line.
    pub(super) fn prefix(self) -> Vec<String> {
        let Some(Ids { user, group }) = self.0 else {
            return Vec::new();
        };
        vec![
            "setpriv".to_owned(),
            format!("--reuid={user}"),
            format!("--regid={group}"),
            "--clear-groups".to_owned(),
            "--".to_owned(),
        ]
    }

    pub(super) fn give(self, path: &Path) -> Result<(), ServerError> {
        let Some(Ids { user, group }) = self.0 else {
            return Ok(());
        };
        let cannot = ServerError::io(format!("give {} to its server", path.display()));
        chown(path, Some(user), Some(group)).map_err(cannot)
    }
}

fn find(accounts: &str, name: &str) -> Option<Ids> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        // The password's place stands between.
        let user = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        Some(Ids { user, group })
    })
}
