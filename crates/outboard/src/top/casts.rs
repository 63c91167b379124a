//! The casts that nodes take part in, as their reports have them.
//!
//! Only numbers are taken as they are; texts are shown without control characters.

use super::frame::per_second;
use crate::status::printable;
use serde_json::{Value, json};

/// Lines of casts, at most.
const LINES_MAX: usize = 64;

/// A cast at one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CastRow {
    pub(super) cast: String,
    destination: String,
    chunks: u64,
    held: u64,
    bytes_in: u64,
    bytes_out: u64,
    /// Bytes in a second, in and out.
    rates: Option<(f64, f64)>,
    from: Vec<String>,
    to: Vec<String>,
}

/// The casts in a node's answer.
pub(super) fn read(said: &Value) -> Vec<CastRow> {
    let services = said["services"].as_array().into_iter().flatten();
    let casts = services.filter(|service| service["name"] == "cast");
    casts.flat_map(|service| service["report"]["now"].as_array()).flatten().map(row).collect()
}

fn row(cast: &Value) -> CastRow {
    let number = |name: &str| cast[name].as_u64().unwrap_or(0);
    let text = |name: &str| printable(cast[name].as_str().unwrap_or("?"));
    let names = |name: &str| {
        let all = cast[name].as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(printable).collect()
    };
    CastRow {
        cast: text("cast"),
        destination: text("destination"),
        chunks: number("chunks"),
        held: number("held"),
        bytes_in: number("bytes_in"),
        bytes_out: number("bytes_out"),
        rates: None,
        from: names("from"),
        to: names("to"),
    }
}

impl CastRow {
    /// Computes rates against the look before, if the cast was there already.
    pub(super) fn compare(&mut self, before: &[Self], seconds: f64) {
        if let Some(then) = before.iter().find(|then| then.cast == self.cast) {
            self.rates = Some((
                per_second(self.bytes_in, then.bytes_in, seconds),
                per_second(self.bytes_out, then.bytes_out, seconds),
            ));
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let (rate_in, rate_out) = self.rates.unzip();
        json!({
            "cast": self.cast,
            "destination": self.destination,
            "chunks": self.chunks,
            "held": self.held,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "bytes_in_per_s": rate_in,
            "bytes_out_per_s": rate_out,
            "from": self.from,
            "to": self.to,
        })
    }

    fn line(&self, host: &str) -> String {
        let percent = (self.held * 100).checked_div(self.chunks).unwrap_or(0);
        let rate =
            |rate: Option<f64>| rate.map_or_else(|| "-".into(), |r| format!("{:.1}", r / 1e6));
        let (rate_in, rate_out) = self.rates.unzip();
        let line = format!(
            "{host:<22} {:<8} {percent:>4} % {:>8} {:>8}  {} -> {}",
            self.cast.chars().take(8).collect::<String>(),
            rate(rate_in),
            rate(rate_out),
            joined(&self.from),
            joined(&self.to),
        );
        line.trim_end().to_owned()
    }
}

fn joined(names: &[String]) -> String {
    if names.is_empty() { "-".into() } else { names.join(" ") }
}

/// The casts of all hosts as lines; none if there are no casts. By cast, so that the lines of one
/// show its tree.
pub(super) fn lines<'a>(casts: impl Iterator<Item = (&'a str, &'a CastRow)>) -> Vec<String> {
    let mut casts: Vec<_> = casts.collect();
    casts.sort_by(|(_, one), (_, other)| one.cast.cmp(&other.cast));
    let mut lines = Vec::new();
    let mut shown = None;
    for (host, cast) in casts.iter().take(LINES_MAX) {
        if shown != Some(&cast.cast) {
            shown = Some(&cast.cast);
            lines.push(format!("cast to {}, {} chunks", cast.destination, cast.chunks));
            lines.push(format!(
                "{:<22} {:<8} {:>6} {:>8} {:>8}  {}",
                "node", "cast", "held", "MB/s in", "MB/s out", "from which -> to which"
            ));
        }
        lines.push(cast.line(host));
    }
    if casts.len() > LINES_MAX {
        lines.push(format!("and {} more; --json has all", casts.len() - LINES_MAX));
    }
    if !lines.is_empty() {
        lines.push(String::new());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(held: u64, bytes_in: u64) -> Value {
        json!({ "services": [{ "name": "compile" }, { "name": "cast", "report": { "now": [{
            "cast": "0123456789abcdef", "destination": "/var/\u{1b}[2Jcast", "chunks": 8,
            "held": held, "bytes_in": bytes_in, "bytes_out": 0,
            "from": ["source", 7], "to": ["n2", "n3"],
        }] } }] })
    }

    #[test]
    fn a_cast_as_people_see_it() {
        let before = read(&said(2, 1_000_000));
        let mut now = read(&said(4, 5_000_000));
        now[0].compare(&before, 2.0);
        assert_eq!(
            lines(now.iter().map(|cast| ("n1:7410", cast))).join("\n"),
            "cast to /var/[2Jcast, 8 chunks\n\
             node                   cast       held  MB/s in MB/s out  from which -> to which\n\
             n1:7410                01234567   50 %      2.0      0.0  source -> n2 n3\n"
        );
        let json = now[0].to_json();
        assert_eq!((&json["held"], &json["bytes_in_per_s"]), (&json!(4), &json!(2_000_000.0)));
    }

    #[test]
    fn where_nothing_is_cast_there_are_no_lines() {
        for strange in [json!(null), json!({ "services": [{ "name": "cast", "report": 3 }] })] {
            assert_eq!(read(&strange), []);
        }
        assert!(lines(std::iter::empty()).is_empty());
    }
}
