//! The references and ourselves: the bare handler, plain proxies in front of it, the tower layer
//! around it, the gateway in front of it.

use onlyonce_testkit::servers::Server as _;

use super::who::{Bed, Started};
use crate::failure::Failure;
use crate::process::free_port;
use crate::proxy::{Haproxy, Nginx, Onlyonce};
use crate::serve;

pub(super) fn handler(bed: &Bed<'_>) -> Result<Started, Failure> {
    start(bed, None)
}

pub(super) fn nginx(bed: &Bed<'_>) -> Result<Started, Failure> {
    let handler = handler(bed)?;
    let nginx = Nginx::start(handler.port)?;
    let (port, pids) = (nginx.port(), nginx.pids());
    Ok(Started { port, ..handler }.and(pids, nginx))
}

pub(super) fn haproxy(bed: &Bed<'_>) -> Result<Started, Failure> {
    let handler = handler(bed)?;
    let haproxy = Haproxy::start(handler.port)?;
    let (port, pid) = (haproxy.port(), haproxy.pid());
    Ok(Started { port, ..handler }.and([pid], haproxy))
}

pub(super) fn layer_memory(bed: &Bed<'_>) -> Result<Started, Failure> {
    start(bed, Some("memory:"))
}

pub(super) fn layer_redis(bed: &Bed<'_>) -> Result<Started, Failure> {
    Ok(start(bed, Some(&bed.redis.url()))?.and(bed.redis_pid(), ()))
}

pub(super) fn layer_file(bed: &Bed<'_>) -> Result<Started, Failure> {
    let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
    let url = format!("file:{}/data", folder.path().display());
    Ok(start(bed, Some(&url))?.and([], folder))
}

pub(super) fn gateway_memory(bed: &Bed<'_>) -> Result<Started, Failure> {
    gateway(bed, "memory:")
}

pub(super) fn gateway_redis(bed: &Bed<'_>) -> Result<Started, Failure> {
    Ok(gateway(bed, &bed.redis.url())?.and(bed.redis_pid(), ()))
}

pub(super) fn gateway_file(bed: &Bed<'_>) -> Result<Started, Failure> {
    let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
    let url = format!("file:{}/data", folder.path().display());
    Ok(gateway(bed, &url)?.and([], folder))
}

fn gateway(bed: &Bed<'_>, store: &str) -> Result<Started, Failure> {
    let handler = handler(bed)?;
    let gateway = Onlyonce::start(&bed.onlyonce, handler.port, store)?;
    let (port, pid) = (gateway.port(), gateway.pid());
    Ok(Started { port, ..handler }.and([pid], gateway))
}

fn start(bed: &Bed<'_>, store: Option<&str>) -> Result<Started, Failure> {
    let port = free_port()?;
    let mut process = bed.start(&serve::command(port, store, &bed.runs)?)?;
    process.wait_for(port)?;
    Ok(Started::new(port, vec![process.pid()], process))
}
