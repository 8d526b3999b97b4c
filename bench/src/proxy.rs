//! What stands between clients and a service: the gateway, and plain proxies to compare it with.

mod haproxy;
mod nginx;
mod onlyonce;

pub(crate) use self::haproxy::Haproxy;
pub(crate) use self::nginx::Nginx;
pub(crate) use self::onlyonce::{Onlyonce, Program};
