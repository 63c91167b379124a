//! `cargo xtask bindings`: regenerates the C layouts of crate `ibverbs` from the headers of Debian
//! 12's libibverbs-dev and librdmacm-dev.
//!
//! The program `bindgen` generates them once, so that no build of the project needs libclang.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{self, root};

/// The generated file, relative to the workspace's root.
const BINDINGS: &str = "crates/ibverbs/src/abi/bindings.rs";
const HEADERS: &str = "crates/ibverbs/src/abi/headers.h";
/// Other versions generate other text.
const INSTALL: &str = "cargo install --locked bindgen-cli@0.73.2 && \
                       apt-get install libclang-dev libibverbs-dev librdmacm-dev";
/// Types that the headers include from elsewhere: libc defines them.
const FROM_LIBC: &str = "use libc::{pthread_mutex_t, pthread_cond_t, sockaddr, sockaddr_in, \
                         sockaddr_in6, sockaddr_storage, timespec};";
const OURS: &[&str] = &["ibv_.*", "_ibv_.*", "rdma_.*", "verbs_.*", "_compat_.*"];
const CONSTANTS: &[&str] = &["IBV_.*", "RDMA_.*", "RAI_.*"];
const LIBC: &[&str] = &["(__)?pthread_.*", "sockaddr.*", "timespec"];

/// Regenerates the layouts.
///
/// # Errors
/// When `bindgen` is missing (the error says how to install it), or the headers are.
pub fn run() -> Result<()> {
    generate("bindgen", &root().join(BINDINGS))?;
    println!("wrote {BINDINGS}");
    Ok(())
}

fn generate(bindgen: &str, bindings: &Path) -> Result<()> {
    let mut command = command_line(bindgen);
    // Run outside the workspace, away from its rustfmt.toml: the layouts keep bindgen's own form.
    command.arg(root().join(HEADERS)).current_dir(std::env::temp_dir());
    let output = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("there is no program {bindgen}; this installs it: {INSTALL}")
        }
        other => other.with_context(|| format!("cannot start {}", command::line(&command)))?,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{bindgen} failed: {}\n{said}\nIt needs: {INSTALL}", output.status);
    }
    fs::write(bindings, output.stdout).with_context(|| format!("cannot write {BINDINGS}"))
}

fn command_line(bindgen: &str) -> Command {
    let mut command = Command::new(bindgen);
    command.args(["--use-core", "--no-doc-comments", "--no-prepend-enum-name"]);
    command.args(["--ignore-functions", "--raw-line", FROM_LIBC]);
    for (option, patterns) in
        [("--allowlist-type", OURS), ("--allowlist-var", CONSTANTS), ("--blocklist-type", LIBC)]
    {
        patterns.iter().for_each(|pattern| {
            command.args([option, *pattern]);
        });
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_bindgen_is_reported_with_its_remedy() {
        let nowhere = std::env::temp_dir().join("outboard-no-bindings.rs");
        let error = generate("outboard-no-such-program", &nowhere).unwrap_err().to_string();
        assert!(error.contains("cargo install --locked bindgen-cli@"), "{error}");
        assert!(!nowhere.exists());
    }

    #[test]
    fn a_failure_leaves_the_layouts_alone() {
        let kept = std::env::temp_dir().join(format!("outboard-kept-{}", std::process::id()));
        fs::write(&kept, "as before").unwrap();
        let error = generate("false", &kept).unwrap_err().to_string();
        let found = fs::read_to_string(&kept).unwrap();
        fs::remove_file(&kept).unwrap();
        assert!(error.contains("false failed: exit status: 1"), "{error}");
        assert_eq!(found, "as before");
    }
}
