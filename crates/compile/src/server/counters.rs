//! What a server has done for its clients since it was started: plain numbers of its loop.

use crate::protocol::JobRefusal;
use serde::Serialize;

/// Sums over jobs. A job counts when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerCounters {
    /// Jobs whose compiler ran to its end, with any exit code.
    pub jobs_ran: u64,
    /// Jobs that their clients cancelled.
    pub jobs_cancelled: u64,
    /// Jobs refused because the compiler is not here.
    pub refused_toolchain: u64,
    /// Jobs refused because they used a path that the client does not show.
    pub refused_withheld: u64,
    /// Jobs refused because a file changed meanwhile.
    pub refused_stale: u64,
    /// Jobs refused because they exceeded a limit.
    pub refused_limit: u64,
    /// Jobs refused because of an error of this server.
    pub refused_trouble: u64,
    /// Sandboxes that were started for clients.
    pub sandboxes: u64,
    /// Time from the arrivals of jobs to the starts of their compilers.
    pub prepare_us: u64,
    /// Time that compilers ran.
    pub run_us: u64,
    /// Processor time of compilers.
    pub cpu_us: u64,
    /// Bytes that came from clients for jobs.
    pub fetched_bytes: u64,
}

impl ServerCounters {
    /// Counts a job that is refused.
    pub(crate) fn refuse(&mut self, refusal: &JobRefusal) {
        let count = match refusal {
            JobRefusal::Toolchain => &mut self.refused_toolchain,
            JobRefusal::Withheld { .. } => &mut self.refused_withheld,
            JobRefusal::Stale { .. } => &mut self.refused_stale,
            JobRefusal::Limit { .. } => &mut self.refused_limit,
            JobRefusal::Trouble { .. } => &mut self.refused_trouble,
        };
        *count += 1;
    }

    /// Adds another client's.
    pub(crate) fn add(mut self, more: &Self) -> Self {
        let rows = [
            (&mut self.jobs_ran, more.jobs_ran),
            (&mut self.jobs_cancelled, more.jobs_cancelled),
            (&mut self.refused_toolchain, more.refused_toolchain),
            (&mut self.refused_withheld, more.refused_withheld),
            (&mut self.refused_stale, more.refused_stale),
            (&mut self.refused_limit, more.refused_limit),
            (&mut self.refused_trouble, more.refused_trouble),
            (&mut self.sandboxes, more.sandboxes),
            (&mut self.prepare_us, more.prepare_us),
            (&mut self.run_us, more.run_us),
            (&mut self.cpu_us, more.cpu_us),
            (&mut self.fetched_bytes, more.fetched_bytes),
        ];
        rows.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_every_row() {
        let mut one = ServerCounters { jobs_ran: 2, cpu_us: u64::MAX, ..ServerCounters::default() };
        one.refuse(&JobRefusal::Toolchain);
        one.refuse(&JobRefusal::Trouble { what: String::new() });
        let both = one.add(&one);
        let rows = |counters: &ServerCounters| {
            let value = serde_json::to_value(counters).expect("plain data");
            let object = value.as_object().expect("rows").values();
            object.map(|row| row.as_u64().expect("a number")).collect::<Vec<_>>()
        };
        let doubled = rows(&one).into_iter().map(|row| row.saturating_mul(2));
        assert_eq!(rows(&both), doubled.collect::<Vec<_>>());
    }
}
