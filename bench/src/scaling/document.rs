//! The tables of `docs/scaling.md`: what is between a curve's two marks is replaced.

use std::fs;
use std::path::Path;

use super::gateways::{GATEWAY_CPU, STORE_CPU};
use super::{Curve, Measured, Point};
use crate::failure::Failure;
use crate::rounds::median;

/// How many primaries of a Redis Cluster, or servers of PostgreSQL, are computed.
const SERVERS: [f64; 4] = [1.0, 3.0, 6.0, 12.0];
/// The cores of a PostgreSQL server that are computed with.
const POSTGRES_CORES: f64 = 8.0;
/// How busy a store may be: beyond, those who wait are more than those who are served.
const LOAD: f64 = 0.7;

pub(super) fn write(path: &Path, curve: Curve, measured: &Measured) -> Result<(), Failure> {
    let text =
        fs::read_to_string(path).map_err(Failure::doing(format!("read {}", path.display())))?;
    let [begin, end] =
        ["measured", "/measured"].map(|it| format!("<!-- {it}: {} -->", curve.name()));
    let parts = text
        .split_once(&begin)
        .and_then(|(head, rest)| Some((head, rest.split_once(&end)?.1)));
    let (head, tail) = parts
        .ok_or_else(|| Failure::new(format!("{} has no line {begin} and {end}", path.display())))?;
    let mut table = table(curve, measured);
    if curve == Curve::Gateways {
        table.push_str(&computed(&measured.points));
    }
    fs::write(path, format!("{head}{begin}\n{table}{end}{tail}"))
        .map_err(Failure::doing(format!("write {}", path.display())))
}

fn table(curve: Curve, measured: &Measured) -> String {
    let Measured {
        machine,
        load,
        seconds,
        points,
    } = measured;
    let more: Vec<_> = points
        .first()
        .map_or_else(Vec::new, |it| it.more.keys().collect());
    let head: String = more.iter().map(|name| format!(" {name} |")).collect();
    let mut text = format!(
        "\n{seconds} s a point, on {machine}, where {load:.1} processes were busy before:\n\n\
         | {} | | a second | p99 |{head}\n|---|---|---|---|{}\n",
        curve.x(),
        "---|".repeat(more.len()),
    );
    for point in points {
        let more = more.iter().map(|name| match point.more.get(*name) {
            Some(figure) => format!(" {} |", shown(*figure)),
            None => " |".to_owned(),
        });
        text.push_str(&format!(
            "| {} | {} | {:.0} | {} |{}\n",
            point.x,
            point.series,
            point.rate,
            time(point.p99),
            more.collect::<String>(),
        ));
    }
    let name = curve.name();
    text + &format!(
        "\n![](benchmarks/scaling-{name}-rate.svg)\n![](benchmarks/scaling-{name}-p99.svg)\n"
    )
}

fn time(micros: f64) -> String {
    match micros {
        _ if micros < 1e3 => format!("{micros:.0} µs"),
        _ => format!("{:.1} ms", micros / 1e3),
    }
}

fn shown(figure: f64) -> String {
    match figure {
        _ if figure < 10.0 => format!("{figure:.2}"),
        _ => format!("{figure:.0}"),
    }
}

/// What more servers would carry, from the CPU time that a request costs one.
fn computed(points: &[Point]) -> String {
    let cost = |series: &str, what: &str| {
        let of = points.iter().filter(|it| it.series == series);
        median(of.filter_map(|it| it.more.get(what).copied()).collect())
    };
    let mut text = format!(
        "\nComputed from that, with every store {:.0} % busy (new keys a second, and the cores that the\n\
         gateways need for them):\n\n\
         | servers | Redis Cluster, primaries | cores of gateways | PostgreSQL, {POSTGRES_CORES} cores each | cores of gateways |\n\
         |---|---|---|---|---|\n",
        LOAD * 100.0,
    );
    for servers in SERVERS {
        // Redis executes commands on one core, PostgreSQL on all.
        let cells = [("Redis", 1.0), ("PostgreSQL", POSTGRES_CORES)].map(|(series, cores)| {
            let rate = servers * cores * LOAD * 1e6 / cost(series, STORE_CPU).max(f64::EPSILON);
            let gateways = rate * cost(series, GATEWAY_CPU) / 1e6;
            format!("{rate:.0} | {gateways:.0}")
        });
        text.push_str(&format!("| {servers} | {} |\n", cells.join(" | ")));
    }
    text
}
