//! A layout as SVG: devices as boxes side by side, offcodes in them, channels as curves.
//!
//! Never refers to anything outside the picture: no script, no font, no link.

use std::fmt::Write as _;

use super::{channel_cost, offcodes_on, percent, shown};
use crate::problem::{DeviceIndex, LayoutProblem};

const OFFCODE_WIDTH: usize = 200;
const OFFCODE_HEIGHT: usize = 36;
const GAP: usize = 24;
const BETWEEN: usize = 120;
const TITLE: usize = 30;

/// Draws a placement of a checked problem as a whole SVG file.
#[must_use]
pub fn draw_svg(problem: &LayoutProblem, placement: &[DeviceIndex]) -> String {
    let places = places(problem, placement);
    let rows = (0..problem.devices.len())
        .map(|device| offcodes_on(problem, placement, device).len())
        .max()
        .unwrap_or(0);
    let width = GAP + problem.devices.len() * (OFFCODE_WIDTH + 2 * GAP + BETWEEN);
    let height = 3 * GAP + TITLE + rows.max(1) * (OFFCODE_HEIGHT + GAP);
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">"
    );
    let _ = writeln!(svg, "<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>");
    for device in 0..problem.devices.len() {
        draw_device(&mut svg, problem, device, height);
    }
    for channel in 0..problem.channels.len() {
        draw_channel(&mut svg, problem, placement, &places, channel);
    }
    for (offcode, (x, y)) in places.iter().enumerate() {
        draw_offcode(&mut svg, &problem.offcodes[offcode].name, *x, *y);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The upper left corner of each offcode.
fn places(problem: &LayoutProblem, placement: &[DeviceIndex]) -> Vec<(usize, usize)> {
    let mut places = vec![(0, 0); placement.len()];
    for device in 0..problem.devices.len() {
        for (row, offcode) in offcodes_on(problem, placement, device).into_iter().enumerate() {
            let y = 2 * GAP + TITLE + row * (OFFCODE_HEIGHT + GAP);
            places[offcode] = (column(device) + GAP, y);
        }
    }
    places
}

fn column(device: usize) -> usize {
    GAP + device * (OFFCODE_WIDTH + 2 * GAP + BETWEEN)
}

fn draw_device(svg: &mut String, problem: &LayoutProblem, device: usize, height: usize) {
    let x = column(device);
    let (width, height) = (OFFCODE_WIDTH + 2 * GAP, height - 2 * GAP);
    let (name, kind) = (&problem.devices[device].name, &problem.devices[device].kind);
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{GAP}\" width=\"{width}\" height=\"{height}\" rx=\"6\" \
         fill=\"#f4f6f8\" stroke=\"#5b6b7b\"/>\n\
         <text x=\"{}\" y=\"{}\" font-weight=\"bold\">{} ({})</text>",
        x + 12,
        GAP + 22,
        escaped(name),
        escaped(kind)
    );
}

fn draw_offcode(svg: &mut String, name: &str, x: usize, y: usize) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{OFFCODE_WIDTH}\" height=\"{OFFCODE_HEIGHT}\" rx=\"4\" \
         fill=\"#ffffff\" stroke=\"#1f5fa8\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        x + OFFCODE_WIDTH / 2,
        y + OFFCODE_HEIGHT / 2 + 5,
        escaped(name)
    );
}

/// A curve from side to side; within a device it bows out to the right.
fn draw_channel(
    svg: &mut String,
    problem: &LayoutProblem,
    placement: &[DeviceIndex],
    places: &[(usize, usize)],
    index: usize,
) {
    let channel = &problem.channels[index];
    let (Some(a), Some(b)) = (places.get(channel.a.0), places.get(channel.b.0)) else { return };
    let (left, right) = if a.0 <= b.0 { (a, b) } else { (b, a) };
    let (x1, y1) = (left.0 + OFFCODE_WIDTH, left.1 + OFFCODE_HEIGHT / 2);
    let same = left.0 == right.0;
    let (x2, y2) = (if same { x1 } else { right.0 }, right.1 + OFFCODE_HEIGHT / 2);
    let bow = if same { x1 + GAP + BETWEEN / 2 } else { usize::midpoint(x1, x2) };
    let (label_x, label_y) =
        (usize::midpoint(usize::midpoint(x1, x2), bow), usize::midpoint(y1, y2));
    let _ = writeln!(
        svg,
        "<path d=\"M {x1} {y1} C {bow} {y1} {bow} {y2} {x2} {y2}\" fill=\"none\" \
         stroke=\"#b0562a\"/>\n\
         <text x=\"{label_x}\" y=\"{}\" font-size=\"10\" text-anchor=\"middle\" \
         fill=\"#7a3a1a\">{} {}</text>",
        label_y.saturating_sub(4),
        escaped(&channel.name),
        percent(channel_cost(problem, placement, index))
    );
}

/// A name as the text of an element.
fn escaped(name: &str) -> String {
    let mut escaped = String::new();
    for letter in shown(name).chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            // XML has no such characters, not even escaped.
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
