//! The stop `rdma`: latency and bandwidth of RDMA Writes, and of a TCP socket in the same harness.

use super::{Guide, Trouble};
use crate::perf::local::LocalServer;
use outboard_perf::{Goal, Plan, Report, Test, run};
use serde_json::{Value, json};
use std::time::Duration;

const TESTS: [Test; 4] = [Test::WriteLat, Test::TcpLat, Test::WriteBw, Test::TcpBw];
const SECOND: Duration = Duration::from_secs(1);

pub(super) fn show(guide: &Guide) -> Result<Value, Trouble> {
    let server = LocalServer::start().map_err(Trouble::Failed)?;
    guide.say("   Both sides spin while they wait; RDMA has CRCs on; neither is encrypted here.");
    let mut reports = Vec::new();
    for test in TESTS {
        guide.goes_on()?;
        guide.whisper(&format!("   {test} ..."));
        let report = run(server.address, &Plan::new(test), Goal::Time(SECOND), &guide.progress);
        guide.whisper("");
        reports.push(report.map_err(|error| Trouble::failed(test.name(), error))?);
    }
    let [write_lat, tcp_lat, write_bw, tcp_bw] = &reports[..] else {
        return Err(Trouble::Failed("a test is missing".into()));
    };
    guide.say(&format!("   {:<12} {:>12} {:>12} {:>14}", "", "8 octets", "99 in 100", "64 KiB"));
    guide.say(&row("RDMA Write", write_lat, write_bw));
    guide.say(&row("TCP socket", tcp_lat, tcp_bw));
    guide.say("   More: outboard perf write-lat, outboard perf tcp-lat, docs/perf.md");
    Ok(figures(&reports))
}

fn row(name: &str, latency: &Report, bandwidth: &Report) -> String {
    let (p50, p99) = (latency.p50_us.unwrap_or(0.0), latency.p99_us.unwrap_or(0.0));
    format!("   {name:<12} {p50:>9.2} us {p99:>9.2} us {:>8.0} MiB/s", bandwidth.mib_per_s)
}

/// Without the histograms.
fn figures(reports: &[Report]) -> Value {
    let tests = reports.iter().map(|report| {
        let figures = json!({
            "p50_us": report.p50_us,
            "p99_us": report.p99_us,
            "mib_per_s": report.mib_per_s,
            "messages": report.iters,
            "size": report.size,
        });
        (report.test.name().to_owned(), figures)
    });
    Value::Object(tests.collect())
}
