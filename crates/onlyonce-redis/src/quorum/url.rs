//! What a quorum's URL says: which servers, and for each of them the settings of a single one.

use onlyonce_storekit::OpenError;

use crate::url::{Servers, Settings};

/// The fewest servers of which one can be lost.
const SERVERS_MIN: usize = 3;
const SERVERS_MAX: usize = 9;
/// What makes sense for one server or a master with replicas only.
const FOREIGN: [&str; 3] = ["wait_replicas", "wait_timeout_ms", "claim"];

/// What to do about a server that may lose what it has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistence {
    /// It must have `appendonly yes` and `appendfsync always`.
    Required,
    /// The operator vouches for it.
    Trusted,
}

pub(super) struct QuorumUrl {
    /// One for each server, in the order of their places.
    pub(super) servers: Vec<(String, Settings)>,
    pub(super) persistence: Persistence,
}

impl QuorumUrl {
    pub(super) fn of(url: &str) -> Result<Self, OpenError> {
        let (_, rest) = url
            .split_once("://")
            .ok_or_else(|| OpenError::url("there is no `://` in it"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        let (query, persistence, scheme) = options(query)?;
        let mut servers = Vec::new();
        for host in hosts.split(',') {
            let settings = Settings::of(&format!("{scheme}://{login}{host}/{path}?{query}"))?;
            servers.push((seat(&settings)?, settings));
        }
        servers.sort_by(|(one, _), (two, _)| one.cmp(two));
        let url = Self {
            servers,
            persistence,
        };
        url.check()
    }

    fn check(self) -> Result<Self, OpenError> {
        let servers = &self.servers;
        if !(SERVERS_MIN..=SERVERS_MAX).contains(&servers.len()) {
            let why = "a quorum has from 3 to 9 servers, as in redis+quorum://h1,h2,h3";
            return Err(OpenError::url(why));
        }
        if servers.windows(2).any(|two| two[0].0 == two[1].0) {
            return Err(OpenError::url("it names a server twice"));
        }
        Ok(self)
    }

    /// The set of servers, as every server keeps it.
    pub(super) fn members(&self) -> String {
        let seats: Vec<&str> = self.servers.iter().map(|(seat, _)| seat.as_str()).collect();
        seats.join(",")
    }
}

/// The options that a single server has too, and the others.
fn options(query: &str) -> Result<(String, Persistence, &'static str), OpenError> {
    let (mut rest, mut persistence, mut scheme) = (Vec::new(), Persistence::Required, "redis");
    for option in query.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=').unwrap_or((option, "")) {
            ("persistence", "require") => persistence = Persistence::Required,
            ("persistence", "trust") => persistence = Persistence::Trusted,
            ("persistence", _) => {
                return Err(OpenError::option("persistence", "is one of require, trust"));
            }
            ("tls", "yes") => scheme = "rediss",
            ("tls", "no") => scheme = "redis",
            ("tls", _) => return Err(OpenError::option("tls", "is one of no, yes")),
            (name, _) if FOREIGN.contains(&name) => {
                return Err(OpenError::option(name, "is not for a quorum"));
            }
            _ => rest.push(option),
        }
    }
    Ok((rest.join("&"), persistence, scheme))
}

/// What a server is called in the set.
fn seat(settings: &Settings) -> Result<String, OpenError> {
    match &settings.servers {
        Servers::One(place) => Ok(format!("{}:{}", place.host, place.port)),
        Servers::Sentinel { .. } | Servers::Cluster(_) => {
            Err(OpenError::url("a quorum is of single servers"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_servers_does_not_matter() {
        let one = QuorumUrl::of("redis+quorum://c:3,a:1,b").expect("a right URL");
        let two = QuorumUrl::of("redlock://b:6379,a:1,c:3?prefix=x").expect("a right URL");
        assert_eq!(one.members(), "a:1,b:6379,c:3");
        assert_eq!(one.members(), two.members());
    }

    #[test]
    fn what_is_no_quorum_is_refused() {
        for wrong in [
            "redis+quorum://a,b",
            "redis+quorum://a,b,a",
            "redis+quorum://a,b,c?wait_replicas=1",
            "redis+quorum://a,b,c?persistence=maybe",
            "redis+quorum://a,b,c?unheard=of",
            "redis+quorum://a,,c",
        ] {
            assert!(QuorumUrl::of(wrong).is_err(), "{wrong}");
        }
    }
}
