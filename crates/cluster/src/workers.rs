//! Threads that do for a loop what it must not wait for: what asks a disk, or computes for long.
//!
//! They are bounded in number, start when they are needed, and end when nothing has come for a
//! while, or when nobody is left who could give them something. A task carries its own way to
//! answer, and wakes the loop. A task that never ends keeps its thread; how long to wait for an
//! answer is for the loop to decide.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a thread without work stays.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Tasks that wait for a thread, at most.
const TASKS_MAX: usize = 4096;

type Task = Box<dyn FnOnce() + Send>;

/// See the [module](self). Clones have the same threads.
#[derive(Clone)]
pub struct Workers(Arc<Handle>);

/// What can give the threads something to do.
struct Handle(Arc<Shared>);

struct Shared {
    name: &'static str,
    threads_max: usize,
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    threads: usize,
    /// Those of them that wait for a task.
    idle: usize,
    /// No other task will come.
    is_over: bool,
}

impl Workers {
    /// No thread yet, and never more than `threads_max`, which are called `name`.
    #[must_use]
    pub fn new(name: &'static str, threads_max: usize) -> Self {
        let (queue, more) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Handle(Arc::new(Shared { name, threads_max, queue, more }))))
    }

    /// Has a thread do this. False if it is not done: too much waits already, or this machine
    /// starts no thread.
    pub fn run(&self, task: impl FnOnce() + Send + 'static) -> bool {
        let shared = &self.0.0;
        let mut queue = shared.queue();
        if queue.tasks.len() >= TASKS_MAX {
            return false;
        }
        queue.tasks.push_back(Box::new(task));
        if queue.idle < queue.tasks.len() && queue.threads < shared.threads_max {
            let (own, name) = (Arc::clone(shared), shared.name.to_owned());
            let started = thread::Builder::new().name(name).spawn(move || own.work());
            queue.threads += usize::from(started.is_ok());
        }
        if queue.threads == 0 {
            queue.tasks.pop_back();
            return false;
        }
        drop(queue);
        shared.more.notify_one();
        true
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.queue().is_over = true;
        self.0.more.notify_all();
    }
}

impl Shared {
    /// No task runs under the lock, so after a panic the queue is still valid.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            // The panic has been printed; its answer does not come, and other tasks are done.
            let _panicked = catch_unwind(AssertUnwindSafe(task));
        }
    }

    /// Waits for a task; `None` when this thread is to end.
    fn next(&self) -> Option<Task> {
        let mut queue = self.queue();
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                return Some(task);
            }
            if queue.is_over {
                return None;
            }
            queue.idle += 1;
            let woken = self.more.wait_timeout(queue, IDLE_MAX);
            let (again, waited) = woken.unwrap_or_else(PoisonError::into_inner);
            queue = again;
            queue.idle -= 1;
            if waited.timed_out() && queue.tasks.is_empty() {
                queue.threads -= 1;
                return None;
            }
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.0.0.queue();
        f.debug_struct("Workers")
            .field("name", &self.0.0.name)
            .field("waiting", &queue.tasks.len())
            .field("threads", &queue.threads)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_testkit::{PATIENCE, eventually};
    use std::sync::mpsc;

    #[test]
    fn a_task_that_hangs_holds_up_neither_the_caller_nor_other_threads() {
        let workers = Workers::new("test", 2);
        let (release, hangs) = mpsc::channel::<()>();
        assert!(workers.run(move || assert!(hangs.recv().is_err())));
        let (said, heard) = mpsc::channel();
        for number in 0..100 {
            let said = said.clone();
            assert!(workers.run(move || said.send(number).expect("the test waits")));
        }
        let all: Vec<i32> = (0..100).map(|_| heard.recv_timeout(PATIENCE).expect("soon")).collect();
        assert!(all.is_sorted(), "one thread did them in order");
        drop(release);
    }

    #[test]
    fn a_task_that_panics_costs_its_own_answer_alone() {
        let workers = Workers::new("test", 1);
        let (said, heard) = mpsc::channel();
        let lost = said.clone();
        workers.run(move || {
            let _lost = lost;
            panic!("as the test wants");
        });
        workers.run(move || said.send(1).expect("the test waits"));
        assert_eq!(heard.iter().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn threads_end_with_the_last_value_that_could_give_them_something() {
        let workers = Workers::new("test", 2);
        let shared = Arc::clone(&workers.0.0);
        let (said, heard) = mpsc::channel();
        let own = workers.clone();
        assert!(workers.run(move || drop(own)));
        assert!(workers.run(move || said.send(1).expect("the test waits")));
        drop(workers);
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(1), "what was given is done");
        eventually("the threads end", || Arc::strong_count(&shared) == 1);
        // One that ends because nothing has come for a while is counted out first.
        assert!(shared.queue().threads > 0, "idle threads stay for a while");
    }

    #[test]
    fn what_waits_is_bounded() {
        let workers = Workers::new("test", 1);
        let (release, hangs) = mpsc::channel::<()>();
        let (began, has_begun) = mpsc::channel();
        workers.run(move || {
            began.send(()).expect("the test waits");
            assert!(hangs.recv().is_err());
        });
        has_begun.recv().expect("it begins");
        let taken = (0..2 * TASKS_MAX).filter(|_| workers.run(|| {})).count();
        assert_eq!(taken, TASKS_MAX);
        drop(release);
    }
}
