//! Programs run by a user without rights: differences from root show here. The build is copied to
//! where every user may read it, which the project's own directory need not allow.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, process};

use anyhow::{Context, Result};

use super::namespace::like;
use crate::test::needs;

/// `no_servers` on every Linux.
const USER: u32 = 65_534;

/// The copy; it is removed when dropped.
#[derive(Debug)]
pub(super) struct Ordinary(PathBuf);

impl Ordinary {
    /// Copies the program and its libraries.
    ///
    /// # Errors
    /// When they cannot be copied.
    pub(super) fn new(outboard: &Path) -> Result<Self> {
        let directory = env::temp_dir().join(format!("outboard-ordinary-{}", process::id()));
        let lib = directory.join("lib");
        fs::create_dir_all(&lib).with_context(|| format!("cannot make {}", lib.display()))?;
        let ordinary = Self(directory);
        fs::copy(outboard, ordinary.0.join("outboard"))?;
        for library in ["libibverbs.so.1", "librdmacm.so.1"] {
            fs::copy(outboard.with_file_name("lib").join(library), lib.join(library))?;
        }
        for path in [&ordinary.0, &lib] {
            fs::set_permissions(path, Permissions::from_mode(0o755))?;
        }
        Ok(ordinary)
    }

    /// The directory in which programs start; files that they read go there.
    pub(super) fn directory(&self) -> &Path {
        &self.0
    }

    /// The same `outboard` command as that user; without root rights it is left as it is.
    pub(super) fn inside(&self, program: &Command) -> Command {
        let outboard = self.0.join("outboard");
        let mut command = if needs::is_root() {
            let mut setpriv = Command::new("setpriv");
            setpriv.arg(format!("--reuid={USER}")).arg(format!("--regid={USER}"));
            setpriv.args(["--clear-groups", "--no-new-privs", "--"]).arg(outboard);
            setpriv
        } else {
            Command::new(outboard)
        };
        command.args(program.get_args());
        like(&mut command, program);
        command.current_dir(&self.0);
        command
    }
}

impl Drop for Ordinary {
    fn drop(&mut self) {
        // If it stays behind, it does no harm.
        let _removed = fs::remove_dir_all(&self.0);
    }
}
