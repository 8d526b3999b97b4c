//! What a URL puts around its store, and the one order in which it goes: from the outside in
//! `Cached(Tiered(quick, Guarded(Sealed(store))))`, with `Compressed` where a seal would be, each only where the URL asks for it. What watches
//! a store goes around all of that: `Guarded(Metered(…))`. What is remembered needs no closed
//! breaker even so: [`recall`](onlyonce_core::Store::recall) passes it.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Store;
use onlyonce_storekit::{AROUND, OpenError, Options};

use crate::{Cached, Guarded, Tiered};

/// A tier that takes longer than this is not worth waiting for.
const TIER_TIMEOUT: Duration = Duration::from_millis(250);
/// Copies are kept apart from records, also on one server.
const TIER_PREFIX: &str = "onlyonce-tier";
/// What an entry of a cache takes at least, for the number of entries that fit.
const ENTRY_BYTES_MIN: u64 = 768;
/// A folder's cache, unless the URL says otherwise. Nobody else uses the folder: it costs memory only.
const FOLDER_CACHE_BYTES: u64 = 64 << 20;

/// What a URL asks for around its store.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Around {
    /// The file of the key ring.
    pub(super) sealed: Option<String>,
    /// Whether records from before the sealing are accepted.
    pub(super) plain: bool,
    /// The bytes of the cache; a store in a folder has one of its own accord, and none with 0.
    pub(super) cache: Option<u64>,
    /// The URL of the tier.
    pub(super) tier: Option<String>,
    /// Whether answers are compressed; what is sealed is in any case.
    pub(super) compressed: bool,
}

impl Around {
    /// Takes what goes around the store off its URL. A store in a folder sees to its seal itself.
    pub(super) fn split(url: &str, backend: &str) -> Result<(String, Self), OpenError> {
        let names = if backend == "file" {
            &AROUND[2..]
        } else {
            &AROUND[..]
        };
        let (rest, mut options) = Options::split_off(url, names)?;
        let around = Self {
            sealed: options.take("sealed").filter(|it| it != "false"),
            plain: options.parse("plain", "true or false")?.unwrap_or(false),
            cache: match (options.bytes("cache")?, backend) {
                (None, "file") => Some(FOLDER_CACHE_BYTES),
                (Some(0), "file") => None,
                (given, _) => given,
            },
            tier: options.take("tier"),
            compressed: options
                .parse("compressed", "true or false")?
                .unwrap_or(false),
        };
        options.finish()?;
        around.check(backend)?;
        Ok((rest, around))
    }

    /// Whether all of this makes sense around a store of this kind.
    fn check(&self, backend: &str) -> Result<(), OpenError> {
        let wrong = |name, why: &str| Err(OpenError::option(name, why));
        if self.sealed.as_deref() == Some("true") {
            return wrong("sealed", "names no key file: write `sealed=KEYFILE`");
        }
        if self.plain && self.sealed.is_none() {
            return wrong(
                "plain",
                "is only for a store that is sealed: add `sealed=KEYFILE`",
            );
        }
        match (self.cache, backend) {
            (Some(_), "memory") => {
                return wrong(
                    "cache",
                    "this store is in memory already: leave the cache out",
                );
            }
            (Some(0), _) => {
                return wrong(
                    "cache",
                    "of no bytes remembers nothing: leave it out, or try 64MiB",
                );
            }
            (Some(_) | None, _) => {}
        }
        let Some(tier) = &self.tier else {
            return Ok(());
        };
        match backend {
            "postgres" | "mysql" => {}
            "redis" => return wrong("tier", "this store is in Redis already: leave the tier out"),
            _ => {
                let why = "is for databases on a server (postgres, mysql): this store is on this machine, and nearer than any tier; use `cache` instead";
                return wrong("tier", why);
            }
        }
        if super::backend(tier) != "redis" {
            return wrong(
                "tier",
                "must be a redis:// URL, or another of Redis's kinds",
            );
        }
        let (_, mut around) = Options::split_off(tier, &AROUND)?;
        if AROUND.into_iter().any(|name| around.take(name).is_some()) {
            let why = "takes no options of its own for what goes around it: a seal is its store's, and a cache goes before both";
            return wrong("tier", why);
        }
        Ok(())
    }

    /// Puts it around `store`.
    pub(super) async fn wrap(
        self,
        store: Arc<dyn Store>,
        backend: &'static str,
    ) -> Result<Arc<dyn Store>, OpenError> {
        let mut store = self.compress(self.seal(store, backend).await?)?;
        if let Some(tier) = &self.tier {
            let quick = super::bare(&tier_url(tier)?).await?;
            let quick = self.compress(self.seal(quick, "redis").await?)?;
            let quick = Guarded::new(quick).timeout(TIER_TIMEOUT).named("tier");
            let durable = Guarded::new(store).named(backend);
            store = Arc::new(Tiered::new(Arc::new(quick), Arc::new(durable)));
        }
        if let Some(bytes_max) = self.cache {
            let entries_max = usize::try_from(bytes_max / ENTRY_BYTES_MIN).unwrap_or(usize::MAX);
            let cached = Cached::new(store)
                .entries_max(entries_max.max(1))
                .bytes_max(bytes_max);
            // A folder is used by one process, all of whose requests come through here.
            store = Arc::new(if backend == "file" {
                cached.exclusive()
            } else {
                cached
            });
        }
        Ok(store)
    }

    #[cfg(feature = "compressed")]
    fn compress(&self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>, OpenError> {
        Ok(if self.compressed && self.sealed.is_none() {
            Arc::new(crate::Compressed::new(store))
        } else {
            store
        })
    }

    #[cfg(not(feature = "compressed"))]
    fn compress(&self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>, OpenError> {
        if !self.compressed {
            return Ok(store);
        }
        let why =
            "compressing is not part of this build: enable the feature `compressed` of onlyonce";
        Err(OpenError::option("compressed", why))
    }

    #[cfg(feature = "sealed")]
    async fn seal(
        &self,
        store: Arc<dyn Store>,
        backend: &'static str,
    ) -> Result<Arc<dyn Store>, OpenError> {
        use crate::sealed::{KeyRing, Sealed};
        let Some(key_file) = &self.sealed else {
            return Ok(store);
        };
        let ring = KeyRing::from_file(key_file).map_err(|error| {
            let how = "one is made with `echo \"k1 $(openssl rand -base64 32)\" > FILE; chmod 600 FILE`, and every process needs the same";
            OpenError::refused(backend, format!("{error}; {how}"))
        })?;
        let ring = if self.plain { ring.allow_plain() } else { ring };
        Ok(Arc::new(Sealed::open(store, ring).await?))
    }

    #[cfg(not(feature = "sealed"))]
    async fn seal(
        &self,
        store: Arc<dyn Store>,
        _: &'static str,
    ) -> Result<Arc<dyn Store>, OpenError> {
        if self.sealed.is_none() {
            return Ok(store);
        }
        let why = "sealing is not part of this build: enable the feature `sealed` of onlyonce";
        Err(OpenError::option("sealed", why))
    }
}

/// The tier's URL, with a prefix of its own, and a server that may evict what is only a copy.
fn tier_url(url: &str) -> Result<String, OpenError> {
    let (_, mut given) = Options::split_off(url, &["prefix", "eviction"])?;
    let mut url = url.to_owned();
    for (name, value) in [("prefix", TIER_PREFIX), ("eviction", "allow")] {
        if given.take(name).is_none() {
            let separator = if url.contains('?') { '&' } else { '?' };
            url = format!("{url}{separator}{name}={value}");
        }
    }
    Ok(url)
}
