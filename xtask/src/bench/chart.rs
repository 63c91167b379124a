//! Drawing a report as SVG: panels below each other, a line for each contender.
//!
//! The vertical axis becomes logarithmic when the medians span more than `LINEAR_SPAN`; then
//! the logarithm is drawn and the labels give the value.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::measure::Summary;
use super::report::{Panel, Report, figure};

/// Largest ratio of two medians that a linear axis shows well.
const LINEAR_SPAN: f64 = 30.0;
/// Pixels.
const WIDTH: u32 = 760;
const PANEL_HEIGHT: u32 = 320;
/// Horizontal offset between contenders at a point, so that none hides another.
const APART: f64 = 0.03;
/// Colours, Outboard's first, which the colour-blind can distinguish as well (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];

/// The report as the text of an SVG file.
///
/// # Errors
/// When the drawing library refuses, which no report should cause.
pub fn draw(report: &Report) -> Result<String> {
    let panels = report.panels.len().max(1);
    let mut svg = String::new();
    {
        let height = PANEL_HEIGHT * u32::try_from(panels)?;
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
        for (panel, area) in report.panels.iter().zip(area.split_evenly((panels, 1))) {
            draw_panel(panel, &area).map_err(|error| anyhow!("{}: {error}", panel.title))?;
        }
        area.present().map_err(|error| anyhow!("{error}"))?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw_panel(panel: &Panel, area: &Area<'_>) -> Drawn {
    let scale = Scale::of(panel);
    let right = f64::from(u32::try_from(panel.points.len())?) - 0.5;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{} ({})", panel.title, panel.unit), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(-0.5..right, scale.low..scale.high)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(panel.points.len() * 2 + 1)
        .x_label_formatter(&|place| point_label(panel, *place))
        .y_label_formatter(&|place| figure(scale.value(*place)))
        .x_desc(&panel.axis)
        .draw()?;
    let mut aside = -APART * f64::from(u32::try_from(panel.series.len())?) / 2.0;
    for (series, colour) in panel.series.iter().zip(COLOURS.iter().cycle()) {
        aside += APART;
        let summaries = (0..panel.points.len()).filter_map(|point| {
            Some((f64::from(u32::try_from(point).ok()?) + aside, series.summary(point)?))
        });
        let summaries: Vec<(f64, Summary)> = summaries.collect();
        let middle = summaries.iter().map(|(x, summary)| (*x, scale.place(summary.median)));
        chart
            .draw_series(LineSeries::new(middle, colour.stroke_width(2)).point_size(3))?
            .label(&series.name)
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        chart.draw_series(summaries.iter().map(|(x, summary)| {
            let ends = [(*x, scale.place(summary.least)), (*x, scale.place(summary.most))];
            PathElement::new(ends, colour.stroke_width(1))
        }))?;
    }
    let labels = &mut chart.configure_series_labels();
    labels.background_style(WHITE.mix(0.8)).position(SeriesLabelPosition::UpperLeft).draw()?;
    Ok(())
}

/// The name of the point at exactly `place`; empty between points.
fn point_label(panel: &Panel, place: f64) -> String {
    let at = |index: usize| u32::try_from(index).is_ok_and(|x| (f64::from(x) - place).abs() < 0.01);
    let found = panel.points.iter().enumerate().find(|(index, _)| at(*index));
    found.map(|(_, name)| name.clone()).unwrap_or_default()
}

/// The vertical axis.
struct Scale {
    logarithmic: bool,
    low: f64,
    high: f64,
}

impl Scale {
    fn of(panel: &Panel) -> Self {
        let points = 0..panel.points.len();
        let all = panel
            .series
            .iter()
            .flat_map(|series| points.clone().filter_map(|point| series.summary(point)));
        let (least, most) = all.fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), summary| {
            (least.min(summary.least), most.max(summary.most))
        });
        let logarithmic = least > 0.0 && most / least > LINEAR_SPAN;
        if logarithmic {
            return Self { logarithmic, low: least.log10().floor(), high: most.log10() + 0.3 };
        }
        Self { logarithmic, low: 0.0, high: most * 1.2 }
    }

    fn place(&self, value: f64) -> f64 {
        if self.logarithmic { value.log10() } else { value }
    }

    fn value(&self, place: f64) -> f64 {
        if self.logarithmic { 10_f64.powf(place) } else { place }
    }
}
