//! Starting other programs, and the workspace's directories.
//!
//! Never runs a shell: a program and its arguments are always separate.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The search path for programs that are started as users start them.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Shows the first directory at the place of the second; then executes the rest.
const SHOW: &str = r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#;

/// The directory that holds the workspace's `Cargo.toml`.
pub fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The directory of cargo's build output (`CARGO_TARGET_DIR`, or `target` in the workspace).
pub fn target_dir() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// `cargo ARGUMENTS`, started in the workspace's root. It is the `cargo` of the search path, not
/// `$CARGO`, because only rustup's proxy understands `+nightly`.
pub fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root());
    // Variables that `cargo run` sets for this program are wrong for its children: build scripts
    // depend on them, and all crates with one would be compiled again.
    let of_ours = |name: &&OsString| {
        let name = name.as_encoded_bytes();
        name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
    };
    env::vars_os().map(|(name, _)| name).filter(|name| of_ours(&name)).for_each(|name| {
        command.env_remove(name);
    });
    command
}

/// Whether `program` can be started and succeeds; its output is thrown away.
pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command to its end; its output goes to this process's own.
///
/// # Errors
/// When it cannot be started or does not succeed.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", line(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", line(command));
    }
    Ok(())
}

/// Runs a command to its end and returns what it wrote to standard output.
///
/// # Errors
/// When it cannot be started or does not succeed.
pub fn output(command: &mut Command) -> Result<String> {
    let command = command.stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {}", line(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", line(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// cargo's metadata of the workspace's own packages.
///
/// # Errors
/// When `cargo metadata` fails, which is a broken manifest.
pub fn metadata() -> Result<Value> {
    let text = output(&mut cargo(["metadata", "--no-deps", "--format-version=1"]))?;
    Ok(serde_json::from_str(&text)?)
}

/// Whether a socket listens on `port`. A test connection would take the place of the client.
///
/// # Errors
/// When the kernel's tables cannot be read.
pub fn listens(port: u16) -> Result<bool> {
    listens_beside("self", port)
}

/// Whether a socket listens on `port` in the network namespace of a process.
///
/// # Errors
/// When the kernel's tables cannot be read, because the process has gone.
pub fn listens_beside(process: &str, port: u16) -> Result<bool> {
    let read = |name| fs::read_to_string(format!("/proc/{process}/net/{name}"));
    let tables = read("tcp")? + &read("tcp6")?;
    let listening = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 3 && fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "0A"
    };
    Ok(tables.lines().any(listening))
}

/// Makes `unshare` execute the program that is named next where `shown` is seen at `at`: in a mount
/// namespace of its own.
pub(crate) fn showing<'a>(unshare: &'a mut Command, shown: &Path, at: &Path) -> &'a mut Command {
    unshare.args(["--mount", "--propagation", "private", "sh", "-ec", SHOW, "sh"]);
    unshare.arg(shown).arg(at)
}

/// Sends processes a signal, such as `STOP`.
pub(crate) fn signal_all(processes: &[u32], signal: &str) -> Result<()> {
    let mut kill = Command::new("kill");
    run(kill.arg(format!("-{signal}")).args(processes.iter().map(ToString::to_string)))
}

/// Compiles a program of one C file, given by its path below the workspace's root, to `bench` in
/// cargo's target directory; `libraries` are the linker's options.
///
/// # Errors
/// When there is no C compiler, or it refuses the file.
pub(crate) fn compile_c(source: &str, libraries: &[&str]) -> Result<PathBuf> {
    /// Tests compile the same file at once, and may run it already.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let directory = target_dir().join("bench");
    fs::create_dir_all(&directory)?;
    let name = Path::new(source).file_stem().with_context(|| format!("{source} has no name"))?;
    let program = directory.join(name);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let fresh = program.with_extension(format!("{}-{number}", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2"]);
    run(compiler.arg(root().join(source)).arg("-o").arg(&fresh).args(libraries))?;
    fs::rename(&fresh, &program)?;
    Ok(program)
}

/// The command as typed in a shell, for messages.
pub fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
