//! A third-party server from the npm registry, in the version that package-lock.json pins: installed
//! once, and for good.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::support::npm;

const PACKAGE: &str = include_str!("package.json");
const LOCK: &str = include_str!("package-lock.json");

/// The folder with `node_modules`.
pub(crate) fn installed() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| npm::installed("mcp-servers", PACKAGE, LOCK))
}

pub(crate) fn filesystem() -> PathBuf {
    installed().join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js")
}
