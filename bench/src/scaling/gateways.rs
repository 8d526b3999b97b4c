//! Against the number of gateways on one Redis and on one PostgreSQL, and the CPU time that a new key
//! costs a gateway and the store.

use std::path::Path;

use onlyonce_testkit::servers::{Postgres, PostgresOptions, Redis, RedisOptions, Server};

use super::{Handler, Options, Point};
use crate::failure::Failure;
use crate::proxy::Onlyonce;
use crate::rounds::Sample;
use crate::say;
use crate::system::{children, cpu_seconds};
use crate::wrk::{self, CONNECTIONS, Keys, Load};

const GATEWAYS: usize = 4;
pub(super) const GATEWAY_CPU: &str = "gateway CPU µs a request";
pub(super) const STORE_CPU: &str = "store CPU µs a request";

pub(super) fn run(options: &Options) -> Result<Vec<Point>, Failure> {
    let mut points = Vec::new();
    let redis = Redis::start(RedisOptions::default())?;
    points.extend(curve(options, "Redis", &redis)?);
    drop(redis);
    let postgres = Postgres::start(PostgresOptions {
        fast: false,
        lines: vec![
            "max_wal_size = 8GB".to_owned(),
            "max_connections = 300".to_owned(),
        ],
    })?;
    points.extend(curve(options, "PostgreSQL", &postgres)?);
    Ok(points)
}

fn curve(
    options: &Options,
    series: &'static str,
    server: &dyn Server,
) -> Result<Vec<Point>, Failure> {
    let handler = Handler::start()?;
    let program = options.program.path()?;
    (1..=GATEWAYS)
        .map(|count| {
            say(&format!("scaling: {count} gateways on one {series}"));
            point(options, (series, server), &handler, &program, count)
        })
        .collect()
}

/// The connections are shared out among the gateways.
fn point(
    options: &Options,
    (series, server): (&'static str, &dyn Server),
    handler: &Handler,
    program: &Path,
    count: usize,
) -> Result<Point, Failure> {
    let start = || Onlyonce::start(program, handler.port, &server.url());
    let gateways: Vec<_> = (0..count).map(|_| start()).collect::<Result<_, _>>()?;
    let turn = |gateway: &Onlyonce, seconds| {
        let load = Load {
            connections: CONNECTIONS / count,
            ..Load::new(gateway.port(), Keys::New, seconds)
        };
        wrk::run(load, &[gateway.pid()])
    };
    // Connections to the store are there before its time is taken.
    turn(&gateways[0], 1)?;
    let before = store_cpu(server);
    let samples = std::thread::scope(|scope| {
        let turn = &turn;
        let turns: Vec<_> = gateways
            .iter()
            .map(|gateway| scope.spawn(move || turn(gateway, options.seconds)))
            .collect();
        let ended = turns.into_iter().map(|turn| {
            turn.join()
                .unwrap_or_else(|_| Err(Failure::new("a load panicked")))
        });
        ended.collect::<Result<Vec<_>, _>>()
    })?;
    let cpu = store_cpu(server) - before;
    let rate: f64 = samples.iter().map(|it| it.rate).sum();
    let requests = rate * options.seconds as f64;
    let gateway_cpu: f64 = samples
        .iter()
        .filter_map(|it| Some(it.rate / it.per_cpu?))
        .sum();
    let p99 = samples.iter().filter_map(|it| it.p99).reduce(f64::max);
    let sample = Sample {
        rate,
        p99,
        ..Sample::default()
    };
    let x = u64::try_from(count).unwrap_or(u64::MAX);
    Ok(Point::new(series, x, sample)
        .with(GATEWAY_CPU, gateway_cpu / rate * 1e6)
        .with(STORE_CPU, cpu / requests * 1e6))
}

/// Of the server and its children.
fn store_cpu(server: &dyn Server) -> f64 {
    let Some(pid) = server.pid() else { return 0.0 };
    let pids = children(pid).into_iter().chain([pid]);
    pids.map(cpu_seconds).sum()
}
