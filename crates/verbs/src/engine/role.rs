//! Which thread drives the engine: one atomic word, and the two places where threads sleep until it
//! changes.
//!
//! Everything that drivers must know about each other is a part of that word. So "take the role if
//! it is free" and "if it is taken, register to be woken" are each one atomic step, and no wake-up
//! is lost between looking and acting. The models in `models.rs` go through the interleavings.
//!
//! This file knows no socket. The driver sleeps in epoll, and only the caller can wake it there: a
//! function that returns [`Wake::Driver`] asks the caller to do so.

#[cfg(all(test, loom))]
mod models;

#[cfg(all(loom, test))]
use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};
use std::sync::PoisonError;
#[cfg(not(all(loom, test)))]
use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};
use std::time::{Duration, Instant};

/// Which kind of thread holds the role.
const HOLDER: u64 = 0b11;
const NOBODY: u64 = 0;
/// The engine's own thread.
const BACKGROUND: u64 = 1;
/// An application thread that waits for an event of the engine.
const WAITER: u64 = 2;
/// A thread that takes one turn without sleeping.
const POLLER: u64 = 3;
/// The driver sleeps in epoll, or is about to.
const SLEEPING: u64 = 1 << 2;
/// An application wants the background thread, which holds the role, to stand down.
const CLAIMED: u64 = 1 << 3;
/// An application has polled or waited since the background thread's last look.
const POLLED: u64 = 1 << 4;
/// An application that drove is about to do something else: the background thread is to drive.
const WANTED: u64 = 1 << 5;
/// The background thread sleeps until it is woken, or until its time is over.
const PARKED: u64 = 1 << 6;
/// It sleeps without a limit: the last application thread to leave wakes it.
const DEEP: u64 = 1 << 7;
/// The background thread is to end.
const STOPPED: u64 = 1 << 8;
/// Counts followers: threads that wait, without the role, for news or for the role.
const FOLLOWER: u64 = 1 << 12;
const FOLLOWERS: u64 = ((1 << 20) - 1) * FOLLOWER;
/// Counts news while there are followers; may wrap.
const NEWS: u64 = 1 << 32;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct DriverRole {
    word: AtomicU64,
    /// Held between looking at the word and going to sleep.
    gate: Mutex<()>,
    /// Wakes followers.
    news: Condvar,
    /// Wakes the background thread.
    call: Condvar,
}

/// Which thread the caller has to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// The driver, which sleeps in epoll.
    Driver,
    Nobody,
}

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// No thread had claimed the role before.
    pub(super) first: bool,
    pub(super) wake: Wake,
}

/// How the background thread has spent its time without the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standby {
    /// Not at all: no thread drives, and no application has driven recently.
    No,
    /// Until its time was over.
    Watching,
    /// Until an application thread woke it.
    Called,
}

/// The role, held by the background thread or for one turn; dropping it gives it up.
#[derive(Debug)]
pub(super) struct RoleGuard<'a>(&'a DriverRole);

/// A thread that waits: the driver or a follower. Dropping it leaves, also in a panic.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    role: &'a DriverRole,
    drives: bool,
    /// The news counter at the last look.
    seen: u64,
}

fn wake_if(sleeping: bool) -> Wake {
    if sleeping { Wake::Driver } else { Wake::Nobody }
}

impl DriverRole {
    pub(super) fn new() -> Self {
        Self {
            word: AtomicU64::new(NOBODY),
            gate: Mutex::new(()),
            news: Condvar::new(),
            call: Condvar::new(),
        }
    }

    /// Changes the word in one atomic step, or leaves it as it is if `change` returns `None`.
    /// Returns the word as it was before.
    fn change(&self, change: impl FnMut(u64) -> Option<u64>) -> Result<u64, u64> {
        self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change)
    }

    fn look(&self) -> u64 {
        self.word.load(Ordering::SeqCst)
    }

    fn gate(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_followers(&self) {
        // Threads that have looked at the word and not gone to sleep yet hold the gate.
        drop(self.gate());
        self.news.notify_all();
    }

    fn call_background(&self) {
        drop(self.gate());
        self.call.notify_all();
    }

    /// An application thread polls or waits.
    #[inline]
    pub(super) fn note_application(&self) {
        if self.word.load(Ordering::Relaxed) & POLLED == 0 {
            self.word.fetch_or(POLLED, Ordering::SeqCst);
        }
    }

    /// True while the background thread drives and no application has asked it to stand down.
    pub(super) fn is_in_background(&self) -> bool {
        self.look() & (HOLDER | CLAIMED) == BACKGROUND
    }

    /// True when the background thread, which holds the role, is to give it up.
    pub(super) fn is_unwanted(&self) -> bool {
        self.look() & (CLAIMED | STOPPED) != 0
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.look() & STOPPED != 0
    }

    /// Asks the background thread to stand down; `None` when it does not drive.
    pub(super) fn claim(&self) -> Option<Claim> {
        let claimed = |word| (word & !WANTED) | CLAIMED;
        let change = |word| (word & HOLDER == BACKGROUND).then(|| claimed(word));
        let before = self.change(change).ok()?;
        Some(Claim { first: before & CLAIMED == 0, wake: wake_if(before & SLEEPING != 0) })
    }

    /// The role for one turn, unless another thread has it.
    pub(super) fn take_for_turn(&self) -> Option<RoleGuard<'_>> {
        self.change(|word| (word & HOLDER == NOBODY).then_some(word | POLLER)).ok()?;
        Some(RoleGuard(self))
    }

    /// The role for the background thread, unless an application has it, wants it, or has driven
    /// since the last look.
    pub(super) fn take_in_background(&self) -> Option<RoleGuard<'_>> {
        let driven = |word| word & (POLLED | WANTED) == POLLED;
        let free = |word| word & (HOLDER | FOLLOWERS | STOPPED) == NOBODY && !driven(word);
        let taken = |word| (word & !(WANTED | POLLED)) | BACKGROUND;
        self.change(|word| free(word).then(|| taken(word))).ok()?;
        Some(RoleGuard(self))
    }

    /// A thread begins to wait. It gets the role if no thread had it; otherwise it is registered as
    /// a follower, and checks its condition once more before it calls [`Waiter::sleep`].
    pub(super) fn wait(&self) -> (Waiter<'_>, Wake) {
        let change = |word: u64| {
            let word = (word & !WANTED) | POLLED;
            Some(match word & HOLDER {
                NOBODY => word | WAITER,
                BACKGROUND => (word + FOLLOWER) | CLAIMED,
                _ => word + FOLLOWER,
            })
        };
        let before = self.change(change).unwrap_or_else(|word| word);
        let holder = before & HOLDER;
        let waiter = Waiter { role: self, drives: holder == NOBODY, seen: before / NEWS };
        (waiter, wake_if(holder == BACKGROUND && before & SLEEPING != 0))
    }

    /// The driver is about to sleep: from here on, threads that have work for it wake it. False
    /// when the background thread has been asked to stand down instead.
    pub(super) fn fall_asleep(&self) -> bool {
        let stay = |word| word & HOLDER != BACKGROUND || word & (CLAIMED | STOPPED) == 0;
        self.change(|word| stay(word).then_some(word | SLEEPING)).is_ok()
    }

    /// The driver has slept.
    pub(super) fn wake_up(&self) {
        self.word.fetch_and(!SLEEPING, Ordering::SeqCst);
    }

    /// There is work for the driver.
    pub(super) fn poke(&self) -> Wake {
        wake_if(self.look() & SLEEPING != 0)
    }

    /// Something happened for which a thread may wait.
    pub(super) fn notify(&self) -> Wake {
        // The word changes even without followers, so that the next thread sees what has happened.
        let counted =
            |word: u64| Some(if word & FOLLOWERS == 0 { word } else { word.wrapping_add(NEWS) });
        let before = self.change(counted).unwrap_or_else(|word| word);
        if before & FOLLOWERS != 0 {
            self.wake_followers();
        }
        wake_if(before & (HOLDER | SLEEPING) == WAITER | SLEEPING)
    }

    /// An application thread that drove is about to do something else, such as sleep elsewhere: the
    /// background thread drives at once, unless another thread does.
    pub(super) fn hand_to_background(&self) {
        let change = |word: u64| {
            if word & FOLLOWERS != 0 {
                return None;
            }
            match word & HOLDER {
                NOBODY => Some((word | WANTED) & !(POLLED | PARKED | DEEP)),
                POLLER => Some((word | WANTED) & !POLLED),
                // The background thread may have seen the claim and stand down; without polls it
                // comes back at once.
                BACKGROUND if word & CLAIMED != 0 => Some(word & !(POLLED | CLAIMED)),
                _ => None,
            }
        };
        if let Ok(before) = self.change(change)
            && before & HOLDER == NOBODY
            && before & PARKED != 0
        {
            self.call_background();
        }
    }

    /// Gives the role up: followers want it, or the background thread does.
    fn release(&self) {
        let change = |word: u64| Some(Self::left(word & !(HOLDER | SLEEPING | CLAIMED)));
        self.see_to_successor(self.change(change).unwrap_or_else(|word| word));
    }

    /// The word after a thread has left, such that no thread wakes the background thread twice.
    fn left(word: u64) -> u64 {
        if Self::calls_background(word) { word & !(PARKED | DEEP) } else { word }
    }

    /// True when only the background thread is left to drive, and has to be woken for it.
    fn calls_background(word: u64) -> bool {
        let told = word & DEEP != 0 || word & (PARKED | WANTED) == PARKED | WANTED;
        word & (HOLDER | FOLLOWERS) == NOBODY && told
    }

    /// `before` is the word before the holder or the last follower left.
    fn see_to_successor(&self, before: u64) {
        if before & FOLLOWERS != 0 {
            self.wake_followers();
        } else if Self::calls_background(before & !HOLDER) {
            self.call_background();
        }
    }

    /// The background thread, without the role, sleeps: for `limit` while applications drive by
    /// polling or wait for moments only, until it is woken while an application waits for longer.
    pub(super) fn park(&self, limit: Duration) -> Standby {
        let Ok(before) = self.change(Self::parked) else { return Standby::No };
        let deep = Self::parked(before).is_some_and(|word| word & DEEP != 0);
        let deadline = if deep { None } else { Instant::now().checked_add(limit) };
        let mut gate = self.gate();
        while self.look() & PARKED != 0 {
            let (woken, over) = sleep(&self.call, gate, deadline);
            gate = woken;
            if over {
                self.word.fetch_and(!(PARKED | DEEP), Ordering::SeqCst);
                return Standby::Watching;
            }
        }
        Standby::Called
    }

    /// The word with the background thread parked, if there is a reason to park it.
    fn parked(word: u64) -> Option<u64> {
        let free = word & (HOLDER | FOLLOWERS) == NOBODY;
        let idle = word & POLLED == 0;
        if word & STOPPED != 0 || free && (idle || word & WANTED != 0) {
            return None;
        }
        // If applications drive and none has called since the last look, one sleeps in the engine.
        let waits = word & HOLDER == WAITER || word & FOLLOWERS != 0;
        let deep = if idle && waits { DEEP } else { 0 };
        Some((word & !POLLED) | PARKED | deep)
    }

    /// Ends the background thread. It may sleep in epoll: the caller wakes it there.
    pub(super) fn stop(&self) {
        let change = |word: u64| Some((word | STOPPED) & !(PARKED | DEEP));
        let _before = self.change(change);
        self.call_background();
    }
}

impl Drop for RoleGuard<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Waiter<'_> {
    /// True when this thread holds the role; then it sleeps in epoll.
    pub(super) fn drives(&self) -> bool {
        self.drives
    }

    /// A follower sleeps until there is news, until it has the role, or until `deadline`.
    pub(super) fn sleep(&mut self, deadline: Option<Instant>) {
        let role = self.role;
        let take = |word| (word & HOLDER == NOBODY).then(|| (word - FOLLOWER) | WAITER);
        let mut gate = role.gate();
        let mut over = false;
        while !over {
            let Err(word) = role.change(take) else {
                self.drives = true;
                return;
            };
            if word / NEWS != self.seen {
                self.seen = word / NEWS;
                return;
            }
            (gate, over) = sleep(&role.news, gate, deadline);
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.drives {
            return self.role.release();
        }
        let change = |word: u64| Some(DriverRole::left(word - FOLLOWER));
        let before = self.role.change(change).unwrap_or_else(|word| word) - FOLLOWER;
        // Other followers have been told already that the role is free.
        if DriverRole::calls_background(before) {
            self.role.call_background();
        }
    }
}

/// Sleeps once; true when the time is over.
fn sleep<'a>(
    on: &Condvar,
    gate: MutexGuard<'a, ()>,
    deadline: Option<Instant>,
) -> (MutexGuard<'a, ()>, bool) {
    let Some(deadline) = deadline else {
        return (on.wait(gate).unwrap_or_else(PoisonError::into_inner), false);
    };
    sleep_until(on, gate, deadline)
}

#[cfg(not(all(loom, test)))]
fn sleep_until<'a>(
    on: &Condvar,
    gate: MutexGuard<'a, ()>,
    deadline: Instant,
) -> (MutexGuard<'a, ()>, bool) {
    let left = deadline.saturating_duration_since(Instant::now());
    let (gate, _) = on.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner);
    (gate, Instant::now() >= deadline)
}

/// A model has no clock: the time may be over at once.
#[cfg(all(loom, test))]
fn sleep_until<'a>(
    _: &Condvar,
    gate: MutexGuard<'a, ()>,
    _: Instant,
) -> (MutexGuard<'a, ()>, bool) {
    (gate, true)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread::scope;

    /// Longer than any test; whatever returns before it was woken.
    const LONG: Duration = Duration::from_secs(600);

    /// Parks while an application polls; `meanwhile` runs during that time.
    fn parked_during(role: &DriverRole, meanwhile: impl FnOnce()) -> Standby {
        role.note_application();
        scope(|scope| {
            let parked = scope.spawn(|| role.park(LONG));
            while role.look() & PARKED == 0 {
                std::thread::yield_now();
            }
            meanwhile();
            parked.join().expect("no panic")
        })
    }

    #[test]
    fn an_application_that_rests_calls_the_background_thread() {
        let role = DriverRole::new();
        assert_eq!(parked_during(&role, || role.hand_to_background()), Standby::Called);
        assert!(role.take_in_background().is_some());
    }

    #[test]
    fn it_is_called_at_the_end_of_a_turn_that_is_under_way() {
        let role = DriverRole::new();
        let turn = role.take_for_turn().expect("no thread has it");
        let rest = || {
            role.hand_to_background();
            assert!(role.take_in_background().is_none());
            drop(turn);
        };
        assert_eq!(parked_during(&role, rest), Standby::Called);
    }

    #[test]
    fn a_claim_taken_back_is_none() {
        let role = DriverRole::new();
        let held = role.take_in_background().expect("no thread has it");
        assert_eq!(role.claim(), Some(Claim { first: true, wake: Wake::Nobody }));
        assert_eq!(role.claim(), Some(Claim { first: false, wake: Wake::Nobody }));
        assert!(role.is_unwanted() && !role.fall_asleep());
        role.hand_to_background();
        assert!(!role.is_unwanted() && role.fall_asleep());
        assert_eq!(role.claim(), Some(Claim { first: true, wake: Wake::Driver }));
        drop(held);
        assert_eq!(role.claim(), None);
    }

    #[test]
    fn a_waiting_application_is_not_disturbed() {
        let role = DriverRole::new();
        let (waiter, _) = role.wait();
        assert!(waiter.drives());
        let (follower, _) = role.wait();
        assert!(!follower.drives());
        drop(waiter);
        role.hand_to_background();
        assert!(role.take_in_background().is_none(), "a follower is about to take it");
        drop(follower);
        role.hand_to_background();
        assert!(role.take_in_background().is_some());
    }

    #[test]
    fn the_background_thread_stays_away_while_an_application_polls() {
        let role = DriverRole::new();
        for _ in 0..3 {
            role.note_application();
            assert!(role.take_in_background().is_none());
            assert_eq!(role.park(Duration::from_millis(1)), Standby::Watching);
        }
        assert!(role.take_in_background().is_some(), "it has polled no more since the last look");
    }

    #[test]
    fn news_wakes_followers_and_a_waiting_driver_only() {
        let role = DriverRole::new();
        let held = role.take_in_background().expect("no thread has it");
        assert!(role.fall_asleep());
        assert_eq!(role.notify(), Wake::Nobody);
        assert_eq!(role.poke(), Wake::Driver);
        let (mut follower, wake) = role.wait();
        assert_eq!(wake, Wake::Driver);
        role.notify();
        follower.sleep(None);
        assert!(!follower.drives());
        drop(held);
        follower.sleep(None);
        assert!(follower.drives() && role.fall_asleep());
        assert_eq!(role.notify(), Wake::Driver);
    }
}
