//! Against the size of bodies: the handler answers as much as it is sent.

use super::{Handler, Options, Point, file_store};
use crate::failure::Failure;
use crate::proxy::Onlyonce;
use crate::say;
use crate::wrk::{self, Keys, Load};

const BYTES: [u32; 5] = [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20];
/// Few enough that the largest fit in the buffers of all.
const CONNECTIONS: usize = 16;

pub(super) fn run(options: &Options) -> Result<Vec<Point>, Failure> {
    let handler = Handler::start()?;
    let program = options.program.path()?;
    let mut points = Vec::new();
    for bytes in BYTES {
        say(&format!("scaling: bodies of {bytes} bytes"));
        let turn = |series, port, pid, keys| {
            let load = Load {
                path: "/echo",
                connections: CONNECTIONS,
                body_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
                ..Load::new(port, keys, options.seconds)
            };
            let sample = wrk::run(load, &[pid])?;
            let cpu = sample.per_cpu.map_or(0.0, |rate| 1e6 / rate);
            let point = Point::new(series, bytes.into(), sample);
            let both_ways = sample.rate * f64::from(bytes) * 2.0 / 1e6;
            Ok::<_, Failure>(
                point
                    .with("CPU µs a request", cpu)
                    .with("MB/s, both ways", both_ways),
            )
        };
        let pid = handler.process.pid();
        points.push(turn("bare handler", handler.port, pid, Keys::New)?);
        let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
        let gateway = Onlyonce::start(&program, handler.port, &file_store(folder.path()))?;
        let (port, pid) = (gateway.port(), gateway.pid());
        points.push(turn("gateway, no key", port, pid, Keys::None)?);
        points.push(turn("gateway, new keys, file", port, pid, Keys::New)?);
    }
    Ok(points)
}
