//! Plots of the last ten minutes, as SVG. One unit of a plot's width is a second, its height is
//! `HEIGHT` units; the script draws new samples into the same elements by the same rules.

use maud::{Markup, html};

use super::super::now::{SampleView, TotalsView};

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 100.0;
const SAMPLE_SECONDS: f64 = 5.0;
/// A gap of a second tells two spans apart.
const BAR_SECONDS: f64 = 4.0;

/// An outcome as plots and tables show it.
pub(super) struct Series {
    /// Its field in the API.
    pub(super) name: &'static str,
    /// What people call it.
    pub(super) label: &'static str,
    pub(super) count: fn(&TotalsView) -> u64,
}

/// The outcomes, from the bottom of a stack to its top.
pub(super) const SERIES: [Series; 5] = [
    Series {
        name: "new",
        label: "ran",
        count: |it| it.new,
    },
    Series {
        name: "replayed",
        label: "replayed",
        count: |it| it.replayed,
    },
    Series {
        name: "in_progress",
        label: "came while it ran",
        count: |it| it.in_progress,
    },
    Series {
        name: "conflicts",
        label: "key used for something else",
        count: |it| it.conflicts,
    },
    Series {
        name: "refused",
        label: "refused otherwise",
        count: |it| it.refused,
    },
];

/// Requests by outcome, as stacked bars.
pub(super) fn requests(samples: &[SampleView]) -> Markup {
    let top = nice(
        1.0,
        samples
            .iter()
            .map(|it| it.counts.all() as f64)
            .fold(0.0, f64::max),
    );
    let a_second = top / SAMPLE_SECONDS;
    html! {
        figure.plot data-plot="requests" {
            figcaption {
                h2 { "Requests" }
                span.scale { "top: " span data-scale { (plain(a_second)) } " a second" }
            }
            svg role="img" aria-label=(summary(samples)) viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" {
                (grid())
                @for (index, series) in SERIES.iter().enumerate() {
                    path class={ "bar " (series.name) } data-series=(series.name) d=(bars(samples, index, top)) {}
                }
            }
            (minutes())
            ul.legend {
                @for series in &SERIES { li { span class={ "swatch " (series.name) } {} (series.label) } }
            }
        }
    }
}

/// What a line shows, and by which scale; the script reads it from the plot's own attributes.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) unit: Unit,
    /// Where the scale ends if all is below it.
    pub(super) least: f64,
    /// Nothing where there was nothing to measure.
    pub(super) of: fn(&SampleView) -> Option<f64>,
    /// Spans that are marked from bottom to top, and what that means.
    pub(super) marked: Option<Marked>,
}

/// Which moments are marked, and what that means.
type Marked = (fn(&SampleView) -> bool, &'static str);

/// What is measured.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Number,
    Percent,
    Milliseconds,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Number => "",
            Self::Percent => "%",
            Self::Milliseconds => "ms",
        }
    }

    fn told(self, number: f64) -> String {
        match self {
            Self::Number => plain(number),
            Self::Percent => format!("{} %", plain(number)),
            // A fast store takes microseconds.
            Self::Milliseconds if number > 0.0 && number < 1.0 => {
                format!("{} µs", plain((number * 1000.0).round()))
            }
            Self::Milliseconds => format!("{} ms", plain(number)),
        }
    }
}

/// A plot of one number.
pub(super) fn line(line: &Line, samples: &[SampleView]) -> Markup {
    let Line {
        name,
        title,
        unit,
        least,
        of,
        marked,
    } = line;
    let most = samples.iter().filter_map(of).fold(0.0, f64::max);
    let top = nice(*least, most);
    let label = format!("{title}, last ten minutes: at most {}", unit.told(most));
    html! {
        figure.plot data-plot=(name) data-title=(title) data-unit=(unit.name()) data-least=(least) {
            figcaption {
                h2 { (title) }
                span.scale { "top: " span data-scale { (unit.told(top)) } }
            }
            svg role="img" aria-label=(label) viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" {
                @if let Some((is_marked, _)) = marked {
                    path.bar.marked data-marked d=(marks(samples, *is_marked)) {}
                }
                (grid())
                polyline.line points=(points(samples, *of, top)) {}
            }
            (minutes())
            @if let Some((_, meaning)) = marked {
                ul.legend { li { span.swatch.marked {} (meaning) } }
            }
        }
    }
}

fn grid() -> Markup {
    html! { path.grid d="M0 0.5H600M0 50H600M0 99.5H600" {} }
}

fn minutes() -> Markup {
    html! { div.minutes aria-hidden="true" { span { "10 min ago" } span { "5 min" } span { "now" } } }
}

/// The bars of one outcome, each on top of those before it.
fn bars(samples: &[SampleView], index: usize, top: f64) -> String {
    let mut path = String::new();
    for sample in samples {
        let count = |series: &Series| (series.count)(&sample.counts) as f64;
        let below: f64 = SERIES[..index].iter().map(count).sum();
        let height = count(&SERIES[index]) / top * HEIGHT;
        if height == 0.0 {
            continue;
        }
        let (x, y) = (left(sample), HEIGHT - below / top * HEIGHT - height);
        path += &format!("M{x:.0} {y:.1}h{BAR_SECONDS}v{height:.1}h-{BAR_SECONDS}z");
    }
    path
}

fn points(samples: &[SampleView], of: fn(&SampleView) -> Option<f64>, top: f64) -> String {
    let point = |sample: &SampleView| {
        let y = HEIGHT - of(sample)? / top * HEIGHT;
        Some(format!("{:.0},{y:.1}", left(sample) + SAMPLE_SECONDS))
    };
    let points: Vec<_> = samples.iter().filter_map(point).collect();
    points.join(" ")
}

fn marks(samples: &[SampleView], is_marked: fn(&SampleView) -> bool) -> String {
    let marked = samples.iter().filter(|it| is_marked(it));
    let mark = |it: &SampleView| {
        let x = left(it);
        format!("M{x:.0} 0h{SAMPLE_SECONDS}v{HEIGHT}h-{SAMPLE_SECONDS}z")
    };
    marked.map(mark).collect()
}

/// Where the span of a sample begins.
fn left(sample: &SampleView) -> f64 {
    WIDTH - sample.seconds_ago as f64 - SAMPLE_SECONDS
}

/// The next 1, 2 or 5 with zeros; at least `least`, which is a 1 with zeros.
fn nice(least: f64, most: f64) -> f64 {
    let mut top = least;
    for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
        if top >= most {
            break;
        }
        top *= factor;
    }
    top
}

/// A number with as many digits as it needs.
fn plain(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What the plot of requests shows, in words.
fn summary(samples: &[SampleView]) -> String {
    let total = |series: &Series| -> u64 {
        let counts = samples.iter().map(|it| (series.count)(&it.counts));
        counts.sum()
    };
    let parts: Vec<_> = SERIES
        .iter()
        .map(|series| format!("{} {}", total(series), series.label))
        .collect();
    format!("Requests of the last ten minutes: {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds_ago: u64, new: u64, replayed: u64) -> SampleView {
        let counts = TotalsView {
            new,
            replayed,
            ..TotalsView::default()
        };
        SampleView {
            seconds_ago,
            counts,
            hit_rate: counts.hit_rate(),
            upstream_failures: 0,
            upstreams_down: usize::from(replayed > 1),
            waiting: 3,
            store_ms: 0.5,
        }
    }

    #[test]
    fn bars_stand_on_those_below_and_what_did_not_happen_has_none() {
        let samples = [sample(5, 1, 1), sample(0, 0, 2)];

        assert_eq!(bars(&samples, 0, 2.0), "M590 50.0h4v50.0h-4z");
        assert_eq!(
            bars(&samples, 1, 2.0),
            "M590 0.0h4v50.0h-4zM595 0.0h4v100.0h-4z"
        );
        assert_eq!(bars(&samples, 4, 2.0), "");
    }

    #[test]
    fn a_scale_ends_at_a_round_number_above_the_most() {
        let tops = [0.0, 0.3, 1.0, 1.1, 2.1, 5.1, 99.0, 101.0].map(|most| nice(1.0, most));

        assert_eq!(tops, [1.0, 1.0, 1.0, 2.0, 5.0, 10.0, 100.0, 200.0]);
        let tops = [0.0, 0.004, 0.021, 0.3, 7.0].map(|most| nice(0.01, most));
        let told = tops.map(|top| Unit::Milliseconds.told(top));
        assert_eq!(told, ["10 µs", "10 µs", "50 µs", "500 µs", "10 ms"]);
    }

    #[test]
    fn what_was_not_measured_is_no_point_and_marks_are_as_high_as_the_plot() {
        let samples = [sample(10, 1, 1), sample(5, 0, 0), sample(0, 0, 2)];

        let rates = points(&samples, |it| it.hit_rate, 1.0);

        assert_eq!(rates, "590,50.0 600,0.0");
        let marks = marks(&samples, |it| it.upstreams_down > 0);
        assert_eq!(marks, "M595 0h5v100h-5z");
    }

    #[test]
    fn a_line_ends_at_its_last_sample() {
        let samples = [sample(7, 0, 0), sample(2, 0, 0)];

        let points = points(&samples, |it| Some(it.waiting as f64), 5.0);

        assert_eq!(points, "593,40.0 598,40.0");
    }
}
