//! What tests of many crates share.
//!
//! Only tests depend on this crate. Its manifest gives dependencies the features that they have in
//! a build of the whole workspace.

#![forbid(unsafe_code)]

pub mod hung;

use std::env;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for what must happen. Only a test that fails waits this long: the value
/// says nothing about how fast anything has to be.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// A wait looks this often.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until `is_so` holds.
///
/// # Panics
/// When it does not within [`PATIENCE`]; the message names `what`, and what all threads do.
#[track_caller]
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    look_until(what, is_so, |is_so| *is_so);
}

/// Looks until `is_so` holds for what `look` returns, and returns that.
///
/// # Panics
/// As [`eventually`]; the message has what was seen last, too.
#[track_caller]
pub fn look_until<T: Debug>(
    what: &str,
    mut look: impl FnMut() -> T,
    is_so: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = look();
        if is_so(&seen) {
            return seen;
        }
        let waited = PATIENCE.as_secs();
        assert!(
            Instant::now() < deadline,
            "waited {waited} s in vain: {what}: {seen:?}\n{}",
            threads()
        );
        thread::sleep(LOOK);
    }
}

/// How busy this machine is and what each thread of this process does, for the message of a wait in
/// vain: a thread that waits for a lock, a disk or a processor shows here.
#[must_use]
pub fn threads() -> String {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let mut text = format!("load: {}", read(Path::new("/proc/loadavg")));
    for what in ["cpu", "io", "memory"] {
        let pressure = read(&Path::new("/proc/pressure").join(what));
        text += &format!("{what}: {}\n", pressure.lines().next().unwrap_or_default());
    }
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let field = |name: &str| read(&task.path().join(name)).trim().to_owned();
        let stat = field("stat");
        let stat: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
        let [state, nice] = [1, 17].map(|at| stat.get(at).copied().unwrap_or_default());
        let [name, place, times] = ["comm", "wchan", "schedstat"].map(field);
        let mut times =
            times.split(' ').map(|ns| ns.parse::<u64>().unwrap_or_default() / 1_000_000);
        let [ran, queued] = [(); 2].map(|()| times.next().unwrap_or_default());
        text += &format!(
            "{name}: state {state}, in {place}, nice {nice}, has run {ran} ms and waited \
             {queued} ms for a processor\n"
        );
    }
    text
}

/// The path of an example program of this workspace, built as the calling test is.
///
/// `cargo xtask test` builds all examples first. `cargo test` builds them only when it runs
/// everything, and one that is there may be old: then this builds it, once a process.
///
/// # Panics
/// When it does not build.
pub fn example(name: &str) -> PathBuf {
    static BUILT: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let this = env::current_exe().expect("a path");
    let directory = this.parent().and_then(Path::parent).expect("DIR/deps/TEST");
    let program = directory.join("examples").join(name);
    if env::var_os("NEXTEST").is_some() && program.exists() {
        return program;
    }
    let mut built = BUILT.lock().expect("no builder has panicked");
    if !built.iter().any(|one| one == name) {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // With the features that the dependencies have in a test of the whole workspace.
        cargo.args(["build", "--quiet", "--workspace", "--example", name]);
        if directory.ends_with("release") {
            cargo.arg("--release");
        }
        without_own_package(&mut cargo);
        assert!(cargo.status().expect("cargo").success(), "{name} does not build");
        built.push(name.to_owned());
    }
    program
}

/// Removes what cargo tells this test about its own package: build scripts depend on it, and cargo
/// would build them, and all crates above them, anew.
fn without_own_package(cargo: &mut Command) {
    for (name, _) in env::vars_os() {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b"CARGO_PKG_") || bytes.starts_with(b"CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_is_waited_for() {
        let mut looks = 0;
        eventually("the third look", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    fn a_thread_that_waits_is_shown() {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let waiting = thread::Builder::new().name("waiting".into()).spawn(move || held.recv());
        eventually("it sleeps", || {
            threads().lines().any(|line| line.starts_with("waiting: state S, in "))
        });
        drop(release);
        assert!(waiting.expect("a thread").join().expect("no panic").is_err());
    }
}
