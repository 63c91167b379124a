//! An executor and a server that talk over loopback: real compilers on the one side, a project on
//! the other, encrypted sessions between them.
//!
//! Started with `supervisor` as its argument, this program is a sandbox supervisor; with `wrapper`
//! and a compiler's command line, it is a wrapper.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

mod support;

mod adopt;
mod builds;
mod preprocess;
#[expect(dead_code, reason = "another test uses the rest")]
#[path = "../../../cluster/tests/support/sessions.rs"]
mod sessions;
mod stopped;
mod wrapper;

/// Servers at once: more than a busy machine starts in good time.
const THREADS: usize = 2;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("supervisor") => {
            if std::env::args().nth(2).is_some_and(|flag| std::path::Path::new(&flag).exists()) {
                support::signal(std::process::id(), rustix::process::Signal::STOP);
            }
            return outboard_compile::sandbox::supervisor_main();
        }
        Some("wrapper") => return wrapper::main(),
        _ => {}
    }
    let trials = [adopt::trials(), builds::trials(), preprocess::trials(), stopped::trials()];
    let trials: Vec<Trial> = trials.into_iter().flatten().chain(wrapper::trials()).collect();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    libtest_mimic::run(&arguments, trials).exit_code()
}
