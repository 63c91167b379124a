//! Text from offcodes on a terminal.

/// Without control characters, which could do anything to a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { '\u{fffd}' } else { one }).collect()
}
