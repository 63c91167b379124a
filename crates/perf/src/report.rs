//! What a test gave, for programs and for people.

use crate::measure::Timed;
use crate::plan::{Kind, Operation, Plan, Test, Wait};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Width of the longest bar of a drawn histogram.
const BAR_MAX: u64 = 50;
/// Latencies above this many medians share a row.
const MEDIANS: u64 = 3;
/// Rows of a drawn histogram.
const ROWS: usize = 12;

/// The figures of one test. Latencies are half a round trip in the ping-pongs (write-lat,
/// send-lat, write-imm-lat, tcp-lat) and the whole operation in all others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Which test.
    pub test: Test,
    /// Octets of a message.
    pub size: usize,
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
    /// MiB of messages that the client moved in a second, in one direction.
    pub mib_per_s: f64,
    /// Messages that the client started in a second.
    pub messages_per_s: f64,
    /// User and system time of both processes in the timed part, in seconds.
    pub cpu_s: f64,
    /// The client's part of that.
    pub cpu_client_s: f64,
    /// The server's part of that: all that its process did meanwhile.
    pub cpu_server_s: f64,
    /// Latencies from short to long; empty unless this is a latency test.
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
    pub(crate) fn new(plan: &Plan, timed: &Timed, client: Duration, server: Duration) -> Self {
        let seconds = timed.elapsed.as_secs_f64();
        let latencies = timed.latencies.as_ref();
        let scale = scale(plan.test);
        let quantile = |q| latencies.map(|all| round(all.value_at_quantile(q) as f64 * scale));
        let octets = timed.messages as f64 * plan.size as f64;
        Self {
            test: plan.test,
            size: plan.size,
            iters: timed.messages,
            seconds,
            qps: plan.qps,
            depth: plan.depth,
            wait: plan.wait,
            crc: plan.crc
                && !matches!(plan.test.operation(), Operation::Tcp | Operation::TcpConnect),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            mean_us: latencies.map(|all| round(all.mean() * scale)),
            sd_us: latencies.map(|all| round(all.stdev() * scale)),
            max_us: latencies.map(|all| round(all.max() as f64 * scale)),
            mib_per_s: octets / f64::from(1 << 20) / seconds,
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

/// Equal buckets as far as most latencies go, then one for the rest.
fn buckets(all: &Histogram<u64>, scale: f64) -> Vec<Bucket> {
    let usual = MEDIANS * all.value_at_quantile(0.5);
    let (low, high) = (all.min(), all.value_at_quantile(0.99).min(usual));
    let step = ((high - low) / (ROWS as u64 - 1)).max(1);
    let mut buckets: Vec<Bucket> = Vec::with_capacity(ROWS);
    let mut seen = 0;
    for value in all.iter_linear(step) {
        let (end, count) = (value.value_iterated_to(), value.count_since_last_iteration());
        if end < low {
            continue;
        }
        if end > high {
            break;
        }
        seen += count;
        let up_to_us = round(end as f64 * scale);
        buckets.push(Bucket { up_to_us, count });
    }
    let count = all.len() - seen;
    if count > 0 {
        let up_to_us = round(all.max() as f64 * scale);
        buckets.push(Bucket { up_to_us, count });
    }
    buckets
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<14} {:>9} {:>10} {:>9} {:>9} {:>10} {:>12} {:>7}",
            "test", "size", "iters", "p50 us", "p99 us", "MiB/s", "messages/s", "CPU s"
        )?;
        writeln!(
            f,
            "{:<14} {:>9} {:>10} {:>9} {:>9} {:>10.1} {:>12.0} {:>7.2}",
            self.test,
            self.size,
            self.iters,
            micros(self.p50_us),
            micros(self.p99_us),
            self.mib_per_s,
            self.messages_per_s,
            self.cpu_s
        )?;
        if self.test.kind() == Kind::Latency {
            self.draw(f)?;
        }
        Ok(())
    }
}

impl Report {
    /// The histogram as bars.
    fn draw(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.histogram.iter().map(|bucket| bucket.count).max();
        let most = most.unwrap_or(1).max(1);
        writeln!(f)?;
        for bucket in &self.histogram {
            let bar = (bucket.count * BAR_MAX).div_ceil(most);
            let bar = "#".repeat(usize::try_from(bar).unwrap_or(0));
            let (end, count) = (bucket.up_to_us, bucket.count);
            writeln!(f, "{}", format!("<= {end:>9.2} us {count:>9} {bar}").trim_end())?;
        }
        Ok(())
    }
}

fn micros(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
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
        Report::new(&Plan::new(test), &timed, client, server)
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
            assert!(report.histogram.len() <= ROWS + 2, "{}", report.histogram.len());
            let ends = report.histogram.iter().map(|bucket| bucket.up_to_us);
            assert!(ends.is_sorted());
        }
    }

    #[test]
    fn people_see_a_table_and_bars() {
        let text = report(Test::SendLat, &[9000, 9000, 12_000]).to_string();
        assert!(text.contains("p50 us") && text.contains("send-lat") && text.contains("##"));
        assert!(text.lines().all(|line| line.len() < 100));
    }
}
