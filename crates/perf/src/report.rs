//! The result of a test, for programs and for users.

use crate::measure::Timed;
use crate::plan::{Test, TestKind, TestOperation, TestPlan, Wait};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::successors;
use std::time::Duration;

/// Width of the longest bar of a drawn histogram.
const BAR_MAX: u64 = 50;
/// Latencies above this many medians are the tail.
const MEDIANS: u64 = 3;
/// Rows of a drawn histogram for most latencies, all of the same width.
const ROWS: u64 = 10;
/// Rows for the tail, each some times as wide as the one before.
const TAIL_ROWS: u32 = 5;

/// The figures of one test. Latencies are half a round trip in the ping-pongs (write-lat,
/// send-lat, write-imm-lat, tcp-lat) and the whole operation in all others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Which test.
    pub test: Test,
    /// Bytes of a message; none where connections are made.
    pub size: Option<usize>,
    /// Messages that the client started; in a ping-pong as many came back.
    pub iters: u64,
    /// Length of the timed part.
    pub seconds: f64,
    /// Queue pairs.
    pub qps: usize,
    /// Operations under way on each.
    pub depth: usize,
    /// How both sides waited.
    pub wait: Wait,
    /// Whether FPDUs carried CRCs; false for TCP.
    pub crc: bool,
    /// Half of the latencies are at most this, in microseconds; latency tests only.
    pub p50_us: Option<f64>,
    /// 99 in 100 are at most this.
    pub p99_us: Option<f64>,
    /// 999 in 1000 are at most this.
    pub p999_us: Option<f64>,
    /// Their mean.
    pub mean_us: Option<f64>,
    /// Their standard deviation.
    pub sd_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
    /// MiB of messages that the client moved in a second, in one direction; 0 without messages.
    pub mib_per_s: f64,
    /// Messages that the client started in a second.
    pub messages_per_s: f64,
    /// User and system time of both processes in the timed part, in seconds.
    pub cpu_s: f64,
    /// The client's part of that.
    pub cpu_client_s: f64,
    /// The server's part of that: everything that its process did in that time.
    pub cpu_server_s: f64,
    /// Latencies from short to long; empty unless this is a latency test. Equal buckets as far as
    /// most latencies go, then ever wider ones.
    pub histogram: Vec<Bucket>,
}

/// Latencies of one range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Its upper end, in microseconds; its lower end is that of the bucket before.
    pub up_to_us: f64,
    /// How many.
    pub count: u64,
}

impl Report {
    pub(crate) fn new(plan: &TestPlan, timed: &Timed, client: Duration, server: Duration) -> Self {
        let seconds = timed.elapsed.as_secs_f64();
        let latencies = timed.latencies.as_ref();
        let scale = scale(plan.test);
        let quantile = |q| latencies.map(|all| round(all.value_at_quantile(q) as f64 * scale));
        let size = (!plan.test.is_connect()).then_some(plan.size);
        let bytes = timed.messages as f64 * size.unwrap_or(0) as f64;
        Self {
            test: plan.test,
            size,
            iters: timed.messages,
            seconds,
            qps: plan.qps,
            depth: plan.depth,
            wait: plan.wait,
            crc: plan.crc
                && !matches!(plan.test.operation(), TestOperation::Tcp | TestOperation::TcpConnect),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            mean_us: latencies.map(|all| round(all.mean() * scale)),
            sd_us: latencies.map(|all| round(all.stdev() * scale)),
            max_us: latencies.map(|all| round(all.max() as f64 * scale)),
            mib_per_s: bytes / f64::from(1 << 20) / seconds,
            messages_per_s: timed.messages as f64 / seconds,
            cpu_s: (client + server).as_secs_f64(),
            cpu_client_s: client.as_secs_f64(),
            cpu_server_s: server.as_secs_f64(),
            histogram: latencies.map_or_else(Vec::new, |all| buckets(all, scale)),
        }
    }
}

/// Microseconds of latency in a nanosecond of a timed operation.
fn scale(test: Test) -> f64 {
    if test.is_ping_pong() { 0.0005 } else { 0.001 }
}

/// Whole nanoseconds: the clock has no more.
fn round(micros: f64) -> f64 {
    (micros * 1000.0).round() / 1000.0
}

/// The count between one edge and the next.
fn buckets(all: &Histogram<u64>, scale: f64) -> Vec<Bucket> {
    let mut start = 0;
    let bucket = |end| {
        let count = all.count_between(start, end);
        start = end + 1;
        Bucket { up_to_us: round(end as f64 * scale), count }
    };
    edges(all).into_iter().map(bucket).collect()
}

/// Upper ends of buckets, in nanoseconds: equal steps as far as most latencies go, then, for the
/// tail, the least power of two as a factor that reaches the longest in few steps.
fn edges(all: &Histogram<u64>) -> Vec<u64> {
    let usual = MEDIANS * all.value_at_quantile(0.5);
    let (low, high) = (all.min(), all.value_at_quantile(0.99).min(usual));
    let step = ((high - low) / ROWS).max(1);
    let mut edges: Vec<u64> = (1..=ROWS).map(|row| low + row * step).collect();
    let (end, longest) = (low + ROWS * step, all.max());
    let reaches = |factor: &u64| end.saturating_mul(factor.pow(TAIL_ROWS)) >= longest;
    let factor = (1..12).map(|power| 1 << power).find(reaches).unwrap_or(1 << 12);
    let wider = |edge: &u64| edge.checked_mul(factor);
    edges.extend(successors(end.checked_mul(factor), wider).take(TAIL_ROWS as usize));
    edges.retain(|edge| *edge < longest);
    // Up to what the histogram cannot tell from an edge, or values would count twice.
    let mut edges: Vec<u64> = edges.into_iter().map(|edge| all.highest_equivalent(edge)).collect();
    edges.push(longest);
    edges.dedup();
    edges
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<15} {:>9} {:>10} {:>9} {:>9} {:>10} {:>12} {:>7}",
            "test", "size", "iters", "p50 us", "p99 us", "MiB/s", "messages/s", "CPU s"
        )?;
        writeln!(
            f,
            "{:<15} {:>9} {:>10} {:>9} {:>9} {:>10} {:>12.0} {:>7.2}",
            self.test,
            self.size.map_or_else(dash, |size| size.to_string()),
            self.iters,
            micros(self.p50_us),
            micros(self.p99_us),
            self.size.map_or_else(dash, |_| format!("{:.1}", self.mib_per_s)),
            self.messages_per_s,
            self.cpu_s
        )?;
        if self.test.kind() == TestKind::Latency {
            self.draw(f)?;
        }
        Ok(())
    }
}

impl Report {
    /// The histogram as bars. The last has all that is longer, and says how long.
    fn draw(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.histogram.iter().map(|bucket| bucket.count).max();
        let most = most.unwrap_or(1).max(1);
        writeln!(f)?;
        let mut start = None;
        for (i, Bucket { up_to_us: end, count }) in self.histogram.iter().enumerate() {
            let bar = (count * BAR_MAX).div_ceil(most);
            let bar = "#".repeat(usize::try_from(bar).unwrap_or(0));
            let last = i + 1 == self.histogram.len();
            let row = match start.replace(end).filter(|_| last) {
                Some(start) => format!("above {start:>9.2} us {count:>9} {bar} up to {end:.2} us"),
                None => format!("<=    {end:>9.2} us {count:>9} {bar}"),
            };
            writeln!(f, "{}", row.trim_end())?;
        }
        Ok(())
    }
}

fn micros(value: Option<f64>) -> String {
    value.map_or_else(dash, |value| format!("{value:.2}"))
}

/// The text for a missing value.
fn dash() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::histogram;

    fn report(test: Test, latencies: &[u64]) -> Report {
        let mut all = histogram().unwrap();
        latencies.iter().for_each(|&nanos| all.saturating_record(nanos));
        let timed = Timed {
            messages: latencies.len() as u64,
            elapsed: Duration::from_secs(2),
            latencies: Some(all),
        };
        let (client, server) = (Duration::from_secs(1), Duration::from_secs(3));
        Report::new(&TestPlan::new(test), &timed, client, server)
    }

    #[test]
    fn ping_pongs_count_half_a_round_trip() {
        let whole = report(Test::ReadLat, &[20_000; 4]);
        let half = report(Test::WriteLat, &[20_000; 4]);
        assert!((whole.p50_us.unwrap() - 20.0).abs() < 0.1);
        assert!((half.p50_us.unwrap() - 10.0).abs() < 0.1);
        assert_eq!((half.messages_per_s, half.cpu_s), (2.0, 4.0));
        let spread = report(Test::TcpLat, &[10_000, 30_000]);
        assert!((spread.mean_us.unwrap() - 10.0).abs() < 0.1);
        assert!((spread.sd_us.unwrap() - 5.0).abs() < 0.1);
    }

    #[test]
    fn the_histogram_counts_everything_once() {
        for spread in [1, 7, 1000, 1_000_000_000] {
            let latencies: Vec<u64> = (1..500).map(|i| 5000 + i * i % 997 * spread).collect();
            let report = report(Test::TcpLat, &latencies);
            let counted: u64 = report.histogram.iter().map(|bucket| bucket.count).sum();
            assert_eq!(counted, 499);
            let rows = report.histogram.len();
            assert!(rows as u64 <= ROWS + u64::from(TAIL_ROWS), "{rows}");
            let ends: Vec<f64> = report.histogram.iter().map(|bucket| bucket.up_to_us).collect();
            assert!(ends.is_sorted_by(|a, b| a < b), "{ends:?}");
            assert_eq!(ends.last(), report.max_us.as_ref());
        }
    }

    #[test]
    fn the_tail_is_not_one_bar() {
        let usual = (0..1000).map(|i| 10_000 + i);
        let tail = [50_000, 500_000, 5_000_000, 50_000_000];
        let report = report(Test::ReadLat, &usual.chain(tail).collect::<Vec<u64>>());
        let counts: Vec<u64> = report.histogram.iter().map(|bucket| bucket.count).collect();
        assert!(counts[..10].iter().all(|count| (90..111).contains(count)), "{counts:?}");
        assert!(counts[10..].len() > 3 && counts[10..].iter().all(|count| *count < 12));
        let text = report.to_string();
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("above ") && last.contains(" up to 500"), "{text}");
    }

    #[test]
    fn connections_have_no_messages() {
        let report = report(Test::TcpConnectLat, &[9000; 5]);
        assert_eq!((report.size, report.mib_per_s), (None, 0.0));
        let text = report.to_string();
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!((row[1], row[5]), ("-", "-"), "{text}");
    }

    #[test]
    fn people_see_a_table_and_bars() {
        let text = report(Test::SendLat, &[9000, 9000, 12_000]).to_string();
        assert!(text.contains("p50 us") && text.contains("send-lat") && text.contains("##"));
        assert!(text.lines().all(|line| line.len() < 100));
    }
}
