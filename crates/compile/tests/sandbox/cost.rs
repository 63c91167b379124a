//! The server's CPU time for a warm job besides the job itself.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use libtest_mimic::Trial;
use outboard_compile::sandbox::JobEnd;

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

/// The first processes of a supervisor's slot sandboxes.
pub(crate) fn slot_sandboxes_of(supervisor: u32) -> Vec<String> {
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
    children.unwrap().split_whitespace().map(str::to_owned).collect()
}

struct Cost {
    /// CPU time of the service and the slot sandbox, for each job.
    besides: Duration,
    /// CPU time of the slot sandbox alone.
    slot_sandbox: Duration,
    /// CPU time of the job itself.
    job: Duration,
    upcalls: f64,
}

fn cost(server: &Server, directory: &Path, line: &str, jobs: u32) -> Cost {
    let arguments: Vec<&OsStr> = line.split_whitespace().map(OsStr::new).collect();
    let job = job(directory, &arguments);
    for _ in 0..2 {
        assert_eq!(server.run_and_hash(0, &job).0.end, JobEnd::Exited(0));
    }
    let slot_sandbox = slot_sandboxes_of(server.supervisor.id()).pop().unwrap();
    let before = (cpu_of("self"), server.view.upcalls(), cpu_of(&slot_sandbox));
    let mut used = Duration::ZERO;
    for _ in 0..jobs {
        let (ended, outcome) = server.run_and_hash(0, &job);
        assert_eq!((ended.end, outcome.refused), (JobEnd::Exited(0), None));
        used += ended.usage.user + ended.usage.system;
    }
    let after = (cpu_of("self"), server.view.upcalls(), cpu_of(&slot_sandbox));
    let slot_sandbox = (after.2 - before.2) / jobs;
    let (asked, earlier) = (after.1, before.1);
    let all =
        |up: outboard_compile::view::UpcallCounts| up.look_ups + up.reads + up.others + up.changes;
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let upcalls = (all(asked) - all(earlier)) as f64 / f64::from(jobs);
    Cost {
        besides: (after.0 - before.0) / jobs + slot_sandbox,
        slot_sandbox,
        job: used / jobs,
        upcalls,
    }
}

/// Measured in a process of its own, so that no other work is counted.
fn a_warm_job_costs_little() {
    let itself = Command::new(std::env::current_exe().unwrap()).arg("cost").output().unwrap();
    assert!(itself.status.success(), "{}", String::from_utf8_lossy(&itself.stderr));
    eprint!("{}", String::from_utf8_lossy(&itself.stdout));
}

/// Upper limit of a server's CPU time for the shortest job besides the job itself, as a multiple of
/// the job's own. The measured times are in the output.
const BESIDES_MAX: u32 = 4;

/// C++ source whose object, with debug information, has about ten megabytes.
fn heavy() -> String {
    let functions = (0..20).map(|at| format!("int f{at}(int x) {{ T<{at}> t; return t.f(x); }}\n"));
    let template = "#include <map>\n#include <string>\n#include <vector>\n\
        template<int N> struct T { std::map<int, std::string> m;\n\
        std::vector<std::map<std::string, T*>> v;\n\
        int f(int x) { m[x] += \"a\"; v.emplace_back(); v.back()[\"q\"] = this;\n\
        return (int)m.size() + N; } };\n";
    std::iter::once(template.to_owned()).chain(functions).collect()
}

/// Measures and prints.
pub(crate) fn measure() {
    let home = tempfile::Builder::new().prefix("home").tempdir().unwrap();
    let cxx = "#include <map>\n#include <regex>\n#include <iostream>\n\
        int main() {\n std::map<int, std::string> m; std::regex r(\"a\");\n\
        std::cout << m.size(); }\n";
    fs::write(home.path().join("big.cpp"), cxx).unwrap();
    fs::write(home.path().join("heavy.cpp"), heavy()).unwrap();
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
        ("/usr/bin/g++ -g -O0 -c heavy.cpp -o heavy.o", 2),
    ] {
        let Cost { besides, slot_sandbox, job, upcalls } = cost(&server, home.path(), line, jobs);
        println!(
            "{line}: {besides:?} (slot's sandbox: {slot_sandbox:?}) besides the job's {job:?}, \
             {upcalls} upcalls"
        );
        let is_shortest = line.contains("/true");
        assert!(!is_shortest || besides < job * BESIDES_MAX, "{line}: {besides:?}, {job:?}");
    }
}
