//! Remote executors for tests: no network, everything runs on this machine.

use outboard_compile::args::{Cause, Job};
use outboard_compile::manager::{
    Capacity, Finished, OutputPlacement, RemoteExecutor, Ticket, Trace, Verdict,
};
use std::collections::{HashMap, VecDeque};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

type Time = std::time::Instant;

/// Runs compilers in child processes, `slots` at a time.
#[derive(Debug)]
pub(crate) struct ProcessExecutor {
    slots: usize,
    waiting: VecDeque<(Ticket, Job)>,
    running: HashMap<Ticket, Time>,
    send: Sender<(Ticket, Verdict)>,
    receive: Receiver<(Ticket, Verdict)>,
    wakeups: PipeReader,
    waker: PipeWriter,
}

impl ProcessExecutor {
    pub(crate) fn new(slots: usize) -> io::Result<Self> {
        let (send, receive) = channel();
        let (wakeups, waker) = io::pipe()?;
        let (waiting, running) = (VecDeque::new(), HashMap::new());
        Ok(Self { slots, waiting, running, send, receive, wakeups, waker })
    }

    fn start(&mut self, ticket: Ticket, job: Job) {
        let (send, mut waker) = (self.send.clone(), self.waker.try_clone().expect("a descriptor"));
        self.running.insert(ticket, Time::now());
        thread::spawn(move || {
            let verdict = run(&job);
            // The receiver is gone when the test is over.
            let _ = send.send((ticket, verdict));
            let _ = waker.write_all(b"x");
        });
    }
}

fn run(job: &Job) -> Verdict {
    let started = Some(Time::now());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let output = Command::new(&job.compiler)
        .args(&job.argv[1..])
        .current_dir(&job.cwd)
        .env_clear()
        .env("PATH", path)
        .envs(job.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else { return Verdict::Local(Cause::ServersFailed.into()) };
    let (ended, server) = (Some(Time::now()), "here".to_owned());
    let trace = Trace { server, claimed: started, started, ended, ..Trace::default() };
    let status = output.status.into_raw();
    Verdict::Done(Finished { status, stdout: output.stdout, stderr: output.stderr, trace })
}

impl RemoteExecutor for ProcessExecutor {
    fn fd(&self) -> BorrowedFd<'_> {
        self.wakeups.as_fd()
    }

    fn submit(&mut self, ticket: Ticket, job: Job) {
        self.waiting.push_back((ticket, job));
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
    }

    fn turn(&mut self, _now: Time, verdicts: &mut Vec<(Ticket, Verdict)>) {
        while let Ok((ticket, verdict)) = self.receive.try_recv() {
            // One byte was written for it, after it was sent.
            let _ = self.wakeups.read(&mut [0]);
            self.running.remove(&ticket);
            verdicts.push((ticket, verdict));
        }
        while self.running.len() < self.slots
            && let Some((ticket, job)) = self.waiting.pop_front()
        {
            self.start(ticket, job);
        }
    }

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn capacity(&self) -> Capacity {
        Capacity { servers: 1, slots: self.slots }
    }

    fn is_claimed(&self, ticket: Ticket) -> bool {
        self.running.contains_key(&ticket)
    }
}

/// An executor that decides at once, by one function.
macro_rules! at_once {
    ($(#[$doc:meta])* $name:ident, $slots:literal, |$job:ident| $verdict:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name {
            quiet: PipeReader,
            _open: PipeWriter,
            verdicts: Vec<(Ticket, Verdict)>,
        }

        impl $name {
            pub(crate) fn new() -> io::Result<Self> {
                let (quiet, open) = io::pipe()?;
                Ok(Self { quiet, _open: open, verdicts: Vec::new() })
            }
        }

        impl RemoteExecutor for $name {
            fn fd(&self) -> BorrowedFd<'_> {
                self.quiet.as_fd()
            }

            fn submit(&mut self, ticket: Ticket, $job: Job) {
                let verdict: Option<Verdict> = $verdict;
                self.verdicts.extend(verdict.map(|verdict| (ticket, verdict)));
            }

            fn cancel(&mut self, ticket: Ticket) {
                self.verdicts.retain(|(other, _)| *other != ticket);
            }

            fn turn(&mut self, _now: Time, verdicts: &mut Vec<(Ticket, Verdict)>) {
                verdicts.append(&mut self.verdicts);
            }

            fn deadline(&self) -> Option<Time> {
                None
            }

            fn capacity(&self) -> Capacity {
                Capacity { servers: 1, slots: $slots }
            }

            fn is_claimed(&self, _ticket: Ticket) -> bool {
                false
            }
        }
    };
}

at_once!(
    /// Places one byte as the object, at once.
    Instant,
    1000,
    |job| {
        let mut placement = OutputPlacement::new(job.umask);
        let placed = placement.add(&job.absolute(job.object()), 0o666, b"o");
        Some(match placed.and_then(|()| placement.commit()) {
            Ok(()) => Verdict::Done(Finished::default()),
            Err(_) => Verdict::Local(Cause::Placement.into()),
        })
    }
);

at_once!(
    /// Every compiler fails, with an error text that must not be shown.
    Failing,
    1000,
    |_job| Some(Verdict::Done(Finished {
        status: 256,
        stderr: b"remote failure\n".to_vec(),
        ..Finished::default()
    }))
);

at_once!(
    /// Takes jobs and never gives a verdict.
    Absent,
    1000,
    |_job| None
);

at_once!(
    /// The same, with one slot.
    Stuck,
    1,
    |_job| None
);
