//! The style sheet, the script and the icon, which are part of the binary.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("console.css");
const SCRIPT: &str = include_str!("console.js");
const ICON: &str = include_str!("console.svg");

/// Pages name these files with their version, so they may be kept.
const KEPT: &str = "public, max-age=31536000, immutable";

/// Differs whenever one of the files does.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let digest = [STYLE, SCRIPT, ICON]
        .into_iter()
        .fold(Sha256::new(), |digest, file| digest.chain_update(file))
        .finalize();
    digest[..6].iter().map(|it| format!("{it:02x}")).collect()
});

/// The address of a file.
pub(super) fn address(file: &str) -> String {
    format!("/{file}?v={}", *VERSION)
}

pub(super) async fn style() -> Response {
    file("text/css; charset=utf-8", STYLE)
}

pub(super) async fn script() -> Response {
    file("text/javascript; charset=utf-8", SCRIPT)
}

pub(super) async fn icon() -> Response {
    file("image/svg+xml", ICON)
}

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, KEPT)], text).into_response()
}
