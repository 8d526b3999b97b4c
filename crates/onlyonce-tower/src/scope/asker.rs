//! Whose [`Allowance`](crate::Allowance) a request counts for, as far as is known.

use std::net::IpAddr;

use onlyonce_core::{Engine, Slot};

/// Who asks.
pub(crate) struct Asker {
    /// Who it is, where something vouches for it.
    pub(super) proven: Option<Vec<u8>>,
    /// What no other caller can present: an opaque credential, a session.
    pub(super) secret: Option<Vec<u8>>,
    /// A digest of a credential that was not verified.
    pub(super) credential: Option<[u8; 32]>,
    pub(super) address: Option<IpAddr>,
}

impl Asker {
    /// Who takes keys and bytes. What anyone can make up is worth less than the address it came
    /// from: a flood may come under ever new credentials.
    pub(crate) fn taker(&self, engine: &Engine) -> Slot {
        let name = self.proven().or_else(|| self.from());
        digest(engine, &name.or_else(|| self.shown()).unwrap_or_default())
    }

    /// Who alone pays for bad requests: whoever is known, or shows a credential that others do not
    /// have. Nothing for those who are only known by an address, which many may share.
    pub(crate) fn itself(&self, engine: &Engine) -> Option<Slot> {
        let name = self.proven().or_else(|| self.shown())?;
        Some(digest(engine, &name))
    }

    /// Where it comes from, which it may share with others.
    pub(crate) fn origin(&self, engine: &Engine) -> Slot {
        digest(engine, &self.from().unwrap_or_default())
    }

    fn proven(&self) -> Option<Vec<u8>> {
        Some([b"p", &self.proven.as_ref()?[..]].concat())
    }

    fn shown(&self) -> Option<Vec<u8>> {
        match (&self.secret, &self.credential) {
            (Some(secret), _) => Some([b"c", &secret[..]].concat()),
            (None, Some(digest)) => Some([b"d", &digest[..]].concat()),
            (None, None) => None,
        }
    }

    fn from(&self) -> Option<Vec<u8>> {
        Some(match self.address? {
            IpAddr::V4(ip) => [b"4", &ip.octets()[..]].concat(),
            // Who has one address of IPv6 has its whole network.
            IpAddr::V6(ip) => [b"6", &ip.octets()[..8]].concat(),
        })
    }
}

fn digest(engine: &Engine, name: &[u8]) -> Slot {
    Slot::from_bytes(engine.credential(name))
}
