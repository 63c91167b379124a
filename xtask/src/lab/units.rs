//! Durations and rates as a command line has them. Parses, and nothing else.

use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A duration such as `100us`, `1ms` or `0.5s`; at most a minute.
///
/// # Errors
/// When it has no unit, or is no duration.
pub fn duration(text: &str) -> Result<Duration> {
    let scales = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let seconds = scaled(text, &scales)?;
    if seconds > 60.0 {
        bail!("{text} is more than a minute");
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Bits per second such as `1gbit` or `100mbit`.
///
/// # Errors
/// When it has no unit, or is no rate.
pub fn bits(text: &str) -> Result<u64> {
    let rate = scaled(text, &[("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)])?;
    if !(1e3..=1e12).contains(&rate) {
        bail!("{text} is not between 1kbit and 1000gbit");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    Ok(rate as u64)
}

/// A number with one of some units.
fn scaled(text: &str, scales: &[(&str, f64)]) -> Result<f64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let names = || scales.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let scale = scales.iter().find(|(name, _)| *name == unit);
    let (_, scale) = scale.with_context(|| format!("{text} has none of the units {}", names()))?;
    let number: f64 = number.parse().with_context(|| format!("{text} has no number"))?;
    Ok(number * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("100us").unwrap(), Duration::from_micros(100));
        assert_eq!(duration("0.5ms").unwrap(), Duration::from_micros(500));
        for wrong in ["100", "us", "1m", "-1ms", "61s", "1.2.3s", ""] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_have_units() {
        assert_eq!(bits("1gbit").unwrap(), 1_000_000_000);
        assert_eq!(bits("2.5mbit").unwrap(), 2_500_000);
        for wrong in ["1", "0gbit", "1gb", "9999gbit"] {
            assert!(bits(wrong).is_err(), "{wrong}");
        }
    }
}
