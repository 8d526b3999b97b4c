//! Why a store cannot be opened. What is wrong with a URL is said with what would be right;
//! credentials in it are never repeated.

use onlyonce_core::StoreError;
use thiserror::Error;

/// The schemes of the URLs that stores have.
pub const SCHEMES: [&str; 11] = [
    "memory",
    "file",
    "sqlite",
    "redis",
    "rediss",
    "redis+cluster",
    "redis+sentinel",
    "redis+quorum",
    "redlock",
    "postgres",
    "mysql",
];

/// Why a store could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL cannot be read.
    #[error(
        "the store's URL cannot be read: {why}; it looks like file:./onlyonce-data or redis://127.0.0.1:6379"
    )]
    Url {
        /// What is wrong with it.
        why: String,
    },
    /// No store has this scheme.
    #[error("no store has URLs that start with {found}:{hint}; there are {}", SCHEMES.join(", "))]
    Scheme {
        /// The scheme found.
        found: String,
        /// The nearest right word, if one is near.
        hint: String,
    },
    /// The store is not part of this build.
    #[error(
        "{scheme}: stores are not part of this build: enable the feature `{feature}` of onlyonce"
    )]
    NotBuilt {
        /// The scheme found.
        scheme: String,
        /// The feature that has it.
        feature: &'static str,
    },
    /// An option of the URL is unknown or has a wrong value.
    #[error("option `{name}` of the store's URL: {why}")]
    Option {
        /// The option.
        name: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// The store is there, but it must not be used like this.
    #[error("the {store} store cannot be used: {why}")]
    Refused {
        /// Which store.
        store: &'static str,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The store could not be reached or read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OpenError {
    /// A URL that cannot be read.
    pub fn url(why: &str) -> Self {
        let why = why.to_owned();
        Self::Url { why }
    }

    /// An option that is wrong.
    pub fn option(name: &str, why: &str) -> Self {
        let (name, why) = (name.to_owned(), why.to_owned());
        Self::Option { name, why }
    }

    /// A store that must not be used like this.
    pub fn refused(store: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        Self::Refused { store, why }
    }
}
