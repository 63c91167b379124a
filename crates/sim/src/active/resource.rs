//! What works at one thing at a time: a processor, a network card's pipeline, a link's transmitter.
//! Whatever comes while it works waits, in the order of arrival. Knows no events.

/// See the [module](self). It is told of work in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    free_at_ns: u64,
    busy_ns: u64,
    waited_ns: u64,
    served: u64,
}

impl Resource {
    /// Takes work of so many nanoseconds that arrives now; returns when it is done.
    pub fn serve(&mut self, now_ns: u64, work_ns: u64) -> u64 {
        let begins_ns = self.free_at_ns.max(now_ns);
        self.waited_ns += begins_ns - now_ns;
        self.busy_ns += work_ns;
        self.served += 1;
        self.free_at_ns = begins_ns + work_ns;
        self.free_at_ns
    }

    /// Pieces of work taken.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.served
    }

    /// Nanoseconds that a piece of work has waited on average.
    #[must_use]
    pub fn waited_ns_mean(&self) -> f64 {
        if self.served == 0 { 0.0 } else { self.waited_ns as f64 / self.served as f64 }
    }

    /// The part of the time until now in which it worked: at most 1.
    #[must_use]
    pub fn utilisation(&self, now_ns: u64) -> f64 {
        // Work that is taken and not yet done is of the future.
        let ahead_ns = self.free_at_ns.saturating_sub(now_ns);
        if now_ns == 0 { 0.0 } else { (self.busy_ns - ahead_ns) as f64 / now_ns as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernel::Kernel;
    use super::super::random::Random;
    use super::*;

    /// Nanoseconds of one piece of work.
    const WORK_NS: u64 = 1000;
    const PIECES: u64 = 3_000_000;

    /// Work of one length that arrives at random (Poisson) to such a load, and what came of it.
    fn random_arrivals(load: f64, seed: u64) -> (Resource, u64) {
        let (mut kernel, mut resource, mut random) =
            (Kernel::default(), Resource::default(), Random::new(seed));
        kernel.add(0, ());
        let mut most = 0.0_f64;
        for _ in 0..PIECES {
            kernel.next_event().expect("the next arrival");
            most = most.max(resource.utilisation(kernel.now_ns()));
            resource.serve(kernel.now_ns(), WORK_NS);
            let pause_ns = random.exponential(WORK_NS as f64 / load);
            kernel.add(kernel.now_ns() + pause_ns, ());
        }
        assert!(most <= 1.0, "{most}");
        (resource, kernel.now_ns())
    }

    #[test]
    fn waiting_is_as_the_closed_form_says() {
        // M/D/1 (Pollaczek and Khinchine): a piece waits load * work / (2 * (1 - load)).
        for load in [0.3, 0.5, 0.7] {
            let closed = load * WORK_NS as f64 / (2.0 * (1.0 - load));
            let found = random_arrivals(load, 1).0.waited_ns_mean();
            assert!((found / closed - 1.0).abs() < 0.01, "load {load}: {found} for {closed}");
        }
    }

    #[test]
    fn it_works_as_much_as_it_is_given_and_never_more_than_all_the_time() {
        for load in [0.2, 0.5, 0.9, 3.0] {
            let (resource, now_ns) = random_arrivals(load, 7);
            let (found, most) = (resource.utilisation(now_ns), load.min(1.0));
            assert!(found <= 1.0 && (found - most).abs() < 0.01, "load {load}: {found}");
            assert_eq!(resource.served(), PIECES);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_and_another_another() {
        let waited = |seed| random_arrivals(0.5, seed).0.waited_ns_mean().to_bits();
        assert_eq!(waited(3), waited(3));
        assert_ne!(waited(3), waited(4));
    }

    #[test]
    fn a_resource_without_work_has_done_none() {
        let resource = Resource::default();
        assert_eq!((resource.utilisation(0), resource.waited_ns_mean()), (0.0, 0.0));
        assert_eq!(resource.utilisation(10), 0.0);
    }
}
