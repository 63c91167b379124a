//! `outboard status`: asks all nodes for their reports at once, and prints them in the list's
//! order.

use crate::Outcome;
use clap::Args;
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::{Host, HostList, HostsError};
use outboard_cluster::status;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a node may take.
const LIMIT: Duration = Duration::from_secs(3);
/// Nodes asked at a time.
const AT_ONCE: usize = 64;

/// Show the cluster's nodes: their services, load and counters.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard status 'n[01-14],big:7411'")]
pub(crate) struct StatusArgs {
    /// Which nodes [default: OUTBOARD_HOSTS, or else a Slurm job's, or else this machine's].
    hosts: Option<HostList>,
    /// As JSON: a list with an entry for each node.
    #[arg(long)]
    json: bool,
}

pub(crate) type StatusAnswer = Result<Value, String>;

pub(crate) fn run(args: StatusArgs) -> Outcome {
    let hosts = hosts_or_own(args.hosts)?;
    let dialer = Dialer::from_environment(|name| std::env::var_os(name), &[status::service()])?;
    let answers = ask_all(&dialer, hosts.hosts(), LIMIT);
    let mut out = std::io::stdout().lock();
    if args.json {
        let list = hosts.iter().zip(&answers).map(|(host, answer)| match answer {
            Ok(status) => json!({ "host": host.to_string(), "status": status }),
            Err(error) => json!({ "host": host.to_string(), "error": error }),
        });
        writeln!(out, "{}", Value::Array(list.collect()))?;
    } else {
        for (host, answer) in hosts.iter().zip(&answers) {
            match answer {
                Ok(status) => write!(out, "{}", describe(host, status))?,
                Err(error) => {
                    let error = without_host(&host.to_string(), error);
                    writeln!(out, "{host}  no answer: {error}")?;
                }
            }
        }
    }
    let down: Vec<_> =
        hosts.iter().zip(&answers).flat_map(|(host, answer)| down(host, answer)).collect();
    match answers.iter().filter(|answer| answer.is_err()).count() {
        0 if down.is_empty() => Ok(()),
        0 => Err(down.join("; ").into()),
        silent => Err(format!("{silent} of {} nodes did not answer", answers.len()).into()),
    }
}

/// The errors of services that should run on a node and do not.
fn down(host: &Host, answer: &StatusAnswer) -> Vec<String> {
    let services = answer.iter().flat_map(|status| status["services"].as_array()).flatten();
    let down = services.filter(|service| service["state"] == "down");
    let why = |service: &Value| {
        let (name, end) = (word(&service["name"]), word(&service["ended"]));
        format!("the service {name} is down on {host} ({end}): that node's log says why")
    };
    down.map(why).collect()
}

/// The hosts that are named, or else the environment's, or else this machine.
pub(crate) fn hosts_or_own(named: Option<HostList>) -> Result<HostList, HostsError> {
    if let Some(hosts) = named {
        return Ok(hosts);
    }
    match HostList::from_environment(|name| std::env::var_os(name))? {
        Some(hosts) => Ok(hosts),
        None => "127.0.0.1".parse(),
    }
}

/// Asks all at once; each may take `limit`.
pub(crate) fn ask_all(dialer: &Dialer, hosts: &[Host], limit: Duration) -> Vec<StatusAnswer> {
    let answers: Vec<Mutex<StatusAnswer>> =
        hosts.iter().map(|_| Mutex::new(Err(String::new()))).collect();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..hosts.len().min(AT_ONCE) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(host), Some(slot)) = (hosts.get(index), answers.get(index)) else {
                        return;
                    };
                    let answer = status::ask(dialer, host, Instant::now() + limit);
                    let answer = answer.map_err(|error| error.to_string());
                    *slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = answer;
                }
            });
        }
    });
    let open =
        |slot: Mutex<StatusAnswer>| slot.into_inner().unwrap_or_else(|poison| poison.into_inner());
    answers.into_iter().map(open).collect()
}

/// An error as it is shown behind its host: without the host at its beginning.
pub(crate) fn without_host<'a>(host: &str, error: &'a str) -> &'a str {
    let rest = error.strip_prefix(host).unwrap_or(error);
    let starts = [": ", ", ", " "];
    starts.iter().find_map(|start| rest.strip_prefix(start)).unwrap_or(error)
}

/// A line for the node, and one for each of its services.
fn describe(host: &Host, status: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let mut text = format!(
        "{host}  node {}  up {}  slots {}  refused {}\n",
        word(&status["node"]),
        age(number(&status["uptime_s"])),
        number(&status["slots"]),
        number(&status["refused"]),
    );
    for service in status["services"].as_array().into_iter().flatten() {
        text += &format!(
            "  {}  {}  up {}  restarts {}  sessions {}",
            word(&service["name"]),
            word(&service["state"]),
            age(number(&service["uptime_s"])),
            number(&service["restarts"]),
            number(&service["sessions"]),
        );
        for (name, value) in service["report"].as_object().into_iter().flatten() {
            if value.is_number()
                || value.as_str().is_some_and(|text| !text.is_empty())
                || value.is_boolean()
            {
                text += &format!("  {} {}", printable(name), word(value));
            }
        }
        text.push('\n');
    }
    text
}

/// A node's text may contain anything; control characters must not reach the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().take(80).filter(|one| !one.is_control()).collect()
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        other => printable(&other.to_string()),
    }
}

/// Two units at most.
fn age(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_does_not_repeat_its_host() {
        for (error, shown) in [
            ("n1: refused", "refused"),
            ("n1 did not answer", "did not answer"),
            ("n1, service status: no", "service status: no"),
            ("n1:7410 was node a", "n1:7410 was node a"),
            ("n10: refused", "n10: refused"),
        ] {
            assert_eq!(without_host("n1", error), shown);
        }
    }

    #[test]
    fn a_node_and_its_services_as_text() {
        let status = json!({
            "node": "ab", "uptime_s": 3700, "slots": 4, "refused": 0,
            "services": [{
                "name": "compile", "state": "running", "uptime_s": 61, "restarts": 1, "sessions": 2,
                "report": { "jobs_now": 3, "note": "a\u{1b}[2Jb", "ended": "", "lanes": [1] },
            }],
        });
        let hosts: HostList = "n1:7411".parse().expect("a host");
        assert_eq!(
            describe(&hosts.hosts()[0], &status),
            "n1:7411  node ab  up 1 h 1 min  slots 4  refused 0\n  compile  running  up 1 min 1 s  \
             restarts 1  sessions 2  jobs_now 3  note a[2Jb\n"
        );
        let mut status = status;
        assert!(down(&hosts.hosts()[0], &Ok(status.clone())).is_empty());
        status["services"][0]["state"] = "down".into();
        status["services"][0]["ended"] = "exit status: 1".into();
        assert_eq!(
            down(&hosts.hosts()[0], &Ok(status)),
            ["the service compile is down on n1:7411 (exit status: 1): that node's log says why"]
        );
        assert_eq!((age(59), age(90_000)), ("59 s".into(), "1 d 1 h".into()));
    }
}
