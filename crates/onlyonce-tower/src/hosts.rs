//! Keeps web pages out of a service that trusts every client that can reach it, as one on loopback does. A
//! browser on the same machine can reach it too, for any page that it shows: a page can send a
//! request across sites, and one whose name is made to point at this machine (DNS rebinding) can
//! even read the answer. The first is told by `Origin` and `Sec-Fetch-Site`, the second by `Host`.
//!
//! ```
//! use http::Request;
//! use onlyonce_tower::{Foreign, KnownHosts};
//!
//! let hosts = KnownHosts::of("127.0.0.1:9090".parse().unwrap());
//! let from = |host| Request::post("/sweep").header("host", host).body(()).unwrap();
//! assert!(hosts.admit(&from("localhost:9090")).is_ok());
//! assert!(matches!(hosts.admit(&from("rebound.example:9090")), Err(Foreign::Host { .. })));
//! ```

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Request, Uri};
use thiserror::Error;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const LOCALHOST: &str = "localhost";

/// The names and addresses that a service is asked for by.
#[derive(Clone, Debug)]
pub struct KnownHosts {
    /// Where it listens. One that listens on every address is asked for by any of them: no name
    /// is in such a host, and so none that somebody else could point here.
    bound: IpAddr,
    /// In lower case, without a dot at the end.
    names: Vec<String>,
}

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Foreign {
    /// It asks for a host that is not this service, or for none.
    #[error("this service is not known as {host}: a web page may have been pointed at it")]
    Host {
        /// The host it asks for, in backticks, or words for its absence.
        host: String,
    },
    /// It would change something and comes from a web page of another origin.
    #[error(
        "a web page of another origin must not change anything here ({header} says that it is one)"
    )]
    CrossSite {
        /// What gave it away.
        header: &'static str,
    },
}

impl KnownHosts {
    /// The hosts of a service that listens on `bound`: `localhost`, every loopback address and its
    /// own address; any address at all if it listens on all of them.
    pub fn of(bound: SocketAddr) -> Self {
        Self {
            bound: bound.ip().to_canonical(),
            names: vec![LOCALHOST.to_owned()],
        }
    }

    /// These names or addresses as well, without ports.
    #[must_use]
    pub fn and<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        let names = names.into_iter().map(|name| plain(name.as_ref()));
        self.names.extend(names);
        self
    }

    /// Lets a request through that asks for one of these hosts and, if it may change something,
    /// does not come from a web page of another origin.
    pub fn admit<B>(&self, request: &Request<B>) -> Result<(), Foreign> {
        self.knows(request)?;
        same_origin(request)
    }

    /// Whether a request asks for one of these hosts.
    fn knows<B>(&self, request: &Request<B>) -> Result<(), Foreign> {
        let asked = asked(request.uri(), request.headers());
        if asked.is_empty() {
            return Err(Foreign::Host {
                host: "nothing (the request has no Host)".to_owned(),
            });
        }
        for host in asked {
            let is_known = host.parse().is_ok_and(|host: Authority| self.has(&host));
            if !is_known {
                let host = format!("`{host}`");
                return Err(Foreign::Host { host });
            }
        }
        Ok(())
    }

    fn has(&self, host: &Authority) -> bool {
        if host.as_str().contains('@') {
            return false;
        }
        let name = plain(host.host());
        if self.names.contains(&name) {
            return true;
        }
        let Ok(address) = name.parse::<IpAddr>() else {
            return false;
        };
        let address = address.to_canonical();
        address.is_loopback() || address == self.bound || self.bound.is_unspecified()
    }
}

/// Refuses a request that may change something and comes from a web page of another origin. What is
/// not a browser sends neither header, and passes.
pub fn same_origin<B>(request: &Request<B>) -> Result<(), Foreign> {
    let headers = request.headers();
    if request.method().is_safe() {
        return Ok(());
    }
    let is_own = |site: &[u8]| matches!(site, b"same-origin" | b"none");
    let mut sites = headers.get_all(&SEC_FETCH_SITE).iter();
    if !sites.all(|site| is_own(site.as_bytes())) {
        return Err(Foreign::CrossSite {
            header: "Sec-Fetch-Site",
        });
    }
    let hosts = asked(request.uri(), headers);
    let is_here = |origin: &str| {
        let origin = origin.parse::<Uri>().ok();
        origin.is_some_and(|origin| hosts.iter().all(|host| is_origin_of(&origin, host)))
    };
    let mut origins = headers.get_all(ORIGIN).iter();
    if !origins.all(|origin| origin.to_str().is_ok_and(is_here)) {
        return Err(Foreign::CrossSite { header: "Origin" });
    }
    Ok(())
}

/// The hosts that a request asks for: HTTP/2 has it in the target, HTTP/1 in a header, or in both.
fn asked(uri: &Uri, headers: &HeaderMap) -> Vec<String> {
    let in_target = uri.authority().map(|it| it.as_str().to_owned());
    let in_headers = headers.get_all(HOST).iter();
    let in_headers =
        in_headers.map(|host| String::from_utf8_lossy(host.as_bytes()).trim().to_owned());
    in_target.into_iter().chain(in_headers).collect()
}

/// Whether `host` is what a page of `origin` asks for when it asks its own server.
fn is_origin_of(origin: &Uri, host: &str) -> bool {
    let usual = match origin.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        Some(_) | None => return false,
    };
    let (Some(page), Ok(host)) = (origin.authority(), host.parse::<Authority>()) else {
        return false;
    };
    plain(page.host()) == plain(host.host())
        && page.port_u16().unwrap_or(usual) == host.port_u16().unwrap_or(usual)
}

/// A host as it is compared: in lower case, without the brackets of an address and without the dot
/// that may end a name.
fn plain(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
