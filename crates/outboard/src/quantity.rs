//! Numbers of bytes, of bytes a second, and of seconds, as people write them.

use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

/// Suffixes of sizes: each letter by 1,024 alone or before `iB`, by 1,000 before `B`.
const LETTERS: &str = "KMGT";

/// A number of bytes: `65536`, `64K`, `1M`, `2GiB`, `100MB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteCount(pub(crate) u64);

/// Bytes in a second: a [`ByteCount`], or bits such as `100Mbit` and `10Gbit`; `/s` may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRate(pub(crate) NonZeroU64);

/// A time of more than nothing, in seconds: `60`, `0.5`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| *time > Duration::ZERO)
        .ok_or_else(|| "write seconds, more than 0, such as 60 or 0.5".to_owned())
}

/// A number and what follows it.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

/// What a letter multiplies by, in powers of `base`.
fn factor(letter: &str, base: u64) -> Option<u64> {
    let upper = letter.to_ascii_uppercase();
    let power = LETTERS.find(&upper).filter(|_| upper.len() == 1)?;
    base.checked_pow(u32::try_from(power).ok()? + 1)
}

/// What a size's suffix multiplies by.
fn unit(suffix: &str) -> Option<u64> {
    let (letter, rest) = suffix.split_at_checked(1)?;
    match rest {
        "" | "iB" | "ib" => factor(letter, 1024),
        "B" | "b" => factor(letter, 1000),
        _ => None,
    }
}

impl FromStr for ByteCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = split(text).and_then(|(number, suffix)| match suffix {
            "" | "B" => Some(number),
            suffix => number.checked_mul(unit(suffix)?),
        });
        bytes.map(Self).ok_or_else(|| {
            "write a number of bytes such as 65536, 64K, 1M or 2G (powers of 1,024), or 100MB \
             (of 1,000)"
                .to_owned()
        })
    }
}

impl FromStr for ByteRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.strip_suffix("/s").unwrap_or(text);
        let bits = split(text).and_then(|(number, suffix)| {
            let letter = suffix.strip_suffix("bit")?;
            number.checked_mul(factor(letter, 1000)?)
        });
        let bytes = match bits {
            Some(bits) => Some(bits / 8),
            None => text.parse::<ByteCount>().ok().map(|count| count.0),
        };
        bytes.and_then(NonZeroU64::new).map(Self).ok_or_else(|| {
            "write bytes a second, such as 50M or 125MB, or bits, such as 100Mbit or 10Gbit"
                .to_owned()
        })
    }
}

/// Bytes for people, by powers of 1,000.
#[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
pub(crate) fn shown(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// Bytes a second over some time; 0 for no time.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn per_second(bytes: u64, seconds: f64) -> u64 {
    if seconds > 0.0 { (bytes as f64 / seconds) as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        let table = [
            ("65536", Some(65_536)),
            ("7B", Some(7)),
            ("64k", Some(64 << 10)),
            ("1M", Some(1 << 20)),
            ("2GiB", Some(2 << 30)),
            ("100MB", Some(100_000_000)),
            ("3 T", Some(3 << 40)),
            ("", None),
            ("M", None),
            ("1.5M", None),
            ("-1", None),
            ("1X", None),
            ("1MM", None),
            ("1é", None),
            ("99999999T", None),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<ByteCount>().ok().map(|count| count.0), expected, "{text}");
        }
    }

    #[test]
    fn rates_are_in_bytes_or_in_bits() {
        let table = [
            ("100Mbit", Some(12_500_000)),
            ("10Gbit/s", Some(1_250_000_000)),
            ("50M", Some(50 << 20)),
            ("125MB/s", Some(125_000_000)),
            ("0", None),
            ("1bit", None),
            ("fast", None),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<ByteRate>().ok().map(|rate| rate.0.get()), expected, "{text}");
        }
    }

    #[test]
    fn times_are_more_than_nothing() {
        assert_eq!(seconds("60"), Ok(Duration::from_secs(60)));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for text in ["0", "-1", "NaN", "inf", "1e300", "1s", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_for_people() {
        assert_eq!([shown(999), shown(1_500)], ["999 B", "1.5 KB"]);
        assert_eq!([shown(2_500_000), shown(20 << 30)], ["2.5 MB", "21.47 GB"]);
        assert_eq!((per_second(100, 0.5), per_second(100, 0.0)), (200, 0));
    }
}
