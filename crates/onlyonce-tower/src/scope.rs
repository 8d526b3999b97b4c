//! Whose record it is: the parts of a request that keep callers apart. The caller is a stable
//! principal where there is one, so that a refreshed token of the same user reaches the same
//! record; what is untrusted never addresses a record on its own.

use std::net::IpAddr;
use std::sync::Arc;

use http::request;
use onlyonce_core::policy::ActorType;
pub use onlyonce_core::policy::ScopePart;
use onlyonce_core::record::actor_name;
use onlyonce_core::{Engine, Refusal, Scope};

use crate::params::PathParams;

mod asker;
mod caller;
#[cfg(feature = "jwt")]
mod jwt;
mod read;

pub(crate) use self::asker::Asker;

#[cfg(feature = "jwt")]
pub use self::jwt::{JwtError, JwtVerifier};

/// The verified identity of a caller, put into the request's extensions by the code that verified it.
///
/// ```
/// use onlyonce_tower::Principal;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Principal::new("user-7"));
/// assert_eq!(request.extensions().get::<Principal>().unwrap().name(), "user-7");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal(Arc<str>);

impl Principal {
    /// The principal called `name`; stable across sessions and tokens.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// What it is called, for handlers that want to know who asks.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// Where a request came from, put into its extensions by the server that accepted the connection. It counts
/// for an [`Allowance`](crate::Allowance) where nothing proves who the caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// Which parts address a record, in order.
#[derive(Clone, Debug)]
pub(crate) struct ScopeRule {
    parts: Vec<NamedPart>,
    /// What says the type of an actor.
    actor_type: Option<ActorType>,
    /// What verifies tokens, for the part `jwt:CLAIM`.
    #[cfg(feature = "jwt")]
    verifier: Option<JwtVerifier>,
}

/// A part, and what it is called in an address. Its kind belongs to the name: routes of one store may have
/// different rules, and the cookie that a client made up is not the header of the same name that a proxy has set.
#[derive(Clone, Debug)]
struct NamedPart {
    part: ScopePart,
    name: Arc<str>,
}

impl NamedPart {
    fn new(part: ScopePart) -> Self {
        let name = match &part {
            // What tells its name besides addresses the same records.
            ScopePart::UserHeader(name) => ScopePart::Header {
                name: name.clone(),
                trusted: true,
            }
            .to_string(),
            ScopePart::Route
            | ScopePart::Caller
            | ScopePart::Path(_)
            | ScopePart::PathAfter(_)
            | ScopePart::Header { .. }
            | ScopePart::Cookie(_)
            | ScopePart::Body(_)
            | ScopePart::Jwt(_) => part.to_string(),
        };
        Self {
            part,
            name: name.into(),
        }
    }
}

/// A request's scope, and what was learnt of its caller on the way.
pub(crate) struct Scoped<'a> {
    pub(crate) scope: Scope,
    pub(crate) actor: Option<Arc<str>>,
    /// What the verified token says of the actor's type.
    kind: Option<String>,
    /// A digest of the credential, where the identity in the address is only claimed.
    pub(crate) credential: Option<[u8; 32]>,
    /// Who the caller is, where something vouches for it.
    proven: Option<Vec<u8>>,
    /// What no other caller can present, and is in the address: an opaque credential, a session.
    secret: Option<&'a [u8]>,
    /// The first part of the path among its parts.
    pub(crate) intake: Option<Arc<str>>,
}

/// What a scope is read from.
pub(crate) struct Subject<'a> {
    pub(crate) parts: &'a request::Parts,
    pub(crate) path: &'a str,
    pub(crate) params: &'a PathParams,
    pub(crate) body: &'a [u8],
}

impl ScopeRule {
    /// A rule from parts; the caller is added where nothing else keeps callers apart.
    pub(crate) fn new(mut parts: Vec<ScopePart>) -> Self {
        if !parts.iter().any(tells_callers_apart) {
            parts.push(ScopePart::Caller);
        }
        Self {
            parts: parts.into_iter().map(NamedPart::new).collect(),
            actor_type: None,
            #[cfg(feature = "jwt")]
            verifier: None,
        }
    }

    /// The same with other parts.
    pub(crate) fn of(&self, parts: Vec<ScopePart>) -> Self {
        Self {
            parts: Self::new(parts).parts,
            ..self.clone()
        }
    }

    /// The same with the types of actors from here.
    pub(crate) fn actors(self, actor_type: Option<ActorType>) -> Self {
        Self { actor_type, ..self }
    }

    /// The same with tokens verified by `verifier`.
    #[cfg(feature = "jwt")]
    pub(crate) fn verified_by(&self, verifier: JwtVerifier) -> Self {
        Self {
            verifier: Some(verifier),
            ..self.clone()
        }
    }

    /// What an operator should know about this rule before it meets callers.
    pub(crate) fn warnings(&self) -> Vec<&'static str> {
        let by_authorization = self
            .parts
            .iter()
            .any(|it| matches!(it.part, ScopePart::Caller));
        if by_authorization {
            vec![
                "callers are told apart by their Authorization header, which is not verified here: anonymous callers share one scope, and a refreshed opaque token counts as another caller; insert a `Principal`, verify a JWT, or configure a scope",
            ]
        } else {
            Vec::new()
        }
    }

    /// Whether a member of the body tells records apart.
    pub(crate) fn reads_body(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|it| matches!(it.part, ScopePart::Body(_)))
    }

    pub(crate) fn read<'a>(
        &self,
        subject: &Subject<'a>,
        engine: &Engine,
    ) -> Result<Scoped<'a>, Refusal> {
        let mut scoped = Scoped::new(engine);
        scoped.part("host", read::host(subject.parts)?);
        for part in &self.parts {
            self.read_part(part, subject, engine, &mut scoped)?;
        }
        self.name_actor(subject.parts, &mut scoped);
        Ok(scoped)
    }

    /// Puts the actor's type before its name, where something else than the name says it.
    fn name_actor(&self, parts: &request::Parts, scoped: &mut Scoped<'_>) {
        let (Some(rule), Some(name)) = (&self.actor_type, &scoped.actor) else {
            return;
        };
        let kind = match rule {
            ActorType::Always(kind) => *kind,
            ActorType::Header(header) => {
                let mut lines = parts.headers.get_all(header).iter();
                let line = lines.next().filter(|_| lines.next().is_none());
                line.and_then(|line| line.to_str().ok()).unwrap_or_default()
            }
            ActorType::Claim(_) => scoped.kind.as_deref().unwrap_or_default(),
        };
        scoped.actor = Some(actor_name(kind, name).into());
    }

    /// Who asks, of a request that has no scope, because it was refused before.
    pub(crate) fn asker(&self, parts: &request::Parts, engine: &Engine) -> Asker {
        let mut read = Scoped::new(engine);
        let params = PathParams::default();
        let subject = Subject {
            parts,
            path: "",
            params: &params,
            body: b"",
        };
        let telling = self.parts.iter().filter(|it| tells_callers_apart(&it.part));
        for part in telling {
            // What cannot be read proves nothing.
            drop(self.read_part(part, &subject, engine, &mut read));
        }
        read.asker(parts)
    }
}

impl<'a> Scoped<'a> {
    fn new(engine: &Engine) -> Self {
        Self {
            scope: engine.scope(),
            actor: None,
            kind: None,
            credential: None,
            proven: None,
            secret: None,
            intake: None,
        }
    }

    pub(crate) fn asker(&mut self, parts: &request::Parts) -> Asker {
        Asker {
            proven: self.proven.take(),
            secret: self.secret.map(<[u8]>::to_vec),
            credential: self.credential,
            address: parts.extensions.get().map(|ClientAddress(ip)| *ip),
        }
    }

    fn prove(&mut self, parts: &[&[u8]]) {
        self.proven = Some(parts.join(&0));
    }

    /// Adds a part that names what the operation is about, such as an intake.
    fn named(&mut self, name: &str, value: Option<&str>) {
        self.part(name, value);
        if self.intake.is_none() {
            self.intake = value.map(Into::into);
        }
    }

    /// Adds a part that may be absent: absent and empty are not the same.
    fn part(&mut self, name: &str, value: Option<impl AsRef<[u8]>>) {
        self.scope.add(name, value);
    }
}

impl ScopeRule {
    fn read_part<'a>(
        &self,
        NamedPart { part, name: called }: &NamedPart,
        subject: &Subject<'a>,
        engine: &Engine,
        scoped: &mut Scoped<'a>,
    ) -> Result<(), Refusal> {
        match part {
            ScopePart::Route => scoped.part(called, Some(subject.path)),
            ScopePart::Caller => caller::read(subject.parts, engine, scoped)?,
            ScopePart::Path(name) => {
                scoped.named(called, subject.params.get(name));
            }
            ScopePart::PathAfter(segment) => {
                scoped.named(called, read::segment_after(subject.path, segment));
            }
            ScopePart::Header {
                name,
                trusted: false,
            } => {
                let value = read::only_line(&subject.parts.headers, name)?;
                scoped.part(called, value);
            }
            // Its value may be a secret, such as an API key: it names nobody.
            ScopePart::Header {
                name,
                trusted: true,
            } => {
                self.read_trusted(called, name, subject, engine, scoped)?;
            }
            ScopePart::UserHeader(name) => {
                let value = self.read_trusted(called, name, subject, engine, scoped)?;
                scoped.actor = value.and_then(|it| str::from_utf8(it).ok()).map(Into::into);
            }
            ScopePart::Cookie(name) => {
                let value = read::cookie(&subject.parts.headers, name)?;
                scoped.part(called, value);
                match value.filter(|value| !value.is_empty()) {
                    Some(value) => scoped.secret = Some(value),
                    None => caller::read(subject.parts, engine, scoped)?,
                }
            }
            ScopePart::Body(member) => {
                scoped.part(called, read::member(subject.body, member)?);
            }
            ScopePart::Jwt(claim) => self.read_token(called, claim, subject, scoped)?,
        }
        Ok(())
    }

    /// Reads a header that something in front sets, and gives its value. Callers that it has not named
    /// are still told apart by their credential.
    fn read_trusted<'a>(
        &self,
        called: &str,
        name: &http::HeaderName,
        subject: &Subject<'a>,
        engine: &Engine,
        scoped: &mut Scoped<'a>,
    ) -> Result<Option<&'a [u8]>, Refusal> {
        let value = read::only_line(&subject.parts.headers, name)?;
        scoped.part(called, value);
        let value = value.filter(|value| !value.is_empty());
        match value {
            Some(value) => scoped.prove(&[called.as_bytes(), value]),
            None => caller::read(subject.parts, engine, scoped)?,
        }
        Ok(value)
    }

    #[cfg(feature = "jwt")]
    fn read_token<'a>(
        &self,
        called: &str,
        claim: &str,
        subject: &Subject<'a>,
        scoped: &mut Scoped<'a>,
    ) -> Result<(), Refusal> {
        match &self.verifier {
            Some(verifier) => {
                let kind = match &self.actor_type {
                    Some(ActorType::Claim(kind)) => Some(kind.as_str()),
                    Some(ActorType::Always(_) | ActorType::Header(_)) | None => None,
                };
                verifier.read(called, claim, kind, subject.parts, scoped)
            }
            None => Err(no_verifier()),
        }
    }

    #[cfg(not(feature = "jwt"))]
    fn read_token(
        &self,
        _called: &str,
        _claim: &str,
        _subject: &Subject<'_>,
        _scoped: &mut Scoped<'_>,
    ) -> Result<(), Refusal> {
        Err(no_verifier())
    }
}

/// A scope that asks for a verified token where nothing verifies tokens.
fn no_verifier() -> Refusal {
    read::unscoped("its scope asks for a verified token, and nothing here verifies tokens")
}

fn tells_callers_apart(part: &ScopePart) -> bool {
    match part {
        ScopePart::Caller
        | ScopePart::Cookie(_)
        | ScopePart::Jwt(_)
        | ScopePart::Header { trusted: true, .. }
        | ScopePart::UserHeader(_) => true,
        ScopePart::Route
        | ScopePart::Path(_)
        | ScopePart::PathAfter(_)
        | ScopePart::Header { trusted: false, .. }
        | ScopePart::Body(_) => false,
    }
}
