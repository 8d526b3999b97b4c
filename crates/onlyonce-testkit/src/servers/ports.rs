//! Free ports of the loopback interface.
//!
//! They come from below the range that the kernel gives to outgoing connections. Otherwise a
//! client could get a killed server's port as its own and keep it from starting again; one that
//! reconnects in a loop would in the end even connect to itself.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use super::ServerError;

const LOWEST: u16 = 10_000;
const LOWEST_EPHEMERAL: u16 = 32_768;
const RANGE_FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const ATTEMPTS_MAX: usize = 1_000;

/// A port that nobody listens on at this moment.
pub fn free_port() -> Result<u16, ServerError> {
    // Ports handed out by this process lie apart, as a server takes a moment to bind its own.
    static HANDED_OUT: AtomicU16 = AtomicU16::new(0);

    let cannot = || ServerError::io("find a free port");
    let highest = lowest_ephemeral();
    if highest <= LOWEST {
        return kernels_choice().map_err(cannot());
    }

    let start = kernels_choice().map_err(cannot())?;
    for _ in 0..ATTEMPTS_MAX {
        let step = HANDED_OUT.fetch_add(1, Ordering::Relaxed);
        let port = LOWEST + start.wrapping_add(step) % (highest - LOWEST);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    kernels_choice().map_err(cannot())
}

/// A free port out of the ephemeral range; another one each time.
fn kernels_choice() -> std::io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

fn lowest_ephemeral() -> u16 {
    let range = fs::read_to_string(RANGE_FILE).unwrap_or_default();
    let lowest = range.split_whitespace().next();
    lowest
        .and_then(|lowest| lowest.parse().ok())
        .unwrap_or(LOWEST_EPHEMERAL)
}
