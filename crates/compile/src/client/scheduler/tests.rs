//! The scheduler in virtual time.

use super::*;

const C: Digest = [1; 32];
const CXX: Digest = [2; 32];

/// A scheduler, its clock, and two servers to name.
struct Lab {
    scheduler: Scheduler,
    now: Instant,
}

const ONE: ServerId = ServerId(1);
const TWO: ServerId = ServerId(2);

impl Lab {
    fn new(servers: &[ServerId]) -> Self {
        let mut scheduler = Scheduler::default();
        for server in servers {
            scheduler.add_server(*server, 4);
        }
        Self { scheduler, now: Instant::now() }
    }

    fn later(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    fn submit(&mut self, ticket: TicketNumber) {
        self.scheduler.submit(ticket, C, self.now, false);
    }

    fn want(&mut self, server: ServerId) {
        self.scheduler.want(server, self.now);
    }

    fn dispatches(&mut self) -> Vec<Dispatch> {
        std::iter::from_fn(|| self.scheduler.poll()).collect()
    }
}

#[test]
fn jobs_are_assigned_in_order_to_servers_that_ask() {
    let mut lab = Lab::new(&[ONE, TWO]);
    for ticket in 1..=3 {
        lab.submit(ticket);
    }
    assert_eq!(lab.dispatches(), [], "no server has asked");
    lab.want(TWO);
    lab.want(ONE);
    assert_eq!(lab.dispatches(), [Dispatch::Assign(TWO, 1), Dispatch::Assign(ONE, 2)]);
}

#[test]
fn a_waiting_server_gets_the_next_job_at_once_and_only_one() {
    let mut lab = Lab::new(&[ONE]);
    lab.want(ONE);
    assert_eq!(lab.dispatches(), [Dispatch::Idle(ONE)]);
    lab.submit(1);
    lab.submit(2);
    assert_eq!(lab.dispatches(), [Dispatch::Assign(ONE, 1)], "it has asked once");
}

#[test]
fn the_least_busy_waiting_server_gets_the_job() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.submit(1);
    lab.want(ONE);
    lab.want(ONE);
    lab.want(TWO);
    lab.dispatches();
    lab.submit(2);
    assert_eq!(lab.dispatches(), [Dispatch::Assign(TWO, 2)]);
}

#[test]
fn what_a_lost_server_had_goes_first_to_another() {
    let mut lab = Lab::new(&[ONE, TWO]);
    for ticket in 1..=3 {
        lab.submit(ticket);
    }
    lab.want(ONE);
    lab.want(ONE);
    lab.dispatches();
    lab.scheduler.remove_server(ONE, lab.now);
    lab.want(TWO);
    lab.want(TWO);
    lab.want(TWO);
    assert_eq!(
        lab.dispatches(),
        [Dispatch::Assign(TWO, 1), Dispatch::Assign(TWO, 2), Dispatch::Assign(TWO, 3)]
    );
}

#[test]
fn without_servers_everything_runs_locally() {
    let mut lab = Lab::new(&[ONE]);
    lab.submit(1);
    lab.submit(2);
    lab.want(ONE);
    lab.dispatches();
    lab.scheduler.remove_server(ONE, lab.now);
    let local = |ticket| Dispatch::Local(ticket, LocalCause::NoServer);
    assert_eq!(lab.dispatches(), [local(1), local(2)]);
    lab.submit(3);
    assert_eq!(lab.dispatches(), [local(3)]);
}

#[test]
fn jobs_avoid_servers_that_lack_their_compiler_and_run_locally_if_all_do() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.scheduler.submit(1, CXX, lab.now, false);
    lab.want(ONE);
    lab.scheduler.lacks(ONE, 1, lab.now);
    lab.want(ONE);
    lab.want(TWO);
    assert_eq!(
        lab.dispatches(),
        [Dispatch::Assign(ONE, 1), Dispatch::Idle(ONE), Dispatch::Assign(TWO, 1)]
    );
    lab.scheduler.lacks(TWO, 1, lab.now);
    assert_eq!(lab.dispatches(), [Dispatch::Local(1, LocalCause::NoToolchain)]);
    lab.submit(2);
    assert_eq!(lab.dispatches(), [Dispatch::Assign(ONE, 2)], "other compilers it has");
    assert!(lab.scheduler.done(ONE, 2, lab.now));
    lab.later(61_000);
    lab.want(TWO);
    lab.scheduler.submit(3, CXX, lab.now, false);
    assert_eq!(
        lab.dispatches(),
        [Dispatch::Idle(TWO), Dispatch::Assign(TWO, 3)],
        "it may have it by now"
    );
}

#[test]
fn a_job_that_servers_fail_ends_locally() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.submit(1);
    for server in [ONE, TWO, ONE] {
        lab.want(server);
        assert_eq!(lab.dispatches(), [Dispatch::Assign(server, 1)]);
        lab.scheduler.failed(server, 1, lab.now);
    }
    assert_eq!(lab.dispatches(), [Dispatch::Local(1, LocalCause::Failures)]);
}

#[test]
fn a_returned_job_keeps_its_place() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.want(ONE);
    lab.submit(1);
    lab.submit(2);
    lab.dispatches();
    lab.scheduler.returned(ONE, 1, lab.now);
    lab.want(TWO);
    assert_eq!(lab.dispatches(), [Dispatch::Assign(TWO, 1)]);
}

#[test]
fn a_returned_job_goes_to_a_waiting_server() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.want(ONE);
    lab.want(TWO);
    lab.submit(1);
    lab.dispatches();
    lab.scheduler.returned(ONE, 1, lab.now);
    assert_eq!(lab.dispatches(), [Dispatch::Assign(TWO, 1)]);
}

#[test]
fn a_job_that_never_ends_ends_locally() {
    let mut lab = Lab::new(&[ONE]);
    lab.want(ONE);
    lab.submit(1);
    lab.dispatches();
    lab.later(32 * 60_000);
    lab.scheduler.tick(lab.now);
    assert_eq!(lab.dispatches(), []);
    lab.later(1);
    lab.scheduler.tick(lab.now);
    assert_eq!(
        lab.dispatches(),
        [Dispatch::Cancel(ONE, 1), Dispatch::Local(1, LocalCause::Failures)]
    );
}

#[test]
fn the_first_job_of_all_is_raced_too() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.want(ONE);
    lab.submit(1);
    lab.want(TWO);
    lab.dispatches();
    lab.later(30_001);
    lab.scheduler.tick(lab.now);
    assert_eq!(lab.dispatches(), [Dispatch::Assign(TWO, 1)]);
}

#[test]
fn a_slow_job_gets_a_second_copy_when_nothing_else_waits() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.submit(1);
    lab.submit(2);
    lab.want(ONE);
    lab.want(TWO);
    lab.later(100);
    assert!(lab.scheduler.done(TWO, 2, lab.now));
    lab.dispatches();
    lab.want(TWO);
    assert_eq!(lab.dispatches(), [Dispatch::Idle(TWO)], "too early");
    lab.later(1950);
    lab.scheduler.tick(lab.now);
    assert_eq!(lab.dispatches(), [Dispatch::Assign(TWO, 1)]);
    lab.scheduler.tick(lab.now);
    assert_eq!(lab.dispatches(), [], "two copies are enough");
    assert!(lab.scheduler.done(TWO, 1, lab.now));
    assert_eq!(lab.dispatches(), [Dispatch::Cancel(ONE, 1)]);
    assert!(!lab.scheduler.done(ONE, 1, lab.now), "the first result counts");
}

#[test]
fn one_lost_copy_of_two_is_no_loss() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.submit(1);
    lab.submit(2);
    lab.want(ONE);
    lab.want(TWO);
    assert!(lab.scheduler.done(TWO, 2, lab.now));
    lab.want(TWO);
    lab.later(3000);
    lab.scheduler.tick(lab.now);
    lab.dispatches();
    lab.scheduler.remove_server(ONE, lab.now);
    assert_eq!(lab.dispatches(), []);
    assert!(lab.scheduler.done(TWO, 1, lab.now));
}

#[test]
fn a_job_that_no_server_takes_in_time_runs_locally() {
    let mut lab = Lab::new(&[ONE]);
    lab.submit(1);
    lab.later(20_001);
    lab.scheduler.tick(lab.now);
    assert_eq!(lab.dispatches(), [Dispatch::Local(1, LocalCause::Waited)]);
}

#[test]
fn a_cancelled_job_is_taken_back() {
    let mut lab = Lab::new(&[ONE]);
    lab.submit(1);
    lab.submit(2);
    lab.want(ONE);
    lab.dispatches();
    lab.scheduler.cancel(1);
    lab.scheduler.cancel(2);
    assert_eq!(lab.dispatches(), [Dispatch::Cancel(ONE, 1)]);
    lab.want(ONE);
    assert_eq!(lab.dispatches(), [Dispatch::Idle(ONE)]);
}

#[test]
fn a_build_that_begins_waits_for_its_servers() {
    let mut lab = Lab::new(&[]);
    lab.scheduler.submit(1, C, lab.now, true);
    assert_eq!(lab.dispatches(), []);
    lab.scheduler.add_server(ONE, 4);
    lab.scheduler.settle();
    lab.want(ONE);
    assert_eq!(lab.dispatches(), [Dispatch::Assign(ONE, 1)]);
    lab.scheduler.remove_server(ONE, lab.now);
    lab.scheduler.submit(2, C, lab.now, true);
    lab.scheduler.settle();
    let local = |ticket| Dispatch::Local(ticket, LocalCause::NoServer);
    assert_eq!(lab.dispatches(), [local(1), local(2)]);
}

#[test]
fn a_server_cannot_have_any_number_of_slots() {
    let mut scheduler = Scheduler::default();
    scheduler.add_server(ServerId(1), u32::MAX);
    scheduler.add_server(ServerId(2), 3);
    assert_eq!(scheduler.capacity(), (2, SLOTS_MAX as usize + 3));
}

#[test]
fn a_job_that_takes_far_longer_than_others_may_run_locally() {
    let mut lab = Lab::new(&[ONE]);
    let slow = |lab: &Lab| lab.scheduler.slow(lab.now).collect::<Vec<_>>();
    lab.submit(1);
    lab.later(100_000);
    assert_eq!(slow(&lab), [0; 0], "no server has it");
    lab.want(ONE);
    lab.later(60_000);
    assert_eq!(slow(&lab), [0; 0]);
    lab.later(1);
    assert_eq!(slow(&lab), [1], "others are not known");
    lab.submit(2);
    lab.want(ONE);
    lab.later(7_000);
    assert!(lab.scheduler.done(ONE, 2, lab.now));
    lab.submit(3);
    lab.want(ONE);
    lab.later(70_000);
    assert_eq!(slow(&lab), [1]);
    lab.later(1);
    assert_eq!(slow(&lab), [1, 3], "ten times as long as the other");
    lab.scheduler.cancel(1);
    assert_eq!(slow(&lab), [3]);
}

#[test]
fn a_job_over_a_servers_limits_is_tried_on_one_other_server() {
    let exceed = |servers: &[ServerId]| {
        let mut lab = Lab::new(servers);
        servers.iter().for_each(|server| lab.want(*server));
        lab.dispatches();
        lab.submit(1);
        let mut tried = Vec::new();
        loop {
            let mut dispatches = lab.dispatches();
            dispatches.retain(|dispatch| !matches!(dispatch, Dispatch::Idle(_)));
            match dispatches[..] {
                [Dispatch::Assign(server, 1)] => {
                    tried.push(server);
                    lab.scheduler.exceeded(server, 1, lab.now);
                    lab.want(server);
                }
                [Dispatch::Local(1, LocalCause::Failures)] => return tried,
                ref other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(exceed(&[ONE]), [ONE]);
    assert_eq!(exceed(&[ONE, TWO, ServerId(3)]), [ONE, TWO]);
}
