//! Where connections come from: a pool, or the one of several servers that takes writes.

use std::sync::Arc;

use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};

use super::hosts::Hosts;
use super::standing::Chosen;
use super::trouble::Trouble;

#[derive(Clone)]
pub(super) enum Source {
    Pool(PgPool),
    Hosts(Arc<Hosts>),
}

/// A connection, which ends with this value unless a pool takes it back.
pub(super) enum Held {
    Pooled(PoolConnection<Postgres>),
    Own(PgConnection),
}

impl Held {
    pub(super) fn get(&mut self) -> &mut PgConnection {
        match self {
            Self::Pooled(connection) => connection,
            Self::Own(connection) => connection,
        }
    }
}

impl Source {
    /// A connection, and which of several servers it leads to.
    pub(super) async fn connect(&self) -> Result<(Held, Option<Chosen>), Trouble> {
        match self {
            Self::Pool(pool) => Ok((Held::Pooled(pool.acquire().await?), None)),
            Self::Hosts(hosts) => {
                let (connection, chosen) = hosts.connect().await?;
                Ok((Held::Own(connection), Some(chosen)))
            }
        }
    }

    /// Which of several servers takes writes.
    pub(super) fn chosen(&self) -> Option<Chosen> {
        match self {
            Self::Pool(_) => None,
            Self::Hosts(hosts) => hosts.chosen(),
        }
    }

    /// Returns once another server takes writes: never, where there is one.
    pub(super) async fn left(&self, chosen: Option<Chosen>) {
        match self {
            Self::Pool(_) => std::future::pending().await,
            Self::Hosts(hosts) => hosts.left(chosen).await,
        }
    }

    /// How to connect once more to the server of a connection.
    pub(super) fn options(&self, chosen: Option<Chosen>) -> Arc<PgConnectOptions> {
        match self {
            Self::Pool(pool) => pool.connect_options(),
            Self::Hosts(hosts) => {
                let host = chosen.map_or(0, |chosen| chosen.host);
                Arc::new(hosts.options(host).clone())
            }
        }
    }
}
