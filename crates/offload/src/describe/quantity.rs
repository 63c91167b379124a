//! Sizes and times as people write them in descriptions: `64K`, `1MiB`, `500ms`.
//!
//! Never rounds: a number that does not fit is refused.

use std::time::Duration;

/// Units of sizes and the bytes of each.
const SIZES: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
];

/// Units of times and the nanoseconds of each.
const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("µs", 1_000),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Bytes, from text such as `4096`, `64K`, `1MiB` (powers of 1,024) or `100MB` (of 1,000).
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    product(text, SIZES)
}

/// A time, from text such as `500ms`, `10s` or `2min`; the unit must be there.
#[must_use]
pub fn parse_time(text: &str) -> Option<Duration> {
    product(text, TIMES).map(Duration::from_nanos)
}

/// A time as [`parse_time`] reads it, in the largest unit that it is a multiple of.
#[must_use]
pub fn format_time(time: Duration) -> String {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let whole = TIMES.iter().rev().find(|(_, unit)| ns.is_multiple_of(*unit) && ns > 0);
    let (unit, each) = whole.unwrap_or(&("s", 1_000_000_000));
    format!("{}{unit}", ns / each)
}

/// A whole number and a unit of the table, multiplied.
fn product(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, each) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        let table = [
            ("4096", Some(4096)),
            ("64K", Some(65_536)),
            ("64KiB", Some(65_536)),
            ("1 MiB", Some(1 << 20)),
            ("100MB", Some(100_000_000)),
            ("2G", Some(2 << 30)),
            ("", None),
            ("K", None),
            ("1.5M", None),
            ("-1", None),
            ("1X", None),
            ("99999999999G", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        let table = [
            ("500ms", Some(Duration::from_millis(500))),
            ("10s", Some(Duration::from_secs(10))),
            ("2 min", Some(Duration::from_secs(120))),
            ("7us", Some(Duration::from_micros(7))),
            ("10", None),
            ("s", None),
            ("10 parsecs", None),
            ("99999999999999h", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_time(text), expected, "{text}");
        }
    }

    #[test]
    fn times_are_written_as_they_are_read() {
        for text in ["500ms", "10s", "2min", "1h", "7us", "90s", "0s"] {
            let time = parse_time(text).expect("a time");
            assert_eq!(format_time(time), text);
        }
    }
}
