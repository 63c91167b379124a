//! A layout as text: a box for each device, a line for each channel.
//!
//! Never wider than the longest name needs.

use std::fmt::Write as _;

use super::{channel_cost, offcodes_on, percent, shown};
use crate::problem::{DeviceIndex, LayoutProblem};

/// Draws a placement of a checked problem as text.
#[must_use]
pub fn draw_text(problem: &LayoutProblem, placement: &[DeviceIndex]) -> String {
    let mut text = String::new();
    for (index, device) in problem.devices.iter().enumerate() {
        let there = offcodes_on(problem, placement, index);
        let title = format!("{} ({})", shown(&device.name), shown(&device.kind));
        let names = there.iter().map(|one| shown(&problem.offcodes[*one].name)).collect();
        draw_box(&mut text, &title, names);
    }
    for index in 0..problem.channels.len() {
        draw_channel(&mut text, problem, placement, index);
    }
    text
}

fn draw_box(text: &mut String, title: &str, names: Vec<String>) {
    let names = if names.is_empty() { vec!["-".to_owned()] } else { names };
    let widths = names.iter().map(|name| name.chars().count());
    let width = widths.max().unwrap_or(0).max(title.chars().count()) + 1;
    let rest = "─".repeat(width - title.chars().count());
    // Writing to a string cannot fail.
    let _ = writeln!(text, "┌ {title} {rest}┐");
    for name in names {
        let rest = " ".repeat(width - name.chars().count());
        let _ = writeln!(text, "│ {name}{rest} │");
    }
    let _ = writeln!(text, "└{}┘", "─".repeat(width + 2));
}

fn draw_channel(
    text: &mut String,
    problem: &LayoutProblem,
    placement: &[DeviceIndex],
    index: usize,
) {
    let channel = &problem.channels[index];
    let [a, b] = [channel.a.0, channel.b.0];
    let same = placement.get(a) == placement.get(b);
    let line = if same { "───" } else { "═══" };
    let name = |offcode: usize| shown(&problem.offcodes[offcode].name);
    let cost = percent(channel_cost(problem, placement, index));
    let label = shown(&channel.name);
    let _ = writeln!(text, "{} {line} {label}: {cost} {line} {}", name(a), name(b));
}
