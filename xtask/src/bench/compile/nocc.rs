//! nocc 1.2, which no distribution packages: the client finds includes by itself and sends each
//! server the files that it does not have yet. nocc takes part if its three programs are in the
//! search path (github.com/VKCOM/nocc, `make client server`).

use std::fs;
use std::io;
use std::process::Command;

use anyhow::Result;

use super::build::Wrapper;
use super::contender::{Contender, path_with};
use super::stage::Stage;
use crate::command;

const PORT: u16 = 43210;
/// The path at which the wrapper finds its daemon; it is fixed.
const SOCKET: &str = "/tmp/nocc.sock";
const PROGRAMS: [&str; 3] = ["nocc", "nocc-daemon", "nocc-server"];

/// nocc.
#[derive(Debug)]
pub(super) struct Nocc;

/// Whether it can take part.
pub(super) fn is_installed() -> bool {
    PROGRAMS.iter().all(|program| command::succeeds("which", &[program]))
}

impl Contender for Nocc {
    fn name(&self) -> &'static str {
        "nocc"
    }

    fn start(&self, stage: &Stage) -> Result<Wrapper> {
        let mut servers = Vec::new();
        for (host, place) in stage.servers() {
            let own = stage.temporary(host);
            let mut server = host.command("nocc-server");
            server.args(["-host", &host.address.to_string(), "-port", &PORT.to_string()]);
            server.args(["-max-parallel-cxx", &stage.slots().to_string()]);
            server.arg("-cpp-dir").arg(own.join("cpp")).arg("-obj-dir").arg(own.join("obj"));
            stage.serve(host, server.envs(place.map(|place| ("PATH", path_with(place)))), PORT)?;
            servers.push(format!("{}:{PORT}", host.address));
        }
        match fs::remove_file(SOCKET) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let daemon = command::output(Command::new("which").arg("nocc-daemon"))?;
        let environment = vec![
            ("NOCC_GO_EXECUTABLE", daemon.trim().to_owned()),
            ("NOCC_SERVERS", servers.join(";")),
            ("NOCC_CLIENT_ID", "client".to_owned()),
            // No contender uses cached objects.
            ("NOCC_DISABLE_OBJ_CACHE", "1".to_owned()),
        ];
        Ok(Wrapper { program: Some("nocc".to_owned()), environment })
    }
}
