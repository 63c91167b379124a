//! Numbers of find's arguments: how many, how large, how long ago.

use super::program::{FindTest, NumberComparison, NumberField, TimeField};

const SECOND: i64 = 1_000_000_000;
/// Nanoseconds of a day.
const DAY: i64 = 86_400_000_000_000;
const MINUTE: i64 = 60_000_000_000;

/// `+n` is more, `-n` less.
fn compared(word: &str) -> (NumberComparison, &str) {
    match word.split_at_checked(1) {
        Some(("+", rest)) => (NumberComparison::More, rest),
        Some(("-", rest)) => (NumberComparison::Less, rest),
        _ => (NumberComparison::Equal, word),
    }
}

fn number(word: &str) -> Option<u64> {
    let is_plain = word.starts_with(|c: char| c.is_ascii_digit());
    word.parse().ok().filter(|_| is_plain)
}

/// A number of something, compared.
pub(super) fn count(field: NumberField, word: &str) -> Option<FindTest> {
    let (how, word) = compared(word);
    Some(FindTest::Number { field, how, unit: 1, number: number(word)? })
}

/// A size in units; one that has begun counts.
pub(super) fn size(word: &str) -> Option<FindTest> {
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
    Some(FindTest::Number { field: NumberField::Size, how, unit, number: number(digits)? })
}

/// A time so many days ago. Of less than n days find takes a second less.
pub(super) fn days(field: TimeField, word: &str, now_ns: i64) -> Option<FindTest> {
    let origin = match compared(word).0 {
        NumberComparison::Less => now_ns.checked_sub(SECOND)?,
        _ => now_ns.checked_sub(DAY)?,
    };
    ago(field, word, origin, DAY)
}

/// A time so many minutes ago.
pub(super) fn minutes(field: TimeField, word: &str, now_ns: i64) -> Option<FindTest> {
    ago(field, word, now_ns, MINUTE)
}

fn ago(field: TimeField, word: &str, origin: i64, unit: i64) -> Option<FindTest> {
    let (how, word) = compared(word);
    let time = origin.checked_sub(nanoseconds(word, unit)?)?;
    Some(match how {
        NumberComparison::More => FindTest::Time { field, from: i64::MIN, to: time - 1 },
        NumberComparison::Less => FindTest::Time { field, from: time, to: i64::MAX },
        NumberComparison::Equal => {
            FindTest::Time { field, from: time, to: time.checked_add(unit)? }
        }
    })
}

/// A decimal number of units; what is less than a nanosecond is left out.
fn nanoseconds(word: &str, unit: i64) -> Option<i64> {
    let (whole, part) = word.split_once('.').unwrap_or((word, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if word.is_empty() || word == "." || !is_number(whole) || !is_number(part) {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    whole.checked_mul(unit)?.checked_add(fraction(part, unit))
}

/// A unit's part by decimal digits.
fn fraction(digits: &str, unit: i64) -> i64 {
    let mut sum = 0_i128;
    let mut scale = 1_i128;
    for digit in digits.bytes().take(18) {
        sum = sum * 10 + i128::from(digit - b'0');
        scale *= 10;
    }
    i64::try_from(sum * i128::from(unit) / scale).unwrap_or_default()
}

/// Later than another time.
pub(super) fn later(field: TimeField, than_ns: i64) -> FindTest {
    FindTest::Time { field, from: than_ns, to: i64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_units() {
        let of = |how, unit, number| {
            Some(FindTest::Number { field: NumberField::Size, how, unit, number })
        };
        assert_eq!(size("3"), of(NumberComparison::Equal, 512, 3));
        assert_eq!(size("+10k"), of(NumberComparison::More, 1024, 10));
        assert_eq!(size("-1M"), of(NumberComparison::Less, 1 << 20, 1));
        for wrong in ["", "k", "+", "1x", "--1", "1kk"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_ago() {
        let of = |from, to| Some(FindTest::Time { field: TimeField::Bytes, from, to });
        let now = 10 * DAY;
        assert_eq!(days(TimeField::Bytes, "2", now), of(7 * DAY, 8 * DAY));
        assert_eq!(days(TimeField::Bytes, "+2", now), of(i64::MIN, 7 * DAY - 1));
        assert_eq!(days(TimeField::Bytes, "-2", now), of(8 * DAY - 1_000_000_000, i64::MAX));
        assert_eq!(minutes(TimeField::Bytes, "-1.5", now), of(now - 3 * MINUTE / 2, i64::MAX));
        assert_eq!(minutes(TimeField::Bytes, "1x", now), None);
    }
}
