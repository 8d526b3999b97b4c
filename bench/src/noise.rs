//! How steady the machine is while something else is measured: with each round, how long one fixed
//! piece of work takes the processor, and one fixed write the disk. Where these spread, so do the
//! figures beside them.

use std::fs::File;
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use onlyonce_core::{Clock as _, SystemClock};

use crate::failure::Failure;
use crate::report::{Row, Unit};
use crate::rounds::{Sample, median};

/// About 20 ms.
const SPINS: u64 = 20_000_000;
const SYNCS: usize = 20;
/// About what the file store writes for a request and its answer of 200 bytes.
const RECORD_BYTES: usize = 512;

/// Of every round of this process so far.
static TAKEN: Mutex<Taken> = Mutex::new(Taken {
    spins: Vec::new(),
    syncs: Vec::new(),
});

struct Taken {
    spins: Vec<f64>,
    syncs: Vec<f64>,
}

/// Measures the machine once more. A disk that cannot be written to is not measured: what is measured
/// beside it will say why.
pub(crate) fn take() {
    let spun = spin().as_secs_f64() * 1e6;
    let folder = tempfile::tempdir();
    let synced = folder.map(|folder| syncs(&folder.path().join("bare"), SYNCS));
    let mut taken = TAKEN.lock().unwrap_or_else(|broken| broken.into_inner());
    taken.spins.push(spun);
    if let Ok(Ok(Sample { p50: Some(p50), .. })) = synced {
        taken.syncs.push(p50);
    }
}

/// What was measured, each with its spread.
pub(crate) fn rows() -> Vec<Row> {
    let taken = TAKEN.lock().unwrap_or_else(|broken| broken.into_inner());
    let row = |case: &str, figures: &[f64]| {
        let middle = (median(figures.to_vec()), Unit::Micros);
        let row = Row::alone("machine", case, "time", middle, None);
        (!figures.is_empty()).then(|| row.spread(figures))
    };
    let spins = row("one fixed piece of work", &taken.spins);
    let syncs = row("one write and fdatasync of a record", &taken.syncs);
    spins.into_iter().chain(syncs).collect()
}

/// What anybody waits who appends a record to a file and wants it kept.
pub(crate) fn syncs(path: &Path, count: usize) -> Result<Sample, Failure> {
    let mut file = File::create(path).map_err(Failure::doing("make a file"))?;
    let clock = SystemClock::new();
    let mut micros = Vec::with_capacity(count);
    for _ in 0..count {
        let since = clock.now();
        let kept = file
            .write_all(&[7; RECORD_BYTES])
            .and_then(|()| file.sync_data());
        kept.map_err(Failure::doing("write to a file"))?;
        let took = clock.now() - since;
        micros.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }
    Ok(Sample::of(micros, clock.now()))
}

fn spin() -> Duration {
    let clock = SystemClock::new();
    let mut word = 1_u64;
    for n in 0..SPINS {
        word = black_box(word.rotate_left(5) ^ n);
    }
    clock.now()
}
