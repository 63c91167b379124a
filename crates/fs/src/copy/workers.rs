//! Threads that work on what they find to do: each piece of work may bring more.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// Work that waits, and how many are at it.
#[derive(Debug)]
struct WorkLeft<T> {
    waiting: Vec<T>,
    busy: usize,
    is_ended: bool,
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct CopyWorkers<T> {
    left: Mutex<WorkLeft<T>>,
    changed: Condvar,
}

impl<T: Send> CopyWorkers<T> {
    pub(super) fn new(first: T) -> Self {
        let left = WorkLeft { waiting: vec![first], busy: 0, is_ended: false };
        Self { left: Mutex::new(left), changed: Condvar::new() }
    }

    /// There is more to do. What is found last is done first: so less waits.
    pub(super) fn add(&self, work: T) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).waiting.push(work);
        self.changed.notify_one();
    }

    /// Nothing more is begun.
    pub(super) fn end(&self) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).is_ended = true;
        self.changed.notify_all();
    }

    fn take(&self) -> Option<T> {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let waits =
            |left: &mut WorkLeft<T>| !left.is_ended && left.waiting.is_empty() && left.busy > 0;
        let waited = self.changed.wait_while(left, waits);
        let mut left = waited.unwrap_or_else(PoisonError::into_inner);
        let taken = if left.is_ended { None } else { left.waiting.pop() };
        left.busy += usize::from(taken.is_some());
        taken
    }

    fn done(&self) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.busy -= 1;
        if left.busy == 0 {
            self.changed.notify_all();
        }
    }

    /// Does all of it, on so many threads.
    pub(super) fn run(&self, threads: usize, work: impl Fn(T) + Sync) {
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(one) = self.take() {
                        work(one);
                        self.done();
                    }
                });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::CopyWorkers;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn work_that_brings_more_is_all_done() {
        let (workers, done) = (CopyWorkers::new(12_u64), AtomicU64::new(0));
        workers.run(3, |depth| {
            done.fetch_add(1, Ordering::Relaxed);
            if depth > 0 {
                workers.add(depth - 1);
                workers.add(depth - 1);
            }
        });
        assert_eq!(done.load(Ordering::Relaxed), (1 << 13) - 1);
        let ended = CopyWorkers::new(0_u64);
        ended.run(2, |count| {
            ended.add(count + 1);
            if count == 100 {
                ended.end();
            }
        });
    }
}
