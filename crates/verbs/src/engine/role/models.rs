//! The models: a few threads that do what drivers do, in every order that three preemptions allow.
//! A lost wake-up shows as a deadlock, which loom reports.

use super::{Claim, DriverRole, Standby, Wake};
use loom::model::Builder;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread::{JoinHandle, spawn, yield_now};
use std::time::Duration;

/// The role, what the driver sleeps on, and something to wait for.
struct Stage {
    role: DriverRole,
    /// The wake-up descriptor in epoll.
    descriptor: Mutex<bool>,
    readable: Condvar,
    /// What a thread waits for; under a lock, as completions are.
    done: Mutex<bool>,
}

impl Stage {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            role: DriverRole::new(),
            descriptor: Mutex::new(false),
            readable: Condvar::new(),
            done: Mutex::new(false),
        })
    }

    fn is_done(&self) -> bool {
        *self.done.lock().expect("no panic")
    }

    fn wake(&self, whom: Wake) {
        if whom == Wake::Driver {
            *self.descriptor.lock().expect("no panic") = true;
            self.readable.notify_one();
        }
    }

    /// What [`crate::context::Core::turn`] does with a limit: sleeps until another thread wakes it.
    fn turn(&self, done: impl Fn() -> bool) {
        if !self.role.fall_asleep() {
            return;
        }
        if !done() {
            let mut readable = self.descriptor.lock().expect("no panic");
            while !*readable {
                readable = self.readable.wait(readable).expect("no panic");
            }
            *readable = false;
        }
        self.role.wake_up();
    }

    /// What [`crate::context::Core::wait_until`] does.
    fn wait(&self) {
        let (mut waiter, wake) = self.role.wait();
        self.wake(wake);
        while !self.is_done() {
            if waiter.drives() {
                self.turn(|| self.is_done());
            } else {
                waiter.sleep(None);
            }
        }
    }

    /// A completion comes, from a thread that is no driver.
    fn complete(&self) {
        *self.done.lock().expect("no panic") = true;
        self.wake(self.role.notify());
    }

    /// The background thread, until it has driven once or is stopped.
    fn drive_once(&self) {
        while !self.role.is_stopped() {
            if let Some(_held) = self.role.take_in_background() {
                return;
            }
            self.park(Duration::ZERO);
        }
    }

    /// The background thread, until it is stopped.
    fn drive(&self, watch: Duration) {
        while !self.role.is_stopped() {
            if let Some(_held) = self.role.take_in_background() {
                while !self.role.is_unwanted() {
                    self.turn(|| false);
                }
            }
            self.park(watch);
        }
    }

    /// A sleep with a time limit ends at once in a model, so it proves nothing about wake-ups.
    fn park(&self, limit: Duration) {
        if self.role.park(limit) == Standby::Watching {
            yield_now();
        }
    }

    fn stop(&self) {
        self.role.stop();
        self.wake(Wake::Driver);
    }
}

fn model(run: impl Fn(&Arc<Stage>) + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || run(&Stage::new()));
}

fn beside(stage: &Arc<Stage>, work: impl FnOnce(&Stage) + 'static) -> JoinHandle<()> {
    let stage = Arc::clone(stage);
    spawn(move || work(&stage))
}

/// The poller's one turn is over: a thread that began to wait during it drives itself.
#[test]
fn a_follower_takes_over_from_a_poller() {
    model(|stage| {
        let poller = beside(stage, |stage| drop(stage.role.take_for_turn()));
        let (mut waiter, _) = stage.role.wait();
        while !waiter.drives() {
            waiter.sleep(None);
        }
        drop(waiter);
        poller.join().expect("no panic");
        stage.role.hand_to_background();
        assert!(stage.role.take_in_background().is_some());
    });
}

#[test]
fn a_completion_ends_every_wait() {
    model(|stage| {
        let waiters = [(); 2].map(|()| beside(stage, Stage::wait));
        stage.complete();
        for waiter in waiters {
            waiter.join().expect("no panic");
        }
    });
}

/// The thread that waits for memory sees what a turn has placed there, without a lock.
#[test]
fn a_turn_of_another_thread_ends_a_wait() {
    model(|stage| {
        let poller = beside(stage, |stage| {
            if let Some(_held) = stage.role.take_for_turn() {
                *stage.done.lock().expect("no panic") = true;
                stage.wake(stage.role.notify());
            } else {
                stage.complete();
            }
        });
        stage.wait();
        poller.join().expect("no panic");
    });
}

/// After the last waiter has left, in any order, the background thread drives.
#[test]
fn the_last_to_leave_calls_the_background_thread() {
    model(|stage| {
        let background = beside(stage, Stage::drive_once);
        let other = beside(stage, |stage| drop(stage.role.wait()));
        drop(stage.role.wait());
        for thread in [background, other] {
            thread.join().expect("no panic");
        }
    });
}

/// Also while the background thread sleeps as the driver, or is about to.
#[test]
fn a_waiter_gets_the_role_from_the_background_thread() {
    model(|stage| {
        let background = beside(stage, |stage| stage.drive(Duration::ZERO));
        let (mut waiter, wake) = stage.role.wait();
        stage.wake(wake);
        while !waiter.drives() {
            waiter.sleep(None);
        }
        drop(waiter);
        stage.stop();
        background.join().expect("no panic");
    });
}

/// An application that hands the role back while the background thread stands down for it leaves no
/// other thread to drive. In the model no time passes, so the thread would not look again.
#[test]
fn a_claim_taken_back_leaves_a_driver() {
    model(|stage| {
        let background = beside(stage, |stage| stage.drive(Duration::MAX));
        stage.role.note_application();
        if let Some(Claim { wake, .. }) = stage.role.claim() {
            stage.wake(wake);
        }
        stage.role.hand_to_background();
        while !stage.role.is_in_background() {
            yield_now();
        }
        stage.stop();
        background.join().expect("no panic");
    });
}

/// The same when it is in the middle of a turn.
#[test]
fn an_application_that_rests_leaves_a_driver() {
    model(|stage| {
        let background = beside(stage, |stage| stage.drive(Duration::MAX));
        let other = beside(stage, |stage| drop(stage.role.take_for_turn()));
        stage.role.note_application();
        stage.role.hand_to_background();
        other.join().expect("no panic");
        while !stage.role.is_in_background() {
            yield_now();
        }
        stage.stop();
        background.join().expect("no panic");
    });
}
