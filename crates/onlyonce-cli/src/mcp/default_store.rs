//! Where results are kept unless told otherwise: one database a user, for all servers. Clients start
//! the same server several times over, so a store for one process would not do.

use std::env;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use thiserror::Error;
use url::Url;

#[derive(Debug, Error)]
pub(super) enum NoPlace {
    #[error(
        "there is no place to keep results: neither XDG_STATE_HOME nor HOME is set; give --store"
    )]
    NoHome,
    #[error("the folder for results cannot be made: {}; give --store", folder.display())]
    NoFolder { folder: PathBuf, source: io::Error },
}

/// Its URL; its folder is made, for this user only.
pub(super) fn url() -> Result<String, NoPlace> {
    let folder = folder().ok_or(NoPlace::NoHome)?;
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    if let Err(source) = made {
        return Err(NoPlace::NoFolder { folder, source });
    }
    let file = Url::from_file_path(folder.join("mcp.db")).map_err(|()| NoPlace::NoHome)?;
    Ok(format!("sqlite:{}", file.path()))
}

/// Where this user's programs keep what they are at.
pub(crate) fn folder() -> Option<PathBuf> {
    let absolute = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".local").join("state")))?;
    Some(state.join("onlyonce"))
}
