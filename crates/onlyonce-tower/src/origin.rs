//! Where a request was really sent: frameworks strip prefixes from the path of nested routers,
//! and two routes that look the same inside must not share records.

use std::sync::Arc;

use http::Extensions;
use http::uri::Uri;

/// The path as the client sent it.
#[cfg(feature = "axum")]
pub(crate) fn uri<'a>(uri: &'a Uri, extensions: &'a Extensions) -> &'a Uri {
    extensions
        .get::<axum::extract::OriginalUri>()
        .map_or(uri, |original| &original.0)
}

/// The pattern of the route that was matched, where the framework tells.
#[cfg(feature = "axum")]
pub(crate) fn pattern(extensions: &Extensions) -> Option<Arc<str>> {
    extensions
        .get::<axum::extract::MatchedPath>()
        .map(|matched| matched.as_str().into())
}

/// The path as the client sent it.
#[cfg(not(feature = "axum"))]
pub(crate) fn uri<'a>(uri: &'a Uri, _extensions: &'a Extensions) -> &'a Uri {
    uri
}

/// The pattern of the route that was matched, where the framework tells.
#[cfg(not(feature = "axum"))]
pub(crate) fn pattern(_extensions: &Extensions) -> Option<Arc<str>> {
    None
}
