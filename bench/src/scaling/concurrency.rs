//! Against concurrent connections: the handler alone, and new keys through the gateway.

use super::{Handler, Options, Point, file_store};
use crate::failure::Failure;
use crate::proxy::Onlyonce;
use crate::say;
use crate::wrk::{self, Keys, Load};

const CONNECTIONS: [u16; 6] = [1, 4, 16, 64, 256, 1024];

pub(super) fn run(options: &Options) -> Result<Vec<Point>, Failure> {
    let handler = Handler::start()?;
    let program = options.program.path()?;
    let mut points = Vec::new();
    for connections in CONNECTIONS {
        say(&format!("scaling: {connections} connections"));
        let turn = |series, port, pid, keys| {
            let load = Load {
                connections: connections.into(),
                ..Load::new(port, keys, options.seconds)
            };
            let sample = wrk::run(load, &[pid])?;
            let point = Point::new(series, connections.into(), sample);
            let cpu = sample.per_cpu.map_or(0.0, |rate| 1e6 / rate);
            Ok::<_, Failure>(point.with("CPU µs a request", cpu))
        };
        let pid = handler.process.pid();
        points.push(turn("bare handler", handler.port, pid, Keys::New)?);
        let gateway = Onlyonce::start(&program, handler.port, "memory:")?;
        let (port, pid) = (gateway.port(), gateway.pid());
        points.push(turn("gateway, no key", port, pid, Keys::None)?);
        points.push(turn("gateway, new keys, memory", port, pid, Keys::New)?);
        drop(gateway);
        let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
        let gateway = Onlyonce::start(&program, handler.port, &file_store(folder.path()))?;
        let (port, pid) = (gateway.port(), gateway.pid());
        points.push(turn("gateway, new keys, file", port, pid, Keys::New)?);
    }
    Ok(points)
}
