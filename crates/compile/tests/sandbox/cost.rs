//! What a warm job costs the server besides the job itself.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use libtest_mimic::Trial;
use outboard_compile::sandbox::End;

use crate::support::{Server, job, toolchain, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("a_warm_job_costs_little", a_warm_job_costs_little)]
}

/// Nanoseconds of CPU that a process has used, all threads.
fn cpu_of(process: &str) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let used = tasks.map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|used| used.parse().ok()).unwrap_or(0)
    });
    Duration::from_nanos(used.sum())
}

/// The first processes of an anchor's cells.
pub(crate) fn cells_of(anchor: u32) -> Vec<String> {
    let children = fs::read_to_string(format!("/proc/{anchor}/task/{anchor}/children"));
    children.unwrap().split_whitespace().map(str::to_owned).collect()
}

struct Cost {
    /// Of the service and the cell, for each job.
    besides: Duration,
    /// Of the job itself.
    job: Duration,
    upcalls: f64,
}

fn cost(server: &Server, directory: &Path, line: &str, jobs: u32) -> Cost {
    let arguments: Vec<&OsStr> = line.split_whitespace().map(OsStr::new).collect();
    let job = job(directory, &arguments);
    for _ in 0..2 {
        assert_eq!(server.run(0, &job).0.end, End::Exited(0));
    }
    let cell = cells_of(server.anchor.id()).pop().unwrap();
    let before = (cpu_of("self") + cpu_of(&cell), server.view.upcalls());
    let mut used = Duration::ZERO;
    for _ in 0..jobs {
        let (ended, outcome) = server.run(0, &job);
        assert_eq!((ended.end, outcome.refused), (End::Exited(0), None));
        used += ended.usage.user + ended.usage.system;
    }
    let after = (cpu_of("self") + cpu_of(&cell), server.view.upcalls());
    let (asked, earlier) = (after.1, before.1);
    let all = |up: outboard_compile::view::Upcalls| up.look_ups + up.reads + up.others + up.changes;
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let upcalls = (all(asked) - all(earlier)) as f64 / f64::from(jobs);
    Cost { besides: (after.0 - before.0) / jobs, job: used / jobs, upcalls }
}

/// In a process of its own, so that nobody else's work is counted.
fn a_warm_job_costs_little() {
    let itself = Command::new(std::env::current_exe().unwrap()).arg("cost").output().unwrap();
    assert!(itself.status.success(), "{}", String::from_utf8_lossy(&itself.stderr));
    eprint!("{}", String::from_utf8_lossy(&itself.stdout));
}

/// What a job may cost a server besides itself on a machine that does other things as well; what
/// it does cost is in the output.
const BESIDES_MAX: Duration = Duration::from_millis(4);

/// Measures and prints.
pub(crate) fn measure() {
    let home = tempfile::Builder::new().prefix("home").tempdir().unwrap();
    let cxx = "#include <map>\n#include <regex>\n#include <iostream>\n\
        int main() {\n std::map<int, std::string> m; std::regex r(\"a\");\n\
        std::cout << m.size(); }\n";
    fs::write(home.path().join("big.cpp"), cxx).unwrap();
    let c = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
        int main(void) { return 0; }\n";
    fs::write(home.path().join("small.c"), c).unwrap();
    let roots = [home.path(), Path::new("/usr/include"), Path::new("/usr/local/include")];
    let binds = toolchain(&["/usr/bin/gcc", "/usr/bin/g++", "/usr/bin/true"]);
    let server = Server::start(1, &roots, binds);
    for (line, jobs) in [
        ("/usr/bin/true", 300),
        ("/usr/bin/gcc -O2 -g -c small.c -o small.o", 40),
        ("/usr/bin/g++ -O0 -c big.cpp -o big.o", 2),
    ] {
        let Cost { besides, job, upcalls } = cost(&server, home.path(), line, jobs);
        println!("{line}: {besides:?} besides the job's {job:?}, {upcalls} upcalls");
        assert!(besides < BESIDES_MAX || !line.contains("/true"), "{line}: {besides:?}");
    }
}
