//! The servers in a URL: one, or several of which one takes writes.

use onlyonce_storekit::{OpenError, Options};
use url::Url;

/// More standbys than anybody has; each is asked every two seconds.
const HOSTS_MAX: usize = 16;
const WRITABLE: &str = "target_session_attrs";
/// Where the query says what stands before it, too.
const ELSEWHERE: [&str; 3] = ["host", "hostaddr", "port"];

/// What a URL leads to.
pub(super) struct Addresses {
    /// One URL for each server, in the order given.
    pub(super) each: Vec<Url>,
    /// Whether they are asked if they take writes.
    pub(super) writable: bool,
}

/// Takes the URL apart. A server is told by its number: what looks like one may be part of a password.
pub(super) fn addresses(url: &str, given: &mut Options) -> Result<Addresses, OpenError> {
    let attrs = given.take(WRITABLE);
    if attrs.as_deref().is_some_and(|attrs| attrs != "read-write") {
        return Err(OpenError::option(
            WRITABLE,
            "must be read-write: a store writes",
        ));
    }
    let (before, hosts, after) = split(url);
    let hosts: Vec<_> = hosts.split(',').collect();
    let several = hosts.len() > 1;
    if hosts.len() > HOSTS_MAX {
        return Err(OpenError::url(&format!(
            "it names more than {HOSTS_MAX} servers"
        )));
    }
    let mut each = Vec::new();
    for (number, host) in (1..).zip(hosts) {
        if several && host.is_empty() {
            return Err(OpenError::url(&format!(
                "server {number} of it has no name"
            )));
        }
        let parsed = Url::parse(&format!("{before}{host}{after}"));
        let url = parsed.map_err(|error| {
            let told = error.to_string();
            OpenError::url(&if several {
                format!("server {number}: {told}")
            } else {
                told
            })
        })?;
        if each.contains(&url) {
            return Err(OpenError::url(&format!(
                "server {number} of it is there already"
            )));
        }
        each.push(url);
    }
    for name in ELSEWHERE {
        let Some(value) = given.peek(name) else {
            continue;
        };
        if several || value.contains(',') {
            let why = "cannot be given with several servers: they all stand before the path, as in \
                       postgres://app@a:5432,b:5432/shop";
            return Err(OpenError::option(name, why));
        }
    }
    let writable = several || attrs.is_some();
    Ok(Addresses { each, writable })
}

/// The URL before, in and after the list of its servers.
fn split(url: &str) -> (&str, &str, &str) {
    let start = url.find("://").map_or(url.len(), |at| at + 3);
    let end = url[start..].find(['/', '?', '#']);
    let end = end.map_or(url.len(), |length| start + length);
    let hosts = url[start..end]
        .rfind('@')
        .map_or(start, |at| start + at + 1);
    (&url[..hosts], &url[hosts..end], &url[end..])
}
