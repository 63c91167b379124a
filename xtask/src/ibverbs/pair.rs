//! Running one row of the table: a server and a client of it, or a program alone, each on the
//! libraries by `outboard run`.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::debian13::Debian13;
use super::namespace::{self, Namespace};
use super::ordinary::Ordinary;
use super::table::{Row, Site};
use crate::command;
use crate::process::{PAUSE, Process};

/// What perftest prints, and ends, when the machine is too busy for comparing the processor's clock
/// with the system's (`get_clock.c`).
const NO_CLOCK: &str = "Can't produce a report";
/// What rping prints, and ends, when its main thread has destroyed the event channel just before
/// its other thread asks it once more (`rping.c`, `cm_thread`): so it does on a busy machine,
/// whatever the library.
const NO_CHANNEL: &str = "rdma_get_cm_event: Invalid argument";
/// How often a program runs that ends by a race of its own.
const TRIES: usize = 3;

/// What every row needs: the program that starts others, and where logs go.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) outboard: PathBuf,
    pub(super) logs: PathBuf,
    /// Where rows of [`Site::Interface`] run; an error says why they cannot.
    pub(super) namespace: Result<Namespace, String>,
    /// Where rows of [`Site::Debian13`] run; likewise.
    pub(super) debian13: Result<Debian13, String>,
    /// Where rows of [`Site::Ordinary`] run; likewise.
    pub(super) ordinary: Result<Ordinary, String>,
}

impl Bench {
    /// Why a row cannot run here, if so.
    pub(super) fn lacks(&self, site: Site) -> Option<&str> {
        match site {
            Site::Loopback => None,
            Site::Interface => self.namespace.as_ref().err().map(|why| &**why),
            Site::Debian13 => self.debian13.as_ref().err().map(|why| &**why),
            Site::Ordinary => self.ordinary.as_ref().err().map(|why| &**why),
        }
    }

    /// Runs a row to its end; again when the program has ended by a race of its own.
    pub(super) fn run(&self, row: &Row) -> Result<()> {
        let is_own_race = |error: &anyhow::Error| {
            let said = format!("{error:#}");
            [NO_CLOCK, NO_CHANNEL].iter().any(|words| said.contains(words))
        };
        for _ in 1..TRIES {
            match self.run_once(row) {
                Err(error) if is_own_race(&error) => {}
                result => return result,
            }
        }
        self.run_once(row)
    }

    fn run_once(&self, row: &Row) -> Result<()> {
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
        Process::start(&mut self.at(row.site, command), &log)
    }

    /// The same command, there.
    pub(super) fn at(&self, site: Site, command: Command) -> Command {
        match (site, &self.namespace, &self.debian13, &self.ordinary) {
            (Site::Interface, Ok(namespace), ..) => namespace.inside(&command),
            (Site::Debian13, _, Ok(root), _) => root.inside(&command),
            (Site::Ordinary, .., Ok(user)) => user.inside(&command),
            _ => command,
        }
    }

    /// `outboard run` of a program on the one device of `address`.
    pub(super) fn command(&self, personality: &str, address: &str, words: &[&str]) -> Command {
        let mut command = Command::new(&self.outboard);
        command.args(["run", "--personality", personality, "--"]).args(words);
        command.env("OUTBOARD_DEVICES", address).current_dir(&self.logs);
        command
    }

    /// Where the compiled programs and copies of scripts go.
    pub(super) fn scratch(&self, site: Site) -> &Path {
        match (site, &self.ordinary) {
            (Site::Ordinary, Ok(user)) => user.directory(),
            _ => &self.logs,
        }
    }
}

/// Waits for both: when one fails, the other would wait for ever.
fn together(server: &mut Process, client: &mut Process, deadline: Instant) -> Result<()> {
    loop {
        let served = server.succeeded(deadline);
        let served = served.with_context(|| format!("client:\n{}", client.excerpt()))?;
        let ended = client.succeeded(deadline);
        if ended.with_context(|| format!("server:\n{}", server.excerpt()))? && served {
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
        Site::Loopback | Site::Debian13 | Site::Ordinary => Ipv4Addr::LOCALHOST,
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
