//! Whose record it is, as data: the parts of a request that address a record besides its key.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;

/// A part of a record's address. How it is read from a request is the layer's.
///
/// ```
/// use onlyonce_core::policy::ScopePart;
///
/// let part: ScopePart = "trusted-header:x-tenant".parse().unwrap();
/// assert_eq!(part.to_string(), "trusted-header:x-tenant");
/// assert!("tenant".parse::<ScopePart>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopePart {
    /// `route`: the path as the client sent it.
    Route,
    /// `caller`: who asks; the verified identity, else what the credential says.
    Caller,
    /// `path:NAME`: a parameter of the configured route pattern.
    Path(String),
    /// `path-after:SEGMENT`: the segment of the path that follows this one.
    PathAfter(String),
    /// `header:NAME` or `trusted-header:NAME`: a header's value. Unless `trusted`, anyone can send
    /// it, so it only adds to the caller.
    Header {
        /// Its name.
        name: HeaderName,
        /// Whether something in front of us sets it and removes what clients send.
        trusted: bool,
    },
    /// `user-header:NAME`: a trusted header with the caller's name, which is no secret: it is shown as
    /// the actor in records, log and audit.
    UserHeader(HeaderName),
    /// `cookie:NAME`: a session cookie. The caller is the owner of the session.
    Cookie(String),
    /// `body:MEMBER`: a member of the JSON body.
    Body(String),
    /// `jwt:CLAIM`: the caller by a claim of a verified token.
    Jwt(String),
}

/// How each part is written.
const FORMS: [&str; 10] = [
    "route",
    "caller",
    "path:NAME",
    "path-after:SEGMENT",
    "header:NAME",
    "trusted-header:NAME",
    "user-header:NAME",
    "cookie:NAME",
    "body:MEMBER",
    "jwt:CLAIM",
];

impl FromStr for ScopePart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        let header_name = || {
            HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| format!("`{name}` is not a header name"))
        };
        let header = |trusted| {
            let name = header_name()?;
            Ok(Self::Header { name, trusted })
        };
        match (kind, name.is_empty()) {
            ("route", true) => Ok(Self::Route),
            ("caller", true) => Ok(Self::Caller),
            ("path", false) => Ok(Self::Path(name.to_owned())),
            ("path-after", false) if !name.contains('/') => Ok(Self::PathAfter(name.to_owned())),
            ("header", false) => header(false),
            ("trusted-header", false) => header(true),
            ("user-header", false) => header_name().map(Self::UserHeader),
            ("cookie", false) => Ok(Self::Cookie(name.to_owned())),
            ("body", false) => Ok(Self::Body(name.to_owned())),
            ("jwt", false) => Ok(Self::Jwt(name.to_owned())),
            _ => Err(format!(
                "`{text}` is not a part of a scope; there are {}",
                FORMS.join(", ")
            )),
        }
    }
}

impl fmt::Display for ScopePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route => f.write_str("route"),
            Self::Caller => f.write_str("caller"),
            Self::Path(name) => write!(f, "path:{name}"),
            Self::PathAfter(segment) => write!(f, "path-after:{segment}"),
            Self::Header {
                name,
                trusted: false,
            } => write!(f, "header:{name}"),
            Self::Header {
                name,
                trusted: true,
            } => write!(f, "trusted-header:{name}"),
            Self::UserHeader(name) => write!(f, "user-header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Body(member) => write!(f, "body:{member}"),
            Self::Jwt(claim) => write!(f, "jwt:{claim}"),
        }
    }
}
