//! What works at one thing at a time, and learns how long something takes when it begins: a node's
//! engine, its core. Whatever comes meanwhile waits, in the order of arrival. Knows no events.

use std::collections::VecDeque;

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Station<J> {
    waiting: VecDeque<J>,
    is_busy: bool,
    busy_ns: f64,
    served: u64,
}

impl<J> Default for Station<J> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), is_busy: false, busy_ns: 0.0, served: 0 }
    }
}

impl<J> Station<J> {
    /// A job arrives: it is returned if it begins now.
    pub fn arrive(&mut self, job: J) -> Option<J> {
        if self.is_busy {
            self.waiting.push_back(job);
            return None;
        }
        self.is_busy = true;
        Some(job)
    }

    /// The job that has begun occupies it for so long.
    pub fn occupy(&mut self, busy_ns: f64) {
        self.busy_ns += busy_ns;
        self.served += 1;
    }

    /// It is free: the job that begins now.
    pub fn next_job(&mut self) -> Option<J> {
        let next = self.waiting.pop_front();
        self.is_busy = next.is_some();
        next
    }

    /// Jobs begun.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.served
    }

    /// Nanoseconds of all of them.
    #[must_use]
    pub fn busy_ns(&self) -> f64 {
        self.busy_ns
    }
}
