//! The board in virtual time.

use super::*;

const C: Digest = [1; 32];
const CXX: Digest = [2; 32];

/// A board, its clock, and two servers to name.
struct Lab {
    board: Board,
    now: Instant,
}

const ONE: ServerId = ServerId(1);
const TWO: ServerId = ServerId(2);

impl Lab {
    fn new(servers: &[ServerId]) -> Self {
        let mut board = Board::default();
        for server in servers {
            board.add_server(*server, 4);
        }
        Self { board, now: Instant::now() }
    }

    fn later(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    fn submit(&mut self, ticket: TicketNumber) {
        self.board.submit(ticket, C, self.now, false);
    }

    fn want(&mut self, server: ServerId) {
        self.board.want(server, self.now);
    }

    fn orders(&mut self) -> Vec<Order> {
        std::iter::from_fn(|| self.board.poll()).collect()
    }
}

#[test]
fn jobs_go_out_in_order_to_who_asks() {
    let mut lab = Lab::new(&[ONE, TWO]);
    for ticket in 1..=3 {
        lab.submit(ticket);
    }
    assert_eq!(lab.orders(), [], "nobody has asked");
    lab.want(TWO);
    lab.want(ONE);
    assert_eq!(lab.orders(), [Order::Give(TWO, 1), Order::Give(ONE, 2)]);
}

#[test]
fn who_asked_in_vain_gets_the_next_job_at_once_and_one_only() {
    let mut lab = Lab::new(&[ONE]);
    lab.want(ONE);
    assert_eq!(lab.orders(), [Order::Idle(ONE)]);
    lab.submit(1);
    lab.submit(2);
    assert_eq!(lab.orders(), [Order::Give(ONE, 1)], "it has asked once");
}

#[test]
fn the_least_busy_of_those_who_wait_gets_it() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.submit(1);
    lab.want(ONE);
    lab.want(ONE);
    lab.want(TWO);
    lab.orders();
    lab.submit(2);
    assert_eq!(lab.orders(), [Order::Give(TWO, 2)]);
}

#[test]
fn what_a_lost_server_had_goes_first_to_another() {
    let mut lab = Lab::new(&[ONE, TWO]);
    for ticket in 1..=3 {
        lab.submit(ticket);
    }
    lab.want(ONE);
    lab.want(ONE);
    lab.orders();
    lab.board.remove_server(ONE, lab.now);
    lab.want(TWO);
    lab.want(TWO);
    lab.want(TWO);
    assert_eq!(lab.orders(), [Order::Give(TWO, 1), Order::Give(TWO, 2), Order::Give(TWO, 3)]);
}

#[test]
fn without_servers_everything_runs_at_home() {
    let mut lab = Lab::new(&[ONE]);
    lab.submit(1);
    lab.submit(2);
    lab.want(ONE);
    lab.orders();
    lab.board.remove_server(ONE, lab.now);
    let home = |ticket| Order::Home(ticket, HomeCause::NoServer);
    assert_eq!(lab.orders(), [home(1), home(2)]);
    lab.submit(3);
    assert_eq!(lab.orders(), [home(3)]);
}

#[test]
fn a_compiler_that_one_server_lacks_runs_at_another_and_at_home_if_all_do() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.board.submit(1, CXX, lab.now, false);
    lab.want(ONE);
    lab.board.lacks(ONE, 1, lab.now);
    lab.want(ONE);
    lab.want(TWO);
    assert_eq!(lab.orders(), [Order::Give(ONE, 1), Order::Idle(ONE), Order::Give(TWO, 1)]);
    lab.board.lacks(TWO, 1, lab.now);
    assert_eq!(lab.orders(), [Order::Home(1, HomeCause::NoToolchain)]);
    lab.submit(2);
    assert_eq!(lab.orders(), [Order::Give(ONE, 2)], "other compilers it has");
    assert!(lab.board.done(ONE, 2, lab.now));
    lab.later(61_000);
    lab.want(TWO);
    lab.board.submit(3, CXX, lab.now, false);
    assert_eq!(lab.orders(), [Order::Idle(TWO), Order::Give(TWO, 3)], "it may have it by now");
}

#[test]
fn a_job_that_servers_fail_ends_at_home() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.submit(1);
    for server in [ONE, TWO, ONE] {
        lab.want(server);
        assert_eq!(lab.orders(), [Order::Give(server, 1)]);
        lab.board.failed(server, 1, lab.now);
    }
    assert_eq!(lab.orders(), [Order::Home(1, HomeCause::Failures)]);
}

#[test]
fn a_returned_job_keeps_its_place() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.want(ONE);
    lab.submit(1);
    lab.submit(2);
    lab.orders();
    lab.board.returned(ONE, 1, lab.now);
    lab.want(TWO);
    assert_eq!(lab.orders(), [Order::Give(TWO, 1)]);
}

#[test]
fn a_returned_job_goes_to_who_waits_for_one() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.want(ONE);
    lab.want(TWO);
    lab.submit(1);
    lab.orders();
    lab.board.returned(ONE, 1, lab.now);
    assert_eq!(lab.orders(), [Order::Give(TWO, 1)]);
}

#[test]
fn a_job_that_never_ends_ends_at_home() {
    let mut lab = Lab::new(&[ONE]);
    lab.want(ONE);
    lab.submit(1);
    lab.orders();
    lab.later(600_000);
    lab.board.tick(lab.now);
    assert_eq!(lab.orders(), []);
    lab.later(1);
    lab.board.tick(lab.now);
    assert_eq!(lab.orders(), [Order::Cancel(ONE, 1), Order::Home(1, HomeCause::Failures)]);
}

#[test]
fn the_first_job_of_all_is_raced_too() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.want(ONE);
    lab.submit(1);
    lab.want(TWO);
    lab.orders();
    lab.later(30_001);
    lab.board.tick(lab.now);
    assert_eq!(lab.orders(), [Order::Give(TWO, 1)]);
}

#[test]
fn a_slow_job_gets_a_second_copy_when_nothing_else_waits() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.submit(1);
    lab.submit(2);
    lab.want(ONE);
    lab.want(TWO);
    lab.later(100);
    assert!(lab.board.done(TWO, 2, lab.now));
    lab.orders();
    lab.want(TWO);
    assert_eq!(lab.orders(), [Order::Idle(TWO)], "too early");
    lab.later(1950);
    lab.board.tick(lab.now);
    assert_eq!(lab.orders(), [Order::Give(TWO, 1)]);
    lab.board.tick(lab.now);
    assert_eq!(lab.orders(), [], "two copies are enough");
    assert!(lab.board.done(TWO, 1, lab.now));
    assert_eq!(lab.orders(), [Order::Cancel(ONE, 1)]);
    assert!(!lab.board.done(ONE, 1, lab.now), "the first result counts");
}

#[test]
fn one_lost_copy_of_two_is_no_loss() {
    let mut lab = Lab::new(&[ONE, TWO]);
    lab.submit(1);
    lab.submit(2);
    lab.want(ONE);
    lab.want(TWO);
    assert!(lab.board.done(TWO, 2, lab.now));
    lab.want(TWO);
    lab.later(3000);
    lab.board.tick(lab.now);
    lab.orders();
    lab.board.remove_server(ONE, lab.now);
    assert_eq!(lab.orders(), []);
    assert!(lab.board.done(TWO, 1, lab.now));
}

#[test]
fn a_job_that_nobody_takes_in_good_time_runs_at_home() {
    let mut lab = Lab::new(&[ONE]);
    lab.submit(1);
    lab.later(20_001);
    lab.board.tick(lab.now);
    assert_eq!(lab.orders(), [Order::Home(1, HomeCause::Waited)]);
}

#[test]
fn a_cancelled_job_is_taken_back() {
    let mut lab = Lab::new(&[ONE]);
    lab.submit(1);
    lab.submit(2);
    lab.want(ONE);
    lab.orders();
    lab.board.cancel(1);
    lab.board.cancel(2);
    assert_eq!(lab.orders(), [Order::Cancel(ONE, 1)]);
    lab.want(ONE);
    assert_eq!(lab.orders(), [Order::Idle(ONE)]);
}

#[test]
fn a_build_that_begins_waits_for_its_servers() {
    let mut lab = Lab::new(&[]);
    lab.board.submit(1, C, lab.now, true);
    assert_eq!(lab.orders(), []);
    lab.board.add_server(ONE, 4);
    lab.board.settle();
    lab.want(ONE);
    assert_eq!(lab.orders(), [Order::Give(ONE, 1)]);
    lab.board.remove_server(ONE, lab.now);
    lab.board.submit(2, C, lab.now, true);
    lab.board.settle();
    let home = |ticket| Order::Home(ticket, HomeCause::NoServer);
    assert_eq!(lab.orders(), [home(1), home(2)]);
}
