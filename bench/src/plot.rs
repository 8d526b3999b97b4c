//! Figures as SVG: bars to compare, lines to see how something grows.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::failure::Failure;

const WIDTH: u32 = 900;
const BAR: u32 = 14;
const COLOURS: [RGBColor; 5] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0x94, 0x67, 0xbd),
];

/// A name, and a figure of each series where there is one.
pub(crate) type Bars = (String, Vec<Option<f64>>);
/// A name, and its points.
pub(crate) type Line = (String, Vec<(f64, f64)>);

type Drawn = Result<(), Box<dyn Error>>;

/// Horizontal bars on a logarithmic scale, the first at the top.
pub(crate) fn bars(
    path: &Path,
    title: &str,
    series: &[&str],
    groups: &[Bars],
) -> Result<(), Failure> {
    let figures = groups.iter().flat_map(|(_, figures)| figures).flatten();
    let Some((low, high)) = range(figures.copied()) else {
        return Ok(());
    };
    let thick = series.len() as u32 * BAR + 10;
    let height = groups.len() as u32 * thick + 90;
    let draw = || -> Drawn {
        let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let rows = groups.len() as f64;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(230)
            .build_cartesian_2d((low / 2.0..high * 1.5).log_scale(), 0.0..rows)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(0)
            .x_label_formatter(&f64::to_string)
            .label_style(("sans-serif", 12))
            .draw()?;
        let area = chart.plotting_area();
        for (row, (name, figures)) in groups.iter().enumerate() {
            let top = rows - row as f64;
            let step = 0.8 / series.len() as f64;
            for (at, figure) in figures.iter().enumerate() {
                let Some(figure) = figure else { continue };
                let upper = top - 0.1 - at as f64 * step;
                let corners = [(low / 2.0, upper), (*figure, upper - step * 0.9)];
                area.draw(&Rectangle::new(
                    corners,
                    COLOURS[at % COLOURS.len()].filled(),
                ))?;
            }
            let (_, y) = area.map_coordinate(&(low, top - 0.4));
            root.draw(&Text::new(name.as_str(), (10, y - 4), ("sans-serif", 13)))?;
        }
        for (at, name) in series.iter().enumerate() {
            let x = WIDTH as i32 - 160;
            let y = 12 + at as i32 * 15;
            let colour = COLOURS[at % COLOURS.len()];
            root.draw(&Rectangle::new([(x, y), (x + 12, y + 10)], colour.filled()))?;
            root.draw(&Text::new(*name, (x + 18, y), ("sans-serif", 12)))?;
        }
        root.present()?;
        Ok(())
    };
    draw().map_err(cannot(path))
}

/// Lines with their points, both axes logarithmic.
pub(crate) fn lines(
    path: &Path,
    title: &str,
    (x_name, y_name): (&str, &str),
    series: &[Line],
) -> Result<(), Failure> {
    let points = || series.iter().flat_map(|(_, points)| points);
    let (Some((left, right)), Some((low, high))) = (
        range(points().map(|(x, _)| *x)),
        range(points().map(|(_, y)| *y)),
    ) else {
        return Ok(());
    };
    let draw = || -> Drawn {
        let root = SVGBackend::new(path, (WIDTH, 420)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(80)
            .build_cartesian_2d(
                (left / 1.2..right * 1.2).log_scale(),
                (low / 1.5..high * 1.5).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc(x_name)
            .y_desc(y_name)
            .x_label_formatter(&f64::to_string)
            .y_label_formatter(&f64::to_string)
            .label_style(("sans-serif", 12))
            .draw()?;
        for (at, (name, points)) in series.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let line =
                LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3);
            chart
                .draw_series(line)?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .border_style(BLACK)
            .background_style(WHITE)
            .label_font(("sans-serif", 12))
            .draw()?;
        root.present()?;
        Ok(())
    };
    draw().map_err(cannot(path))
}

/// The least and the greatest of what a logarithmic scale can show.
fn range(figures: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    figures.filter(|it| *it > 0.0).fold(None, |range, it| {
        let (low, high) = range.unwrap_or((it, it));
        Some((low.min(it), high.max(it)))
    })
}

fn cannot(path: &Path) -> impl FnOnce(Box<dyn Error>) -> Failure {
    Failure::doing(format!("draw {}", path.display()))
}
