//! What a URL says: which servers, who we are to them, and how the store behaves.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use onlyonce_storekit::{OpenError, Options};

#[cfg(test)]
mod tests;

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const PREFIX_BYTES_MAX: usize = 200;
const CONNECTIONS_MAX: usize = 1024;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
}

/// Which servers there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Servers {
    One(Place),
    Sentinel {
        sentinels: Vec<Place>,
        master: String,
    },
    Cluster(Vec<Place>),
}

/// Who we are to a server.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

/// Neither is for anybody's eyes.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

/// Replicas that must have what was written before anybody hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) replicas: u32,
    pub(super) within: Duration,
}

/// How claims are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimBy {
    /// As the servers can.
    Version,
    /// By script, as on Redis 6.2.
    Script,
}

/// What to do about a server that may evict records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    Refuse,
    Warn,
    /// What is kept here is kept elsewhere too.
    Allow,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) servers: Servers,
    pub(super) login: Login,
    pub(super) sentinel_login: Login,
    pub(super) db: i64,
    pub(super) tls: bool,
    /// The file with the certificates to trust, if not the usual ones.
    pub(super) ca: Option<String>,
    pub(super) prefix: String,
    pub(super) connections: usize,
    pub(super) answer_within: Duration,
    pub(super) wait: Option<Wait>,
    pub(super) claim_by: ClaimBy,
    pub(super) eviction: Eviction,
}

impl Settings {
    pub(super) fn of(url: &str) -> Result<Self, OpenError> {
        let mut options = Options::of(url)?;
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| OpenError::url("there is no `://` in it"))?;
        let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Login::of(login)?, hosts),
            None => (Login::default(), authority),
        };
        let (servers, db) = servers(scheme, hosts, path)?;
        let tls = match scheme {
            "rediss" => true,
            "redis" => false,
            _ => choice(&mut options, "tls", &[("no", false), ("yes", true)])?,
        };
        let sentinel_login = match &servers {
            Servers::Sentinel { .. } => Login {
                user: options.take("sentinel_user"),
                password: options.take("sentinel_password"),
            },
            Servers::One(_) | Servers::Cluster(_) => Login::default(),
        };
        let settings = Self {
            servers,
            login,
            sentinel_login,
            db,
            tls,
            ca: if tls { options.take("ca") } else { None },
            prefix: prefix(&mut options)?,
            connections: connections(&mut options)?,
            answer_within: duration(&mut options, "timeout_ms", Duration::from_secs(5))?,
            wait: wait(&mut options)?,
            claim_by: choice(
                &mut options,
                "claim",
                &[("auto", ClaimBy::Version), ("script", ClaimBy::Script)],
            )?,
            eviction: choice(
                &mut options,
                "eviction",
                &[
                    ("refuse", Eviction::Refuse),
                    ("warn", Eviction::Warn),
                    ("allow", Eviction::Allow),
                ],
            )?,
        };
        options.finish()?;
        settings.check()
    }

    fn check(self) -> Result<Self, OpenError> {
        if let Some(wait) = self.wait
            && wait.within >= self.answer_within
        {
            let why = "must be less than `timeout_ms`, or its end is never seen";
            return Err(OpenError::option("wait_timeout_ms", why));
        }
        Ok(self)
    }
}

impl Login {
    /// From `user:password`, `:password` or `user`, percent-encoded.
    fn of(text: &str) -> Result<Self, OpenError> {
        let (user, password) = match text.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (text, None),
        };
        Ok(Self {
            user: Some(decoded(user)?).filter(|user| !user.is_empty()),
            password: password.map(decoded).transpose()?,
        })
    }
}

fn servers(scheme: &str, hosts: &str, path: &str) -> Result<(Servers, i64), OpenError> {
    let places = |port| -> Result<Vec<Place>, OpenError> {
        hosts.split(',').map(|host| place(host, port)).collect()
    };
    match scheme {
        "redis+cluster" => match db(path)? {
            0 => Ok((Servers::Cluster(places(PORT)?), 0)),
            _ => Err(OpenError::url("a cluster has no database but 0")),
        },
        "redis+sentinel" => {
            let (master, db_path) = path.split_once('/').unwrap_or((path, ""));
            if master.is_empty() {
                let why = "the master's name is missing, as in redis+sentinel://h1,h2,h3/mymaster";
                return Err(OpenError::url(why));
            }
            let sentinels = places(SENTINEL_PORT)?;
            let master = decoded(master)?;
            Ok((Servers::Sentinel { sentinels, master }, db(db_path)?))
        }
        _ if hosts.contains(',') => Err(OpenError::url(
            "several servers are redis+cluster:// or redis+sentinel://",
        )),
        _ => Ok((Servers::One(place(hosts, PORT)?), db(path)?)),
    }
}

fn place(text: &str, default_port: u16) -> Result<Place, OpenError> {
    let (host, port) = match text.strip_prefix('[').and_then(|it| it.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(OpenError::url("a host's name is missing"));
    }
    let port = match port {
        Some(port) => port
            .parse()
            .map_err(|_| OpenError::url("a port is not a number up to 65535"))?,
        None => default_port,
    };
    Ok(Place {
        host: host.to_owned(),
        port,
    })
}

fn db(path: &str) -> Result<i64, OpenError> {
    match path {
        "" => Ok(0),
        path => path
            .parse::<u16>()
            .map(i64::from)
            .map_err(|_| OpenError::url("the database after the host is not a number")),
    }
}

fn prefix(options: &mut Options) -> Result<String, OpenError> {
    let prefix = options
        .take("prefix")
        .unwrap_or_else(|| "onlyonce".to_owned());
    if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX {
        return Err(OpenError::option("prefix", "has between 1 and 200 bytes"));
    }
    Ok(prefix)
}

fn connections(options: &mut Options) -> Result<usize, OpenError> {
    let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    match options.parse::<usize>("connections", "a number of connections")? {
        Some(0) => Err(OpenError::option("connections", "is at least 1")),
        Some(connections) => Ok(connections.min(CONNECTIONS_MAX)),
        None => Ok(cores()),
    }
}

fn wait(options: &mut Options) -> Result<Option<Wait>, OpenError> {
    let replicas = options.parse("wait_replicas", "a number of replicas")?;
    let within = duration(options, "wait_timeout_ms", Duration::from_secs(1))?;
    Ok(replicas
        .filter(|replicas| *replicas > 0)
        .map(|replicas| Wait { replicas, within }))
}

fn duration(
    options: &mut Options,
    name: &'static str,
    default: Duration,
) -> Result<Duration, OpenError> {
    match options.parse(name, "a number of milliseconds")? {
        // WAIT takes zero for "for ever".
        Some(0) => Err(OpenError::option(name, "is at least 1")),
        Some(millis) => Ok(Duration::from_millis(millis)),
        None => Ok(default),
    }
}

/// One of a few words; the first is the default.
fn choice<T: Copy>(
    options: &mut Options,
    name: &'static str,
    words: &[(&str, T)],
) -> Result<T, OpenError> {
    let Some(found) = options.take(name) else {
        return Ok(words[0].1);
    };
    let known = words.iter().find(|(word, _)| *word == found);
    known.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        OpenError::option(name, &format!("is one of {}", words.join(", ")))
    })
}

/// Percent-decoded text. What is wrong is not repeated: it may be a password.
fn decoded(text: &str) -> Result<String, OpenError> {
    let wrong =
        || OpenError::url("a percent sign is not followed by two hexadecimal digits of UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or_else(wrong)?;
        let digits = str::from_utf8(digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}
