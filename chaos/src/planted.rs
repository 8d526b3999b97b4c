//! Planted bugs, in this program only: the checker must find what follows from each of them.

mod redlock;
mod unfenced;

use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use onlyonce_core::Store;
use onlyonce_gateway::{Gateway, Settings};

use self::redlock::Redlock;
use self::unfenced::Unfenced;
use crate::failure::Failure;
use crate::store::Kind;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Planted {
    /// Gateways whose store takes the answers of holders that lost their lease
    Unfenced,
    /// Gateways with plain Redlock, and the answers written over its locks, in place of the quorum
    Redlock,
    /// Servers of the quorum that vote at once after they have lost their disks
    Forgetful,
}

impl Planted {
    /// The command of this program that runs a gateway with it, if the bug is in the gateway.
    pub(crate) const fn command(self) -> Option<&'static str> {
        match self {
            Self::Unfenced => Some("unfenced"),
            Self::Redlock => Some("redlock"),
            Self::Forgetful => None,
        }
    }

    /// Whether this store can have it.
    pub(crate) fn fits(self, store: Kind) -> bool {
        match self {
            Self::Unfenced => true,
            Self::Redlock | Self::Forgetful => store == Kind::Quorum,
        }
    }
}

/// Serves on a store that does not fence, until it is killed.
pub(crate) async fn unfenced(settings: &Path) -> Result<(), Failure> {
    let settings = load(settings)?;
    serve(&settings, |sound| Arc::new(Unfenced { sound })).await
}

/// Serves on plain Redlock, until it is killed.
pub(crate) async fn redlock(settings: &Path) -> Result<(), Failure> {
    let settings = load(settings)?;
    let servers = redlock::servers(settings.config().store_url())?;
    serve(&settings, |sound| Arc::new(Redlock::new(servers, sound))).await
}

fn load(file: &Path) -> Result<Settings, Failure> {
    Settings::load(Some(file), std::env::vars(), &[]).map_err(Failure::doing("read the settings"))
}

async fn serve(
    settings: &Settings,
    wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
) -> Result<(), Failure> {
    let _gateway = Gateway::start_around(settings, wrap)
        .await
        .map_err(Failure::doing("start a gateway with a bug"))?;
    std::future::pending().await
}
