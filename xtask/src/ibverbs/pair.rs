//! Running one row of the table: a server and a client of it, or a program alone, each on the
//! libraries by `outboard run`.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::namespace::{self, Namespace};
use super::table::{Row, Site};
use crate::command;
use crate::process::{PAUSE, Process};

/// perftest's servers listen a second time, a moment after they have told their client to connect.
/// A client that is faster is refused (by TCP: 111) and says one of these: it should connect again,
/// but release 4.5 does that with an identifier that it has destroyed.
const TOO_SOON: [&str; 2] =
    ["Unexpected CM event bl blka 8", "RDMA_CM_EVENT_REJECTED; error: -111"];

/// What every row needs: the program that starts others, and where logs go.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) outboard: PathBuf,
    pub(super) logs: PathBuf,
    /// Where rows of [`Site::Interface`] run; why not, where it cannot be had.
    pub(super) namespace: Result<Namespace, String>,
}

impl Bench {
    /// Why a row cannot run here, if so.
    pub(super) fn lacks(&self, row: &Row) -> Option<&str> {
        let needs = row.site == Site::Interface;
        self.namespace.as_ref().err().filter(|_| needs).map(|why| &**why)
    }

    /// Runs a row to its end; a second time, and says so, when perftest was faster than itself.
    pub(super) fn run(&self, row: &Row) -> Result<()> {
        match self.once(row) {
            Err(error) if TOO_SOON.iter().any(|text| format!("{error:#}").contains(text)) => {
                println!("again   {}: its client came before its server listened", row.name);
                self.once(row)
            }
            ended => ended,
        }
    }

    fn once(&self, row: &Row) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(row.seconds);
        let port = free_port()?;
        let address = address(row.site);
        let fill = |words: &str| {
            words.replace("{port}", &port.to_string()).replace("{address}", &address.to_string())
        };
        let Some(server) = &row.server else {
            return self.alone(row, &fill(&row.client), address, deadline);
        };
        let mut server = self.start(row, "server", &fill(server), address)?;
        server.wait_listening(port, deadline)?;
        let mut client = self.start(row, "client", &fill(&row.client), address)?;
        together(&mut server, &mut client, deadline)?;
        expect(row, &(client.said() + &server.said()))
    }

    fn alone(&self, row: &Row, words: &str, address: Ipv4Addr, deadline: Instant) -> Result<()> {
        let said = self.start(row, "alone", words, address)?.finish(deadline)?;
        expect(row, &said)
    }

    fn start(&self, row: &Row, role: &str, words: &str, address: Ipv4Addr) -> Result<Process> {
        let name: String =
            row.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let log = self.logs.join(format!("{name}.{role}"));
        let words: Vec<&str> = words.split(' ').collect();
        let mut command = self.command(row.personality, &address.to_string(), &words);
        command.envs(row.environment.iter().copied());
        if let (Site::Interface, Ok(namespace)) = (row.site, &self.namespace) {
            command = namespace.inside(&command);
        }
        Process::start(&mut command, &log)
    }

    /// `outboard run` of a program on the one device of `address`.
    pub(super) fn command(&self, personality: &str, address: &str, words: &[&str]) -> Command {
        let mut command = Command::new(&self.outboard);
        command.args(["run", "--personality", personality, "--"]).args(words);
        command.env("OUTBOARD_DEVICES", address).current_dir(&self.logs);
        command
    }

    /// Where the compiled programs and copies of scripts go.
    pub(super) fn scratch(&self) -> &Path {
        &self.logs
    }
}

/// Waits for both: where one fails, the other would wait for it in vain.
fn together(server: &mut Process, client: &mut Process, deadline: Instant) -> Result<()> {
    loop {
        let served = server.succeeded(deadline);
        let served = served.with_context(|| format!("client:\n{}", client.tail()))?;
        let ended = client.succeeded(deadline);
        if ended.with_context(|| format!("server:\n{}", server.tail()))? && served {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
}

fn expect(row: &Row, said: &str) -> Result<()> {
    match row.says.iter().find(|text| !said.contains(**text)) {
        Some(text) => bail!("no {text:?} in:\n{said}"),
        None => Ok(()),
    }
}

fn address(site: Site) -> Ipv4Addr {
    match site {
        Site::Loopback => Ipv4Addr::LOCALHOST,
        Site::Interface => namespace::ADDRESS,
    }
}

/// A port that nothing listens on. The system hands none out below 32768, and no two rows get the
/// same.
fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let port = 20_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 10_000;
        if !command::listens(port)? {
            return Ok(port);
        }
    }
}
