//! The whole way: wrappers, a manager's loop, a farm, a server.

use crate::builds::{directory, write};
use crate::support::{Lab, at_home, trial};
use libtest_mimic::Trial;
use outboard_cc::real::Call;
use outboard_compile::front::{Front, Settings};
use outboard_compile::stats::{Counters, Journal, Saved};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, ExitCode, Output};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tempfile::TempDir;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("wrappers_preprocess_into_memory", || preprocesses("preprocess")),
        trial("wrappers_preprocess_onto_the_projects_disk", || preprocesses("preprocess-disk")),
        trial("what_cannot_be_preprocessed_is_compiled_at_home", fails),
    ]
}

/// A wrapper, with a compiler's words behind its own name.
pub(crate) fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(2);
    let call = words.next().map(|name| Call { name, arguments: words.collect() });
    call.map_or(ExitCode::FAILURE, |call| outboard_cc::wrapper::compile(&call))
}

/// A manager in a thread, with one server, until no wrapper has come for a while.
struct Manager {
    run: TempDir,
    thread: JoinHandle<()>,
}

impl Manager {
    fn start() -> Self {
        let run = directory();
        let place = run.path().join("outboard");
        fs::create_dir(&place).expect("a directory");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).expect("mine");
        let listener = UnixListener::bind(place.join("cc.sock")).expect("a socket");
        let thread = thread::spawn(move || {
            let Lab { farm, servers, .. } = Lab::new(1, 2);
            let journal = Journal::new(Some(&place));
            let idle = Duration::from_secs(2);
            let settings = Settings { slots: 1, patience: None, idle, ..Settings::default() };
            let front = Front::new(listener, None, farm, settings, journal).expect("a loop");
            front.run().expect("it ends");
            drop(servers);
        });
        Self { run, thread }
    }

    fn run(&self, mode: &str, cwd: &Path, line: &str) -> Output {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg("wrapper").args(line.split(' ')).current_dir(cwd).env_clear();
        command.env("XDG_RUNTIME_DIR", self.run.path()).env("PATH", "/usr/bin:/bin");
        command.env("OUTBOARD_CC_MODE", mode).env("OUTBOARD_CC_VERBOSE", "1");
        command.output().expect("a wrapper")
    }

    /// What was counted, at the end.
    fn end(self) -> Counters {
        self.thread.join().expect("it does not panic");
        Saved::load(&self.run.path().join("outboard")).expect("saved").counters
    }
}

fn preprocesses(mode: &str) {
    const LINE: &str = "gcc -O2 -Wall -Iinclude -MD -c src/a.c -o a.o";
    let project = directory();
    let at = project.path();
    write(&at.join("include/a.h"), "#warning preprocessing\n");
    write(&at.join("src/a.c"), "#include \"a.h\"\nint f(void) { int unused; return 1; }\n");
    at_home(at, &LINE.split(' ').collect::<Vec<_>>());
    let outputs = ["a.o", "a.d"];
    let expected = outputs.map(|name| fs::read(at.join(name)).expect(name));
    outputs.iter().for_each(|name| fs::remove_file(at.join(name)).expect(name));
    let manager = Manager::start();
    let output = manager.run(mode, at, LINE);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(outputs.map(|name| fs::read(at.join(name)).expect(name)), expected);
    for warning in ["warning: #warning", "warning: unused variable"] {
        assert_eq!(said.matches(warning).count(), 1, "{said}");
    }
    let counters = manager.end();
    assert_eq!((counters.remote, counters.home), (1, 0), "{:?}", counters.words);
    let names: Vec<_> = fs::read_dir(at).expect("a directory").flatten().collect();
    assert_eq!(names.len(), 4, "nothing is left behind: {names:?}");
}

fn fails() {
    let project = directory();
    let at = project.path();
    write(&at.join("a.c"), "#error no\n");
    write(&at.join("b.c"), "int f(void) { return g; }\n");
    let manager = Manager::start();
    for (name, error) in [("a.c", "#error no"), ("b.c", "undeclared")] {
        let output = manager.run("preprocess", at, &format!("gcc -c {name}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(error) && said.contains('^'), "as at home: {said}");
        assert_eq!(said.matches("error:").count(), 1, "{said}");
    }
    let counters = manager.end();
    assert_eq!((counters.remote, counters.home, counters.failed_remotely), (0, 2, 1));
    assert_eq!(counters.causes["could not be preprocessed apart"], 1);
}
