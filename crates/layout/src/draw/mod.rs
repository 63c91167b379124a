//! Layouts drawn for people.
//!
//! Never trusts a name: what could end a line, an element or a terminal's mode is escaped.

mod svg;
mod text;

pub use svg::draw_svg;
pub use text::draw_text;

use crate::problem::{DeviceIndex, LayoutProblem};

/// The offcodes on a device, in the order of their names.
fn offcodes_on(problem: &LayoutProblem, placement: &[DeviceIndex], device: usize) -> Vec<usize> {
    let mut there: Vec<usize> =
        (0..placement.len()).filter(|offcode| placement[*offcode].0 == device).collect();
    there.sort_by_key(|offcode| &problem.offcodes[*offcode].name);
    there
}

/// What a channel costs in this layout, in ns each second.
fn channel_cost(problem: &LayoutProblem, placement: &[DeviceIndex], channel: usize) -> u64 {
    let channel = &problem.channels[channel];
    let at = |offcode: usize| placement.get(offcode).map_or(0, |device| device.0);
    let row = channel.cost_ns_per_s.get(at(channel.a.0));
    row.and_then(|row| row.get(at(channel.b.0))).copied().unwrap_or(0)
}

/// A share of a processor, of ns each second.
fn percent(cost_ns_per_s: u64) -> String {
    let hundredths = cost_ns_per_s / 100_000;
    format!("{}.{:02} % CPU", hundredths / 100, hundredths % 100)
}

/// A name as it may be shown: what is not printable is escaped, what is long is cut.
fn shown(name: &str) -> String {
    let mut shown = String::new();
    for (index, letter) in name.chars().enumerate() {
        if index == NAME_LETTERS {
            shown.push('…');
            break;
        }
        if letter.is_control() || is_invisible(letter) {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Letters of a name at most.
const NAME_LETTERS: usize = 40;

/// Marks that turn the direction of what follows, or show nothing.
fn is_invisible(letter: char) -> bool {
    let marks = ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    letter == '\u{feff}' || marks.iter().any(|range| range.contains(&letter))
}
