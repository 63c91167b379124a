//! distcc 3.4 as packaged by Debian: the client preprocesses and sends servers the text over TCP.

use std::fs;

use anyhow::Result;

use super::build::Wrapper;
use super::contender::{Contender, path_with};
use super::stage::Stage;

const PORT: u16 = 3632;
/// The address range of all labs.
const LABS: &str = "198.18.0.0/15";

/// distcc.
#[derive(Debug)]
pub(super) struct Distcc;

impl Contender for Distcc {
    fn name(&self) -> &'static str {
        "distcc"
    }

    fn start(&self, stage: &Stage) -> Result<Wrapper> {
        let mut hosts = Vec::new();
        for (host, place) in stage.servers() {
            let (address, slots) = (host.address.to_string(), stage.slots().to_string());
            let mut daemon = host.command("distccd");
            daemon.args(["--no-detach", "--daemon", "--allow", LABS, "--listen", &address]);
            daemon.args(["--port", &PORT.to_string(), "--jobs", &slots]);
            // Instead of a list of permitted compilers, which names real ones only.
            daemon.args(["--enable-tcp-insecure", "--log-stderr", "--log-level", "warning"]);
            stage.serve(host, daemon.envs(place.map(|place| ("PATH", path_with(place)))), PORT)?;
            hosts.push(format!("{address}/{slots}"));
        }
        let own = stage.temporary(stage.client()).join("distcc");
        fs::create_dir_all(&own)?;
        let environment = vec![
            ("DISTCC_HOSTS", hosts.join(" ")),
            ("DISTCC_DIR", own.display().to_string()),
            // A job that no server runs is a failure.
            ("DISTCC_FALLBACK", "0".to_owned()),
            ("DISTCC_SKIP_LOCAL_RETRY", "1".to_owned()),
        ];
        Ok(Wrapper { program: Some("distcc".to_owned()), environment })
    }
}
