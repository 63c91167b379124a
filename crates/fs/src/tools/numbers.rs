//! Numbers of find's arguments: how many, how large, how long ago.

use super::program::{Comparison, NumberField, Test, TimeField};

const SECOND: f64 = 1e9;
/// Nanoseconds of a day.
const DAY: i64 = 86_400_000_000_000;
const MINUTE: i64 = 60_000_000_000;

/// `+n` is more, `-n` less.
fn compared(word: &str) -> (Comparison, &str) {
    match word.split_at_checked(1) {
        Some(("+", rest)) => (Comparison::More, rest),
        Some(("-", rest)) => (Comparison::Less, rest),
        _ => (Comparison::Equal, word),
    }
}

fn number(word: &str) -> Option<u64> {
    let is_plain = word.starts_with(|c: char| c.is_ascii_digit());
    word.parse().ok().filter(|_| is_plain)
}

/// A number of something, compared.
pub(super) fn count(field: NumberField, word: &str) -> Option<Test> {
    let (how, word) = compared(word);
    Some(Test::Number { field, how, unit: 1, number: number(word)? })
}

/// A size in units; one that has begun counts.
pub(super) fn size(word: &str) -> Option<Test> {
    let (how, word) = compared(word);
    let (digits, unit) = match word.strip_suffix(|c: char| c.is_ascii_alphabetic()) {
        None => (word, 512),
        Some(digits) => {
            let unit = match word.as_bytes().last()? {
                b'c' => 1,
                b'w' => 2,
                b'b' => 512,
                b'k' => 1 << 10,
                b'M' => 1 << 20,
                b'G' => 1 << 30,
                _ => return None,
            };
            (digits, unit)
        }
    };
    Some(Test::Number { field: NumberField::Size, how, unit, number: number(digits)? })
}

/// A time so many days ago. Of less than n days find takes a second less.
pub(super) fn days(field: TimeField, word: &str, now_ns: i64) -> Option<Test> {
    let origin = match compared(word).0 {
        Comparison::Less => now_ns.checked_sub(SECOND as i64)?,
        _ => now_ns.checked_sub(DAY)?,
    };
    ago(field, word, origin, DAY)
}

/// A time so many minutes ago.
pub(super) fn minutes(field: TimeField, word: &str, now_ns: i64) -> Option<Test> {
    ago(field, word, now_ns, MINUTE)
}

fn ago(field: TimeField, word: &str, origin: i64, unit: i64) -> Option<Test> {
    let (how, word) = compared(word);
    let is_number = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let units: f64 = word.parse().ok().filter(|_| is_number)?;
    let (whole, part) = (units.trunc(), units.fract());
    // Whole units exactly; of a part, as much as a float has.
    let whole = (whole as i64).checked_mul(unit)?;
    let time = origin.checked_sub(whole)?.checked_sub((part * unit as f64) as i64)?;
    Some(match how {
        Comparison::More => Test::Time { field, from: i64::MIN, to: time - 1 },
        Comparison::Less => Test::Time { field, from: time, to: i64::MAX },
        Comparison::Equal => Test::Time { field, from: time, to: time.checked_add(unit)? },
    })
}

/// Later than another time.
pub(super) fn later(field: TimeField, than_ns: i64) -> Test {
    Test::Time { field, from: than_ns, to: i64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_units() {
        let of =
            |how, unit, number| Some(Test::Number { field: NumberField::Size, how, unit, number });
        assert_eq!(size("3"), of(Comparison::Equal, 512, 3));
        assert_eq!(size("+10k"), of(Comparison::More, 1024, 10));
        assert_eq!(size("-1M"), of(Comparison::Less, 1 << 20, 1));
        for wrong in ["", "k", "+", "1x", "--1", "1kk"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_ago() {
        let of = |from, to| Some(Test::Time { field: TimeField::Bytes, from, to });
        let now = 10 * DAY;
        assert_eq!(days(TimeField::Bytes, "2", now), of(7 * DAY, 8 * DAY));
        assert_eq!(days(TimeField::Bytes, "+2", now), of(i64::MIN, 7 * DAY - 1));
        assert_eq!(days(TimeField::Bytes, "-2", now), of(8 * DAY - 1_000_000_000, i64::MAX));
        assert_eq!(minutes(TimeField::Bytes, "-1.5", now), of(now - 3 * MINUTE / 2, i64::MAX));
        assert_eq!(minutes(TimeField::Bytes, "1x", now), None);
    }
}
