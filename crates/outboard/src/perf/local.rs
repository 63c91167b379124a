//! The server for tests without a host: a second process on loopback that ends
//! with this one.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A running server; it is ended on drop.
#[derive(Debug)]
pub(crate) struct LocalServer {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl LocalServer {
    pub(crate) fn start() -> Result<Self, String> {
        let failed = |why: &dyn std::fmt::Display| {
            format!("cannot start a server here: {why}; start `outboard perf serve` and name it")
        };
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut child = Command::new(program)
            .args(["perf", "serve", "--listen", "127.0.0.1:0", "--json", "--with-parent"])
            .stdin(Stdio::null())
            // A terminal's Ctrl-C is for the client, which ends the server when it has reported.
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error))?;
        match read_address(&mut child) {
            Ok(address) => Ok(Self { child, address }),
            Err(error) => {
                end(&mut child);
                Err(failed(&error))
            }
        }
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn read_address(child: &mut Child) -> io::Result<SocketAddr> {
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    serde_json::from_str::<serde_json::Value>(&line)
        .ok()
        .and_then(|value| value["listen"].as_str()?.parse().ok())
        .ok_or_else(|| io::Error::other("it did not print its address"))
}

fn end(child: &mut Child) {
    // Both fail only when it has ended already.
    let _killed = child.kill();
    let _waited = child.wait();
}
