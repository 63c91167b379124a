//! Running `outboard perf`: Outboard's own tests, and raw TCP in the same program.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::bytes;
use crate::bench::measure::{self, Contender, Server, number};
use crate::builds;

/// Builds the program in release mode, and returns its path.
pub(in crate::bench) fn build() -> Result<String> {
    Ok(builds::outboard(true)?.to_string_lossy().into_owned())
}

/// A server for tests, and the parameters for running a test against it.
#[derive(Debug)]
pub(in crate::bench) struct Outboard {
    /// The client's program and the words in front of it.
    words: Vec<String>,
    /// The server's address.
    address: String,
    _server: Server,
}

impl Outboard {
    /// Starts a server on loopback.
    pub(in crate::bench) fn start(program: &str, options: &[&str]) -> Result<Self> {
        Self::start_at("127.0.0.1", [&[program], &[program]], options)
    }

    /// Starts a server at an address; the caller gives the words in front of client and server.
    pub(in crate::bench) fn start_at(
        address: &str,
        [client, server]: [&[&str]; 2],
        options: &[&str],
    ) -> Result<Self> {
        let listen = format!("{address}:0");
        let mut command = Command::new(server[0]);
        command.args(&server[1..]).args(["perf", "serve", "--listen", &listen, "--json"]);
        let (server, line) = Server::start_with_line(command.args(options))?;
        let said: Value = serde_json::from_str(&line)?;
        let address = said["listen"].as_str().context("the server printed no address")?;
        let words = client.iter().map(|word| (*word).to_owned()).collect();
        Ok(Self { words, address: address.to_owned(), _server: server })
    }

    /// The command of one test of messages of `point` bytes.
    pub(in crate::bench) fn command(
        &self,
        test: &str,
        point: &str,
        options: &[&str],
    ) -> Result<Command> {
        let size = bytes(point)?.to_string();
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command.args(["perf", test, &self.address, "--size", &size, "--pin", "0", "--json"]);
        command.args(options);
        Ok(command)
    }

    /// Runs one test of messages of `point` bytes.
    pub(in crate::bench) fn perf(
        &self,
        test: &str,
        point: &str,
        options: &[&str],
    ) -> Result<Value> {
        let mut report = measure::json(&mut self.command(test, point, options)?)?;
        report["cpu_s_per_gib"] = json!(cpu_per_gib(&report)?);
        Ok(report)
    }

    /// A contender that runs one test.
    pub(in crate::bench) fn contender<'a>(
        &'a self,
        name: &'a str,
        test: &'a str,
        options: &'a [&'a str],
    ) -> Contender<'a, Value> {
        Contender { name, measure: Box::new(move |point| self.perf(test, point, options)) }
    }
}

fn cpu_per_gib(report: &Value) -> Result<f64> {
    let figure = |name| number(report, name);
    let gib = figure("/mib_per_s")? * figure("/seconds")? / 1024.0;
    Ok(figure("/cpu_s")? / gib)
}
