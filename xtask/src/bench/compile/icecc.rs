//! icecream 1.4 as packaged by Debian: a scheduler assigns servers; the client sends partly
//! preprocessed text, and its compiler, which every server unpacks and makes its root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::build::Wrapper;
use super::contender::Contender;
use super::stage::Stage;
use crate::command;

const PORT: u16 = 10245;
const SCHEDULER_PORT: u16 = 8765;
/// The log line of a daemon that has found the scheduler.
const CONNECTED: &str = "Connected to scheduler";
/// The path of the socket between a client and its daemon.
const SOCKET: &str = "ICECC_TEST_SOCKET";
/// A file that a server requires in a compiler's archive.
const PARTS: &[&str] = &["usr/bin/gcc", "usr/bin/g++", "usr/bin/as"];
/// The program that a server starts to test an archive.
const PROBE: &str = "bin/true";

/// icecream, with a program that does nothing.
#[derive(Debug)]
pub(super) struct Icecc(pub(super) PathBuf);

impl Contender for Icecc {
    fn name(&self) -> &'static str {
        "icecc"
    }

    fn start(&self, stage: &Stage) -> Result<Wrapper> {
        let (first, place) = stage.servers().next().context("icecc needs a server")?;
        let place = place.context("icecc is for stand-ins only here")?;
        let mut scheduler = first.command("icecc-scheduler");
        stage.serve(first, scheduler.arg("-vv"), SCHEDULER_PORT)?;
        let scheduler = first.address.to_string();
        for (host, _) in stage.servers() {
            let own = stage.temporary(host);
            let mut daemon = host.command("iceccd");
            daemon.args(["-vv", "-m", &stage.slots().to_string(), "-N", &host.address.to_string()]);
            daemon.args(["-s", &scheduler, "-b"]).arg(own.join("environments"));
            stage.serve(host, daemon.env(SOCKET, own.join("socket")), PORT)?;
        }
        // The scheduler crashes when a client connects before all servers.
        for (host, _) in stage.servers() {
            stage.wait_said(host, PORT, CONNECTED)?;
        }
        let (client, own) = (stage.client(), stage.temporary(stage.client()));
        let mut daemon = client.command("iceccd");
        // Zero jobs, or the client would compile as well.
        daemon.args(["-vv", "-m", "0", "-N", "client", "-s", &scheduler, "-b"]);
        daemon.arg(own.join("environments"));
        stage.serve(client, daemon.env(SOCKET, own.join("socket")), PORT)?;
        stage.wait_said(client, PORT, CONNECTED)?;
        let archive = archive(place, &self.0, &own)?;
        let environment = vec![
            (SOCKET, own.join("socket").display().to_string()),
            ("ICECC_VERSION", archive.display().to_string()),
        ];
        Ok(Wrapper { program: Some("icecc".to_owned()), environment })
    }
}

/// The archive of a compiler, which is the stand-in with its records. Below the root that a server
/// changes to, `usr` is the stand-in's directory.
fn archive(place: &Path, nothing: &Path, directory: &Path) -> Result<PathBuf> {
    let root = directory.join("compiler");
    let stand_in = place.join("bin/gcc");
    let parts = PARTS.iter().map(|&part| (part, stand_in.as_path()));
    for (part, program) in parts.chain([(PROBE, nothing)]) {
        let path = root.join(part);
        fs::create_dir_all(path.parent().unwrap_or(&root))?;
        fs::copy(program, path)?;
    }
    let mut copy = Command::new("cp");
    copy.arg("--archive").args(["record", "factor", "lock", "real"].map(|name| place.join(name)));
    command::run(copy.arg(root.join("usr")))?;
    let archive = directory.join("compiler.tar.gz");
    let mut tar = Command::new("tar");
    tar.args(["--use-compress-program=gzip -1", "--create", "--file"]).arg(&archive);
    tar.arg("--directory").arg(&root).args(["usr", "bin"]);
    command::run(&mut tar)?;
    fs::remove_dir_all(&root)?;
    Ok(archive)
}
