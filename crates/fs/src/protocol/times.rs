//! Times as records have them: nanoseconds since 1970 in 64 bits, which wrap. They reach from
//! 1901-12-13, as those of ext4, to 2486.

/// The first second: -2^31.
const FIRST: i64 = i32::MIN as i64;
const BILLION: u64 = 1_000_000_000;
const FIRST_NS: i64 = FIRST * BILLION.cast_signed();

/// A time in a record; one that is out of reach becomes the nearest that is not, as utimensat(2)
/// has it.
#[must_use]
pub fn time_ns(seconds: i64, ns: u32) -> i64 {
    let since = i128::from(seconds) - i128::from(FIRST);
    let since = since * i128::from(BILLION) + i128::from(ns);
    let since = since.clamp(0, i128::from(u64::MAX));
    u64::try_from(since).unwrap_or(u64::MAX).wrapping_add(FIRST_NS.cast_unsigned()).cast_signed()
}

/// A record's time: seconds since 1970, and the nanoseconds that follow.
#[must_use]
pub fn seconds_of(time_ns: i64) -> (i64, u32) {
    let since = since_first(time_ns);
    let ns = u32::try_from(since % BILLION).unwrap_or_default();
    ((since / BILLION).cast_signed() + FIRST, ns)
}

/// Nanoseconds since the first time of all: those of later times are higher.
fn since_first(time_ns: i64) -> u64 {
    time_ns.wrapping_sub(FIRST_NS).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_ext4_are_kept() {
        let last_of_ext4 = (1 << 34) - 1 + FIRST;
        let times = [
            (0, 0),
            (-1, 999_999_999),
            (-2, 500_000_000),
            (FIRST, 0),
            (i64::MAX / BILLION.cast_signed() + 1, 1),
            (last_of_ext4, 999_999_999),
        ];
        for (seconds, ns) in times {
            assert_eq!(seconds_of(time_ns(seconds, ns)), (seconds, ns));
        }
        assert_eq!(time_ns(1, 5), 1_000_000_005, "what was stored before is what it was");
        assert_eq!(time_ns(-1, 999_999_999), -1);
    }

    #[test]
    fn what_is_out_of_reach_is_the_nearest() {
        assert_eq!(seconds_of(time_ns(i64::MIN, 7)), (FIRST, 0));
        let (last, _) = seconds_of(time_ns(i64::MAX, 999_999_999));
        assert_eq!(last, FIRST + (u64::MAX / BILLION).cast_signed());
        assert!(since_first(time_ns(i64::MAX, 0)) > since_first(time_ns(0, 0)));
    }
}
