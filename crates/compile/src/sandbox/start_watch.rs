//! Whether a program or a sandbox that was started hangs, told by what the kernel says of its
//! tasks.
//!
//! On a busy machine a start waits for a processor for as long as others have it, and no time
//! limit fits all machines. One that hangs, because it was stopped or waits for what never comes,
//! neither runs nor is able to run. Never looks at whether a start has succeeded, or has died: its
//! channel says that, and at once.

use crate::running_time::RunningTime;
use std::fs;
use std::time::{Duration, Instant};

/// How long nothing may move in a start.
pub(crate) const HANG_MAX: Duration = Duration::from_secs(10);
/// A start that moves, and never comes to an end, may take this many times as long.
const LIMITS_MAX: u32 = 30;
/// Files of the kernel's are not read more often than this.
const STEP_MIN: Duration = Duration::from_millis(100);

/// What the kernel says of a start's tasks at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct StartActivity {
    /// One of them runs, or waits for a processor.
    is_runnable: bool,
    /// How often they have given up a processor: a task that has run and sleeps again has, also
    /// one that waits for a slow disk and gets a part of its file now and then.
    switches: u64,
}

impl StartActivity {
    /// Reads a task's `/proc/PID/status`.
    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()
        };
        let count = |name: &str| field(name)?.parse::<u64>().ok();
        let switches = count("voluntary_ctxt_switches:")?;
        let switches = switches.saturating_add(count("nonvoluntary_ctxt_switches:")?);
        Some(Self { is_runnable: field("State:")? == "R", switches })
    }

    fn beside(self, other: Self) -> Self {
        Self {
            is_runnable: self.is_runnable || other.is_runnable,
            switches: self.switches.saturating_add(other.switches),
        }
    }
}

/// Judges a start by what was seen of it. It is given the time.
#[derive(Debug)]
struct StartPatience {
    limit: Duration,
    looked: Option<Instant>,
    last: Option<StartActivity>,
    /// A watcher that was itself without a processor has not seen that nothing moved.
    time: RunningTime,
    /// How long nothing has moved.
    quiet: Duration,
}

impl StartPatience {
    fn new(limit: Duration) -> Self {
        let (time, quiet) = (RunningTime::default(), Duration::ZERO);
        Self { limit, looked: None, last: None, time, quiet }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= STEP_MIN)
    }

    /// Takes what was seen; `None` if it could not be read, which counts as if nothing moved.
    fn observe(&mut self, now: Instant, seen: Option<StartActivity>) {
        self.looked = Some(now);
        let before = self.time.passed();
        let step = self.time.pass(now) - before;
        let moves = seen.is_some_and(|seen| seen.is_runnable || self.last != Some(seen));
        self.quiet = if moves { Duration::ZERO } else { self.quiet + step };
        self.last = seen;
    }

    fn is_over(&self) -> bool {
        self.quiet >= self.limit || self.time.passed() >= self.limit * LIMITS_MAX
    }
}

/// Watches a task that starts something, with its children.
#[derive(Debug)]
pub(crate) struct StartWatch {
    task: u32,
    /// Children that have nothing to do with this start.
    others: Vec<u32>,
    patience: StartPatience,
}

impl StartWatch {
    /// Watches a process or a thread, with all of its children; nothing may move for as long as
    /// `limit`.
    pub(crate) fn new(task: u32, limit: Duration) -> Self {
        Self { task, others: Vec::new(), patience: StartPatience::new(limit) }
    }

    /// As [`Self::new`], but without the children that the task has now.
    pub(crate) fn of_next_child(task: u32, limit: Duration) -> Self {
        Self { others: children_of(task), ..Self::new(task, limit) }
    }

    /// Whether the start hangs. To be asked about once a second, or more often.
    pub(crate) fn hangs(&mut self, now: Instant) -> bool {
        if self.patience.is_due(now) {
            let seen = self.look();
            self.patience.observe(now, seen);
        }
        self.patience.is_over()
    }

    fn look(&self) -> Option<StartActivity> {
        // A kernel without CONFIG_PROC_CHILDREN shows no children.
        let children = children_of(self.task).into_iter();
        let children = children.filter(|child| !self.others.contains(child));
        let seen = children.chain([self.task]).filter_map(activity_of);
        seen.reduce(StartActivity::beside)
    }
}

fn children_of(task: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{task}/task/{task}/children"));
    children.unwrap_or_default().split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

fn activity_of(task: u32) -> Option<StartActivity> {
    // A task's name may be any bytes.
    let status = fs::read(format!("/proc/{task}/status")).ok()?;
    StartActivity::parse(&String::from_utf8_lossy(&status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use std::thread;

    const SECOND: Duration = Duration::from_secs(1);

    fn asleep(switches: u64) -> Option<StartActivity> {
        Some(StartActivity { is_runnable: false, switches })
    }

    /// Seconds after which a start that is looked at once a second is given up.
    fn given_up_after(seen: impl Fn(u64) -> Option<StartActivity>) -> Option<u64> {
        let (mut patience, begin) = (StartPatience::new(10 * SECOND), Instant::now());
        (0..1000).find(|second| {
            patience.observe(begin + Duration::from_secs(*second), seen(*second));
            patience.is_over()
        })
    }

    #[test]
    fn what_neither_runs_nor_could_is_given_up() {
        assert_eq!(given_up_after(|_| asleep(7)), Some(10));
        assert_eq!(given_up_after(|_| None), Some(10), "nothing can be read");
        assert_eq!(given_up_after(|second| asleep(second.min(20))), Some(30));
        let moves = |second| if second == 5 { None } else { asleep(7) };
        assert_eq!(given_up_after(moves), Some(16), "a file that could not be read once");
    }

    #[test]
    fn what_waits_for_a_processor_is_not_given_up_until_the_last() {
        let waits = Some(StartActivity { is_runnable: true, switches: 7 });
        assert_eq!(given_up_after(|_| waits), Some(300));
        assert_eq!(given_up_after(|second| asleep(second / 9)), Some(300), "a slow disk");
    }

    #[test]
    fn a_watcher_that_did_not_run_has_seen_nothing() {
        let (mut patience, begin) = (StartPatience::new(10 * SECOND), Instant::now());
        patience.observe(begin, asleep(7));
        patience.observe(begin + 60 * SECOND, asleep(7));
        assert!(!patience.is_over());
    }

    #[test]
    fn a_tasks_status_is_read() {
        let status = "Name:\tx\nState:\tR (running)\nvoluntary_ctxt_switches:\t3\n\
                      nonvoluntary_ctxt_switches:\t4\n";
        let runs = StartActivity { is_runnable: true, switches: 7 };
        assert_eq!(StartActivity::parse(status), Some(runs));
        let stopped = status.replace("R (running)", "T (stopped)");
        assert_eq!(StartActivity::parse(&stopped), asleep(7));
        assert_eq!(StartActivity::parse("State:\tR (running)\n"), None);
    }

    /// A shell with a script, which ends with the test.
    struct Script(Child);

    impl Script {
        fn start(script: &str) -> Self {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]).stdin(Stdio::null());
            Self(command.spawn().expect("a shell"))
        }
    }

    impl Drop for Script {
        fn drop(&mut self) {
            let _killed = self.0.kill();
            let _reaped = self.0.wait();
        }
    }

    /// Whether something hangs before a time is over, which is less than the last limit.
    fn hangs_within(mut watch: StartWatch, time: Duration) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < time {
            if watch.hangs(Instant::now()) {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }

    #[test]
    fn a_stopped_process_hangs_and_one_that_runs_does_not() {
        let limit = SECOND / 2;
        let stopped = Script::start("kill -STOP $$");
        assert!(hangs_within(StartWatch::new(stopped.0.id(), limit), 20 * limit));
        let busy = Script::start("while :; do :; done");
        assert!(!hangs_within(StartWatch::new(busy.0.id(), limit), 3 * limit));
    }

    #[test]
    fn a_child_counts_unless_it_was_there_before() {
        // The shell waits for its child, which is busy for as long as the shell is there.
        let parent = Script::start("(while kill -0 $$; do :; done) 2>/dev/null & wait");
        let id = parent.0.id();
        let begin = Instant::now();
        while children_of(id).is_empty() {
            assert!(begin.elapsed() < 60 * SECOND, "the shell has no child");
            thread::sleep(Duration::from_millis(1));
        }
        let limit = SECOND / 2;
        assert!(!hangs_within(StartWatch::new(id, limit), 3 * limit));
        assert!(hangs_within(StartWatch::of_next_child(id, limit), 20 * limit));
    }
}
