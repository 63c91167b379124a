//! A root with Debian 13's packages: programs and hardware drivers of rdma-core 56, which ask for
//! symbols that Debian 12's do not have.
//!
//! apt downloads the packages once, into `target/`, with its own package lists; nothing is
//! installed, and the machine's packages are left alone. Programs run in it by chroot, in a user
//! namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::namespace::like;
use crate::command;

/// The packages, installed with their dependencies; the first has the links `/lib64` and such.
const PACKAGES: [&str; 4] = ["base-files", "perftest", "ibverbs-utils", "rdmacm-utils"];

const SOURCE: &str = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
                      http://deb.debian.org/debian trixie main\n";

/// Written when everything is unpacked.
const COMPLETE: &str = "complete";

/// Mounts what programs need into a root, and runs a program in it.
const ENTER: &str = "for it in proc sys dev; do mount --rbind /$it \"$0/$it\" || exit; done; \
                     exec chroot \"$0\" \"$@\"";

/// The root.
#[derive(Debug)]
pub(super) struct Debian13(PathBuf);

impl Debian13 {
    /// Makes the root unless it exists, and puts this build of Outboard there.
    ///
    /// # Errors
    /// When the packages cannot be downloaded.
    pub(super) fn new(directory: &Path, outboard: &Path) -> Result<Self> {
        let root = directory.join("root");
        if !directory.join(COMPLETE).exists() {
            fetch(directory).context("Debian 13's packages cannot be fetched")?;
            unpack(&directory.join("cache/archives"), &root)?;
            fs::write(directory.join(COMPLETE), "")?;
        }
        let place = root.join("outboard");
        fs::create_dir_all(place.join("lib"))?;
        fs::copy(outboard, place.join("outboard"))?;
        for library in ["libibverbs.so.1", "librdmacm.so.1"] {
            let built = outboard.with_file_name("lib").join(library);
            fs::copy(built, place.join("lib").join(library))?;
        }
        Ok(Self(root))
    }

    /// The same `outboard` command, run inside the root.
    pub(super) fn inside(&self, program: &Command) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--", "sh", "-c", ENTER]);
        command.arg(&self.0).arg("/outboard/outboard").args(program.get_args());
        like(&mut command, program);
        command
    }
}

/// Downloads the packages with all that they depend on, as for a machine that has none.
fn fetch(directory: &Path) -> Result<()> {
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(directory.join(part))?;
    }
    fs::write(directory.join("sources.list"), SOURCE)?;
    fs::write(directory.join("status"), "")?;
    let apt = |words: &[&str]| {
        let mut apt = Command::new("apt-get");
        for (option, value) in [
            ("Dir::Etc::SourceList", "sources.list"),
            ("Dir::State::Lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
        ] {
            apt.arg("-o").arg(format!("{option}={}", directory.join(value).display()));
        }
        apt.args(["-o", "Dir::Etc::SourceParts=/dev/null", "-o", "Debug::NoLocking=1", "-qq"]);
        // The directory need not be readable for apt's own user.
        apt.args(["-o", "APT::Sandbox::User="]).args(words);
        command::run(&mut apt)
    };
    apt(&["update"])?;
    apt(&[&["install", "--yes", "--no-install-recommends", "--download-only"], &PACKAGES[..]]
        .concat())
}

fn unpack(archives: &Path, root: &Path) -> Result<()> {
    fs::create_dir_all(root)?;
    for entry in fs::read_dir(archives)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            command::run(Command::new("dpkg-deb").arg("--extract").arg(&path).arg(root))?;
        }
    }
    Ok(())
}
