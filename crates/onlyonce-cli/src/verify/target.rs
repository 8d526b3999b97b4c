//! Where to send requests: a URL, read once.

use http::{HeaderValue, Uri};
use url::{Host, Position, Url};

use super::plan::PlanError;

/// An endpoint's address.
#[derive(Clone)]
pub(crate) struct Target {
    url: Url,
    /// As the socket and the certificate name it.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// As the `Host` header names it.
    pub(crate) authority: HeaderValue,
}

impl Target {
    pub(crate) fn parse(text: &str) -> Result<Self, PlanError> {
        let url = Url::parse(text).map_err(|error| {
            PlanError::new(format!(
                "{error}: give a whole URL such as http://127.0.0.1:8080/orders"
            ))
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(PlanError::new(
                "the URL must start with http:// or https://",
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(PlanError::new(
                "credentials do not belong in the URL: use --header 'Authorization: …'",
            ));
        }
        let host = match url.host() {
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => return Err(PlanError::new("the URL names no host")),
        };
        let authority = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort])
            .map_err(|_| PlanError::new("the URL's host cannot be written in a header"))?;
        let port = url
            .port_or_known_default()
            .ok_or_else(|| PlanError::new("the URL names no port"))?;
        let target = Self {
            url,
            host,
            port,
            authority,
        };
        check_path(target.path())?;
        Ok(target)
    }

    pub(crate) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Path and query, as the request line has them.
    pub(crate) fn path(&self) -> &str {
        &self.url[Position::BeforePath..Position::AfterQuery]
    }

    /// Another path of the same server.
    pub(crate) fn join(&self, path: &str) -> Result<String, PlanError> {
        let joined = self
            .url
            .join(path)
            .map_err(|error| PlanError::new(format!("--slow-path: {error}")))?;
        if joined.origin() != self.url.origin() {
            return Err(PlanError::new("--slow-path must be on the same server"));
        }
        let path = &joined[Position::BeforePath..Position::AfterQuery];
        check_path(path)?;
        Ok(path.to_owned())
    }

    /// The URL for people. A query may hold a credential, so it is not shown.
    pub(crate) fn shown(&self) -> String {
        let shown = &self.url[..Position::AfterPath];
        match self.url.query() {
            Some(_) => format!("{shown}?…"),
            None => shown.to_owned(),
        }
    }
}

fn check_path(path: &str) -> Result<(), PlanError> {
    match Uri::try_from(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(PlanError::new(format!("the URL's path: {error}"))),
    }
}
