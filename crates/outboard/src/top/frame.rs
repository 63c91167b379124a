//! The data of one moment: the servers' reports, and the statistics of this user's manager.
//!
//! Rates are computed from the previous moment's data. Only numbers are taken from nodes as they
//! are; their texts are shown without control characters.

use super::casts::{self, CastRow};
use crate::status::{ask_all, printable};
use outboard_cc::place::ManagerPlace;
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::HostList;
use outboard_cluster::keys::KeysError;
use outboard_cluster::status;
use outboard_compile::manager;
use outboard_compile::stats::{JobCounters, SavedJournal, state_directory};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a node may take.
const LIMIT: Duration = Duration::from_millis(900);
/// The state of a connected socket in `/proc/net/unix`.
const CONNECTED: &str = "03";

/// Where frames come from.
#[derive(Debug)]
pub(super) struct PanelSource {
    hosts: HostList,
    dialer: Dialer,
}

/// The data of one moment.
#[derive(Debug)]
pub(super) struct Frame {
    at: Instant,
    pub(super) servers: Vec<ServerRow>,
    /// Servers that answered, whether they compile or not.
    pub(super) answered: usize,
    /// Calls of compilers that the manager handles now: on servers, locally and waiting.
    pub(super) calls: u64,
    pub(super) counters: JobCounters,
    /// In bytes a second, to servers and back.
    pub(super) bytes_rate: Option<(f64, f64)>,
}

#[derive(Debug)]
pub(super) struct ServerRow {
    pub(super) host: String,
    /// Why it does not serve, if it does not.
    pub(super) compiles: Result<Compiles, String>,
    /// What is cast to it now.
    pub(super) casts: Vec<CastRow>,
}

/// A server's service.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Compiles {
    pub(super) slots: u64,
    pub(super) free: u64,
    pub(super) done: u64,
    /// Jobs done in a second.
    pub(super) rate: Option<f64>,
    /// Clients' names and their jobs' sources.
    pub(super) clients: Vec<(String, Vec<String>)>,
}

impl PanelSource {
    pub(super) fn new(hosts: HostList) -> Result<Self, KeysError> {
        let dialer = Dialer::from_environment(|name| std::env::var_os(name), &[status::service()])?;
        Ok(Self { hosts, dialer })
    }

    pub(super) fn look(&self, before: Option<&Frame>) -> Frame {
        let answers = ask_all(&self.dialer, self.hosts.hosts(), LIMIT);
        let answered = answers.iter().filter(|answer| answer.is_ok()).count();
        let server = |(host, answer): (&_, Result<Value, String>)| ServerRow {
            host: ToString::to_string(host),
            casts: answer.as_ref().map(casts::read).unwrap_or_default(),
            compiles: answer.and_then(|said| Compiles::read(&said)),
        };
        let calls = ManagerPlace::of_user().map_or(0, |place| calls(&place));
        let saved = state_directory().and_then(|directory| SavedJournal::load(&directory).ok());
        let mut frame = Frame {
            at: Instant::now(),
            servers: self.hosts.iter().zip(answers).map(server).collect(),
            answered,
            calls,
            counters: saved.unwrap_or_default().counters,
            bytes_rate: None,
        };
        if let Some(before) = before {
            frame.compare(before);
        }
        frame
    }
}

/// The managers' callers. A manager with connections is also asked to write its statistics. A
/// manager without any is not asked: it writes them by itself then, and a question would keep it
/// from ending.
fn calls(place: &ManagerPlace) -> u64 {
    let table = fs::read("/proc/net/unix").unwrap_or_default();
    let of_one = |socket: PathBuf| {
        let calls = callers(&table, &socket);
        if calls > 0 {
            manager::settle(&socket);
        }
        calls
    };
    place.sockets().into_iter().map(of_one).sum()
}

/// Connections to the socket at `path`, in a table like `/proc/net/unix`.
fn callers(table: &[u8], path: &Path) -> u64 {
    let path = path.as_os_str().as_bytes();
    let lines = table.split(|byte| *byte == b'\n');
    let ours =
        lines.filter(|line| line.strip_suffix(path).is_some_and(|rest| rest.ends_with(b" ")));
    let is_connected = |line: &&[u8]| {
        let state = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).nth(5);
        state == Some(CONNECTED.as_bytes())
    };
    ours.filter(is_connected).count() as u64
}

impl Compiles {
    fn read(said: &Value) -> Result<Self, String> {
        let services = said["services"].as_array().into_iter().flatten();
        let mut compile = services.filter(|service| service["name"] == "compile");
        let Some(service) = compile.next() else { return Err("does not compile".into()) };
        let report = &service["report"];
        let number = |name: &str| report[name].as_u64();
        let (Some(slots), Some(free)) = (number("slots"), number("free")) else {
            let state = service["state"].as_str().unwrap_or("down");
            return Err(format!("service compile is {}; see the node's log", printable(state)));
        };
        let client = |client: &Value| {
            let jobs = client["jobs"].as_array().into_iter().flatten();
            let sources = jobs.filter_map(|job| job[1].as_str()).map(source).collect();
            (printable(client["name"].as_str().unwrap_or("?")), sources)
        };
        let clients = report["clients"].as_array().into_iter().flatten().map(client).collect();
        let done = number("done").unwrap_or(0);
        Ok(Self { slots, free, done, rate: None, clients })
    }

    pub(super) fn busy(&self) -> u64 {
        self.slots.saturating_sub(self.free)
    }
}

/// A source's name, without its directories.
fn source(path: &str) -> String {
    printable(path.rsplit('/').next().unwrap_or(path))
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
pub(super) fn per_second(after: u64, before: u64, seconds: f64) -> f64 {
    after.saturating_sub(before) as f64 / seconds
}

impl Frame {
    fn compare(&mut self, before: &Self) {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(0.001);
        for (now, then) in self.servers.iter_mut().zip(&before.servers) {
            now.casts.iter_mut().for_each(|cast| cast.compare(&then.casts, seconds));
            if let (Ok(now), Ok(then)) = (&mut now.compiles, &then.compiles) {
                now.rate = Some(per_second(now.done, then.done, seconds));
            }
        }
        let (now, then) = (&self.counters, &before.counters);
        self.bytes_rate = Some((
            per_second(now.bytes_out, then.bytes_out, seconds),
            per_second(now.bytes_in, then.bytes_in, seconds),
        ));
    }

    /// All casts, each with the host that takes part.
    pub(super) fn casts(&self) -> impl Iterator<Item = (&str, &CastRow)> {
        self.servers
            .iter()
            .flat_map(|server| server.casts.iter().map(|cast| (server.host.as_str(), cast)))
    }

    pub(super) fn working(&self) -> impl Iterator<Item = &Compiles> {
        self.servers.iter().filter_map(|server| server.compiles.as_ref().ok())
    }

    /// Jobs done in a second by all servers; `None` without a server, or before the second look.
    pub(super) fn rate(&self) -> Option<f64> {
        self.working().map(|compiles| compiles.rate).reduce(|sum, rate| Some(sum? + rate?))?
    }

    pub(super) fn to_json(&self) -> Value {
        let casts = |server: &ServerRow| -> Vec<Value> {
            server.casts.iter().map(CastRow::to_json).collect()
        };
        let server = |server: &ServerRow| match &server.compiles {
            Err(error) => json!({
                "host": server.host,
                "error": error,
                "casts": casts(server),
            }),
            Ok(compiles) => json!({
                "host": server.host,
                "casts": casts(server),
                "slots": compiles.slots,
                "busy": compiles.busy(),
                "done": compiles.done,
                "jobs_per_s": compiles.rate,
                "clients": compiles.clients.iter().map(|(name, jobs)| {
                    json!({ "name": name, "jobs": jobs })
                }).collect::<Vec<_>>(),
            }),
        };
        json!({
            "servers": self.servers.iter().map(server).collect::<Vec<_>>(),
            "slots": self.working().map(|compiles| compiles.slots).sum::<u64>(),
            "busy": self.working().map(Compiles::busy).sum::<u64>(),
            "jobs_per_s": self.rate(),
            "calls": self.calls,
            "counters": self.counters,
        })
    }
}

#[cfg(test)]
impl Frame {
    pub(super) fn of(servers: Vec<ServerRow>, calls: u64, counters: JobCounters) -> Self {
        let answered = servers.len();
        Self { at: Instant::now(), servers, answered, calls, counters, bytes_rate: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(done: u64) -> Value {
        json!({ "services": [{ "name": "other" }, {
            "name": "compile", "state": "running",
            "report": {
                "slots": 4, "free": 1, "done": done,
                "clients": [{ "name": "a\u{1b}b@n1", "jobs": [[0, "src/x.c"], [2, "y.cc"]] }],
            },
        }] })
    }

    #[test]
    fn a_servers_word_is_read_and_nothing_of_it_reaches_the_terminal_raw() {
        let compiles = Compiles::read(&said(9)).expect("it compiles");
        let clients = vec![("ab@n1".to_owned(), vec!["x.c".to_owned(), "y.cc".to_owned()])];
        assert_eq!(compiles, Compiles { slots: 4, free: 1, done: 9, rate: None, clients });
        assert_eq!(compiles.busy(), 3);
        for strange in [json!(null), json!({ "services": 3 }), json!({ "services": [{}] })] {
            assert_eq!(Compiles::read(&strange).expect_err("none"), "does not compile");
        }
        let down = json!({ "services": [{ "name": "compile", "state": "down", "report": null }] });
        assert!(Compiles::read(&down).expect_err("down").starts_with("service compile is down"));
    }

    #[test]
    fn rates_are_against_the_look_before() {
        let frame = |done, bytes_out| {
            let compiles = Compiles::read(&said(done));
            let counters = JobCounters { bytes_out, ..JobCounters::default() };
            Frame::of(vec![ServerRow { host: "n1".into(), compiles, casts: vec![] }], 0, counters)
        };
        let (before, mut after) = (frame(10, 1000), frame(30, 5000));
        assert_eq!(after.rate(), None);
        after.at = before.at + Duration::from_secs(4);
        after.compare(&before);
        assert_eq!((after.rate(), after.bytes_rate), (Some(5.0), Some((1000.0, 0.0))));
        // A restarted server counts from zero.
        let mut anew = frame(0, 0);
        anew.at = after.at + Duration::from_secs(1);
        anew.compare(&after);
        assert_eq!((anew.rate(), anew.bytes_rate), (Some(0.0), Some((0.0, 0.0))));
    }

    #[test]
    fn without_a_server_there_is_no_rate() {
        let servers =
            vec![ServerRow { host: "n1".into(), compiles: Err("down".into()), casts: vec![] }];
        let frame = Frame::of(servers, 0, JobCounters::default());
        assert_eq!(frame.rate(), None);
        assert!(frame.to_json()["jobs_per_s"].is_null());
    }

    #[test]
    fn the_managers_callers_are_counted() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 77 /run/o/cc.sock\n\
            0: 00000003 00000000 00000000 0001 03 78 /run/o/cc.sock\n\
            0: 00000003 00000000 00000000 0001 03 79\n\
            0: 00000003 00000000 00000000 0001 03 80 /other/run/o/cc.sock\n\
            0: 00000003 00000000 00000000 0001 03 81 /run/o/cc.sock";
        assert_eq!(callers(table, Path::new("/run/o/cc.sock")), 2);
        assert_eq!(callers(b"", Path::new("/run/o/cc.sock")), 0);
    }
}
