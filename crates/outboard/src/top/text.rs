//! A frame as lines of text: the sums first, then a line for each server, the casts, and
//! this user's builds.

use super::casts;
use super::frame::{Compiles, Frame, ServerRow};
use crate::status::without_host;

pub(super) fn lines(frame: &Frame) -> Vec<String> {
    let sum = |number: fn(&Compiles) -> u64| frame.working().map(number).sum::<u64>();
    let (slots, busy) = (sum(|compiles| compiles.slots), sum(Compiles::busy));
    let mut lines = vec![
        format!(
            "servers {} of {}   slots {slots}   jobs now {busy}   jobs/s {}",
            frame.working().count(),
            frame.servers.len(),
            rate(frame.rate()),
        ),
        String::new(),
        format!(
            "{:<22} {:>5} {:>5} {:>8} {:>7}  {}",
            "server", "slots", "now", "done", "jobs/s", "clients: what they compile"
        ),
    ];
    lines.extend(frame.servers.iter().map(row));
    lines.push(String::new());
    lines.extend(casts::lines(frame.casts()));
    lines.extend(builds(frame));
    lines
}

fn row(server: &ServerRow) -> String {
    match &server.compiles {
        Err(why) => format!("{:<22} {}", server.host, without_host(&server.host, why)),
        Ok(compiles) => {
            let jobs = |(name, jobs): &(String, Vec<String>)| match jobs.len() {
                0 => name.clone(),
                _ => format!("{name}: {}", jobs.join(" ")),
            };
            let clients: Vec<String> = compiles.clients.iter().map(jobs).collect();
            let line = format!(
                "{:<22} {:>5} {:>5} {:>8} {:>7}  {}",
                server.host,
                compiles.slots,
                compiles.busy(),
                compiles.done,
                rate(compiles.rate),
                clients.join("; "),
            );
            line.trim_end().to_owned()
        }
    }
}

fn builds(frame: &Frame) -> [String; 2] {
    let counters = &frame.counters;
    let (out, back) = frame.bytes_rate.unzip();
    [
        format!(
            "your builds: {} jobs now, on servers, locally or waiting; so far {} on servers, {} \
             locally",
            frame.calls, counters.remote, counters.local,
        ),
        format!(
            "             {} to servers ({}/s), {} back ({}/s)",
            mega(counters.bytes_out),
            out.map_or_else(dash, |rate| format!("{:.1} MB", rate / 1e6)),
            mega(counters.bytes_in),
            back.map_or_else(dash, |rate| format!("{:.1} MB", rate / 1e6)),
        ),
    ]
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(dash, |rate| format!("{rate:.1}"))
}

fn dash() -> String {
    "-".into()
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn mega(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_compile::stats::JobCounters;

    #[test]
    fn a_frame_as_people_see_it() {
        let clients = vec![("me@n1".to_owned(), vec!["x.c".to_owned(), "y.c".to_owned()])];
        let compiles = Compiles { slots: 4, free: 2, done: 812, rate: Some(2.25), clients };
        let servers = vec![
            ServerRow { host: "n1:7411".into(), compiles: Ok(compiles), casts: vec![] },
            ServerRow {
                host: "n2".into(),
                compiles: Err("n2 did not answer".into()),
                casts: vec![],
            },
        ];
        let counters =
            JobCounters { remote: 80, local: 3, bytes_out: 1_500_000, ..JobCounters::default() };
        let text = lines(&Frame::of(servers, 5, counters)).join("\n");
        assert_eq!(
            text,
            "servers 1 of 2   slots 4   jobs now 2   jobs/s 2.2\n\
             \n\
             server                 slots   now     done  jobs/s  clients: what they compile\n\
             n1:7411                    4     2      812     2.2  me@n1: x.c y.c\n\
             n2                     did not answer\n\
             \n\
             your builds: 5 jobs now, on servers, locally or waiting; so far 80 on servers, 3 \
             locally\n             1.5 MB to servers (-/s), 0.0 MB back (-/s)"
        );
    }
}
