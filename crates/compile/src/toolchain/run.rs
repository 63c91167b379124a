//! Runs a program and returns its output, with limits on its size and on the time for which nothing
//! moves. A program that waits for a processor is waited for.

use crate::sandbox::{HANG_MAX, StartWatch};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that it may write to each of its outputs.
const SAID_MAX: usize = 1 << 20;
/// Time between two looks at a program that writes nothing.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two checks whether a program has ended, after it has closed its outputs.
const PAUSE: Duration = Duration::from_micros(100);

/// Runs a program without input and returns its output.
///
/// # Errors
/// It cannot be run; or it hangs or writes too much: then it is killed with its children.
pub(super) fn output(command: &mut Command) -> io::Result<Output> {
    output_within(command, HANG_MAX)
}

fn output_within(command: &mut Command, hang_max: Duration) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.process_group(0).spawn()?;
    let mut watch = StartWatch::new(child.id(), hang_max);
    let said = collect(&mut child, &mut watch);
    if said.is_err() {
        kill(&child);
        // Reaps it, unless it cannot be killed.
        let mut watch = StartWatch::new(child.id(), hang_max);
        let _ended = wait(&mut child, &mut watch);
    }
    said
}

fn collect(child: &mut Child, watch: &mut StartWatch) -> io::Result<Output> {
    let (stdout, stderr) = (read_all(child.stdout.take()), read_all(child.stderr.take()));
    let (stdout, stderr) = (receive(&stdout, watch)?, receive(&stderr, watch)?);
    let status = wait(child, watch)?;
    Ok(Output { status, stdout, stderr })
}

/// Reads an output in a thread, which ends when every process that holds the output has ended.
fn read_all(pipe: Option<impl Read + Send + 'static>) -> Receiver<io::Result<Vec<u8>>> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut said = Vec::new();
        let read = pipe.map_or(Ok(0), |pipe| pipe.take(SAID_MAX as u64 + 1).read_to_end(&mut said));
        // Of a program that is given up there is no receiver any more.
        let _sent = send.send(read.map(|_| said));
    });
    receive
}

fn receive(said: &Receiver<io::Result<Vec<u8>>>, watch: &mut StartWatch) -> io::Result<Vec<u8>> {
    let said = loop {
        match said.recv_timeout(LOOK) {
            Ok(said) => break said?,
            Err(RecvTimeoutError::Timeout) if !watch.hangs(Instant::now()) => {}
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
    };
    if said.len() > SAID_MAX { Err(io::Error::other("it writes too much")) } else { Ok(said) }
}

fn wait(child: &mut Child, watch: &mut StartWatch) -> io::Result<ExitStatus> {
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(status),
            None if watch.hangs(Instant::now()) => return Err(io::ErrorKind::TimedOut.into()),
            None => thread::sleep(PAUSE),
        }
    }
}

fn kill(child: &Child) {
    let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        // It fails if all processes have ended already.
        let _killed = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(300);

    fn say(script: &str, hang_max: Duration) -> io::Result<Output> {
        output_within(Command::new("/bin/sh").args(["-c", script]), hang_max)
    }

    #[test]
    fn a_programs_output_is_returned() {
        let said = say("echo out; echo err >&2; exit 3", HANG_MAX).expect("it runs");
        assert_eq!((&*said.stdout, &*said.stderr), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(said.status.code(), Some(3));
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        for script in ["sleep 60", "sleep 60 & wait", "sleep 60 &", "exec >&- 2>&-; sleep 60"] {
            let error = say(script, SHORT).expect_err(script);
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{script}: {error}");
        }
    }

    #[test]
    fn a_program_that_runs_is_waited_for() {
        let script = "end=$(($(date +%s) + 2)); while [ $(date +%s) -lt $end ]; do :; done";
        assert!(say(script, SHORT).expect("it ends").status.success());
    }

    #[test]
    fn a_program_that_writes_too_much_is_killed() {
        for script in ["cat /dev/zero", "cat /dev/zero >&2"] {
            let error = say(script, HANG_MAX).expect_err(script);
            assert_eq!(error.kind(), io::ErrorKind::Other, "{script}: {error}");
        }
    }
}
