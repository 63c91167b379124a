//! Casts to many more nodes than this machine has processors, which other threads use as well: they
//! take long, and no node is to blame.

use super::*;
use std::sync::atomic::AtomicBool;

const NODES: usize = 64;
/// Plans for which there is no reason: a machine may be held up so long that a node seems to hang.
const PLANS_MAX: u32 = 4;

/// Threads that leave little to others, until they are dropped.
struct Burners(Arc<AtomicBool>);

impl Burners {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..2 * thread::available_parallelism().expect("processors").get() {
            let stopped = Arc::clone(&stop);
            thread::spawn(move || while !stopped.load(Ordering::Relaxed) {});
        }
        Self(stop)
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn sixty_four_nodes_on_a_starved_machine_have_it_and_no_plan_is_made_in_vain() {
    let lab = Lab::new(NODES);
    lab.fill(1_500_000);
    let _burners = Burners::start();
    for kind in [ScheduleKind::Chain, ScheduleKind::BinomialPipeline] {
        let request = lab.request(kind, Path::new(ROOT));
        let outcome = cast(CastRequest { publish: PublishMode::Replace, ..request });
        let outcome = outcome.expect("a cast");
        assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
        assert!(outcome.plans <= PLANS_MAX, "{kind}: {} plans", outcome.plans);
        println!("{kind}: {:?}, {} plans", outcome.took, outcome.plans);
        fs::write(lab.source.path().join("tree/below/deep/large"), vec![9; 1_500_000])
            .expect("written");
    }
    [0, 31, 63].into_iter().for_each(|node| lab.check(node));
}
