//! Runs a program and returns its output, with limits on time and size.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes that it may write to each of its outputs.
const SAID_MAX: usize = 1 << 20;
/// Time between two checks whether a program has ended, after it has closed its outputs.
const PAUSE: Duration = Duration::from_micros(100);

/// Runs a program without input and returns its output.
///
/// # Errors
/// It cannot be run; or it does not end in time or writes too much: then it is killed with its
/// children.
pub(super) fn output(command: &mut Command) -> io::Result<Output> {
    output_within(command, TIME_MAX)
}

fn output_within(command: &mut Command, time: Duration) -> io::Result<Output> {
    let deadline = Instant::now() + time;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.process_group(0).spawn()?;
    let said = collect(&mut child, deadline);
    if said.is_err() {
        kill(&child);
        // Reaps it, unless it cannot be killed.
        let _ended = wait_until(&mut child, Instant::now() + time);
    }
    said
}

fn collect(child: &mut Child, deadline: Instant) -> io::Result<Output> {
    let (stdout, stderr) = (read_all(child.stdout.take()), read_all(child.stderr.take()));
    let (stdout, stderr) = (receive(&stdout, deadline)?, receive(&stderr, deadline)?);
    let status = wait_until(child, deadline)?;
    Ok(Output { status, stdout, stderr })
}

/// Reads an output in a thread, which ends when every process that holds the output has ended.
fn read_all(pipe: Option<impl Read + Send + 'static>) -> Receiver<io::Result<Vec<u8>>> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut said = Vec::new();
        let read = pipe.map_or(Ok(0), |pipe| pipe.take(SAID_MAX as u64 + 1).read_to_end(&mut said));
        // After the time limit there is no receiver any more.
        let _sent = send.send(read.map(|_| said));
    });
    receive
}

fn receive(said: &Receiver<io::Result<Vec<u8>>>, deadline: Instant) -> io::Result<Vec<u8>> {
    let left = deadline.saturating_duration_since(Instant::now());
    let said = said.recv_timeout(left).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    if said.len() > SAID_MAX { Err(io::Error::other("it writes too much")) } else { Ok(said) }
}

fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<ExitStatus> {
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(status),
            None if Instant::now() >= deadline => return Err(io::ErrorKind::TimedOut.into()),
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

    fn say(script: &str, time: Duration) -> io::Result<Output> {
        output_within(Command::new("/bin/sh").args(["-c", script]), time)
    }

    #[test]
    fn a_programs_output_is_returned() {
        let said = say("echo out; echo err >&2; exit 3", TIME_MAX).expect("it runs");
        assert_eq!((&*said.stdout, &*said.stderr), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(said.status.code(), Some(3));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_its_children() {
        let (begin, time) = (Instant::now(), Duration::from_millis(200));
        for script in ["sleep 60", "sleep 60 & wait", "sleep 60 &", "exec >&- 2>&-; sleep 60"] {
            let error = say(script, time).expect_err(script);
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{script}: {error}");
        }
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_program_that_writes_too_much_is_killed() {
        let begin = Instant::now();
        for script in ["cat /dev/zero", "cat /dev/zero >&2"] {
            let error = say(script, TIME_MAX / 2).expect_err(script);
            assert!(begin.elapsed() < TIME_MAX, "{error}");
        }
    }
}
