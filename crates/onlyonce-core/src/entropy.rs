//! Randomness, from one place. Tokens and secrets are fresh randomness of the operating system;
//! the simulator passes its own seeded source.

use std::sync::Mutex;

use crate::lock;

/// Where random bytes come from.
pub trait Entropy: Send + Sync + 'static {
    /// Fills `out` with unpredictable bytes.
    fn fill(&self, out: &mut [u8]);
}

const POOL_BYTES: usize = 4096;

/// The operating system's randomness, drawn a page at a time so that a token costs no system call.
pub struct OsEntropy {
    pool: Mutex<Pool>,
}

struct Pool {
    bytes: Box<[u8; POOL_BYTES]>,
    /// Everything before this offset was handed out and zeroed: no byte is given twice.
    used: usize,
}

impl OsEntropy {
    /// A source with an empty pool.
    pub fn new() -> Self {
        Self {
            pool: Mutex::new(Pool {
                bytes: Box::new([0; POOL_BYTES]),
                used: POOL_BYTES,
            }),
        }
    }
}

impl Default for OsEntropy {
    fn default() -> Self {
        Self::new()
    }
}

impl Entropy for OsEntropy {
    fn fill(&self, out: &mut [u8]) {
        assert!(
            out.len() <= POOL_BYTES,
            "no caller asks for more than a page"
        );
        let mut pool = lock(&self.pool);
        if POOL_BYTES - pool.used < out.len() {
            refill(&mut pool.bytes[..]);
            pool.used = 0;
        }
        let from = pool.used;
        let taken = &mut pool.bytes[from..from + out.len()];
        out.copy_from_slice(taken);
        taken.fill(0);
        pool.used += out.len();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that asks the operating system"
)]
fn refill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system has a random source");
}
