//! From end to end: wrappers, a manager's loop, an executor, a server.

use crate::builds::{directory, write};
use crate::support::{Lab, locally, trial};
use libtest_mimic::Trial;
use outboard_cc::place::ManagerPlace;
use outboard_cc::real::WrapperCall;
use outboard_compile::manager::{Manager, Settings};
use outboard_compile::stats::{JobCounters, Journal, SavedJournal};
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
        trial("what_cannot_be_preprocessed_is_compiled_locally", fails),
    ]
}

/// Runs this program as a wrapper: the compiler's command line follows the word `wrapper`.
pub(crate) fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(2);
    let call = words.next().map(|name| WrapperCall { name, arguments: words.collect() });
    call.map_or(ExitCode::FAILURE, |call| outboard_cc::wrapper::compile(&call))
}

/// A manager in a thread, with one server. It ends when no wrapper has connected for a while.
struct ManagerThread {
    run: TempDir,
    thread: JoinHandle<()>,
}

impl ManagerThread {
    fn start() -> Self {
        let run = directory();
        let place = run.path().join("outboard");
        fs::create_dir(&place).expect("a directory");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).expect("mine");
        let socket = ManagerPlace::at(&place).expect("a place").socket();
        let listener = UnixListener::bind(socket).expect("a socket");
        let thread = thread::spawn(move || {
            let Lab { executor, servers, .. } = Lab::new(1, 2);
            let journal = Journal::new(Some(&place));
            let idle = Some(Duration::from_secs(2));
            let settings = Settings { slots: 1, patience: None, idle, ..Settings::default() };
            let manager = Manager::new(listener, None, executor, settings, journal);
            manager.expect("a loop").run().expect("it ends");
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

    /// The statistics, after the manager has ended.
    fn end(self) -> JobCounters {
        self.thread.join().expect("it does not panic");
        SavedJournal::load(&self.run.path().join("outboard")).expect("saved").counters
    }
}

fn preprocesses(mode: &str) {
    const LINE: &str = "gcc -O2 -Wall -Iinclude -MD -c src/a.c -o a.o";
    let project = directory();
    let at = project.path();
    write(&at.join("include/a.h"), "#warning preprocessing\n");
    write(&at.join("src/a.c"), "#include \"a.h\"\nint f(void) { int unused; return 1; }\n");
    locally(at, &LINE.split(' ').collect::<Vec<_>>());
    let outputs = ["a.o", "a.d"];
    let expected = outputs.map(|name| fs::read(at.join(name)).expect(name));
    outputs.iter().for_each(|name| fs::remove_file(at.join(name)).expect(name));
    let manager = ManagerThread::start();
    let output = manager.run(mode, at, LINE);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(outputs.map(|name| fs::read(at.join(name)).expect(name)), expected);
    for warning in ["warning: #warning", "warning: unused variable"] {
        assert_eq!(said.matches(warning).count(), 1, "{said}");
    }
    let counters = manager.end();
    assert_eq!((counters.remote, counters.local), (1, 0), "{:?}", counters.words);
    let names: Vec<_> = fs::read_dir(at).expect("a directory").flatten().collect();
    assert_eq!(names.len(), 4, "nothing is left behind: {names:?}");
}

fn fails() {
    let project = directory();
    let at = project.path();
    write(&at.join("a.c"), "#error no\n");
    write(&at.join("b.c"), "int f(void) { return g; }\n");
    let manager = ManagerThread::start();
    for (name, error) in [("a.c", "#error no"), ("b.c", "undeclared")] {
        let output = manager.run("preprocess", at, &format!("gcc -c {name}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(error) && said.contains('^'), "as locally: {said}");
        assert_eq!(said.matches("error:").count(), 1, "{said}");
    }
    let counters = manager.end();
    assert_eq!((counters.remote, counters.local, counters.failed_remotely), (0, 2, 1));
    assert_eq!(counters.causes["could not be preprocessed locally"], 1);
}
