//! Time for residents: a thread that advances the engine's epoch while entries run. Entries are
//! short and many, so that one costs neither a lock nor a fence: two plain stores and a load.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, compiler_fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// How exact time limits are.
const TICK: Duration = Duration::from_millis(1);
/// Ticks without an entry after which the thread looks whether it can sleep.
const IDLE_TICKS: u32 = 50;
/// How often a sleeping thread looks whether its engine still is there.
const NAP: Duration = Duration::from_millis(500);

/// The thread sleeps.
const ASLEEP: u8 = 0;
/// It advances time; no entry began since the latest tick.
const AWAKE: u8 = 1;
/// It advances time; entries have begun since.
const SEEN: u8 = 2;

/// See this file's first lines. Clones share the thread, which ends with the last.
#[derive(Clone, Debug)]
pub(super) struct ResidentTicks(Arc<Ticking>);

#[derive(Debug)]
struct Ticking {
    state: AtomicU8,
    sleeping: Mutex<()>,
    woken: Condvar,
    /// Of each resident, whether an entry runs.
    running: Mutex<Vec<Weak<AtomicBool>>>,
}

/// A resident's part: says when entries begin and end.
#[derive(Debug)]
pub(super) struct EntryTicks {
    is_running: Arc<AtomicBool>,
    ticking: Arc<Ticking>,
}

/// An entry that runs.
pub(super) struct RunningEntry<'a>(&'a AtomicBool);

impl ResidentTicks {
    pub(super) fn new(engine: wasmtime::Engine) -> std::io::Result<Self> {
        let ticking = Arc::new(Ticking {
            state: AtomicU8::new(ASLEEP),
            sleeping: Mutex::new(()),
            woken: Condvar::new(),
            running: Mutex::default(),
        });
        let weak = Arc::downgrade(&ticking);
        let builder = thread::Builder::new().name("outboard-ticks".into());
        builder.spawn(move || tick(&weak, &engine))?;
        Ok(Self(ticking))
    }

    /// Whether time stands still.
    #[cfg(test)]
    pub(super) fn is_asleep(&self) -> bool {
        self.0.state.load(Ordering::SeqCst) == ASLEEP
    }

    pub(super) fn register(&self) -> EntryTicks {
        let is_running = Arc::new(AtomicBool::new(false));
        let mut running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.len() == running.capacity() {
            running.retain(|one| one.strong_count() > 0);
        }
        running.push(Arc::downgrade(&is_running));
        EntryTicks { is_running, ticking: Arc::clone(&self.0) }
    }
}

impl EntryTicks {
    /// An entry begins; it ends when what is given is dropped.
    #[inline]
    pub(super) fn begin(&self) -> RunningEntry<'_> {
        self.is_running.store(true, Ordering::Relaxed);
        // The thread sleeps only long after it has reset `SEEN`. Whoever still loads the old value
        // has stored the flag before, and the thread finds that, at the latest, when it looks.
        compiler_fence(Ordering::SeqCst);
        if self.ticking.state.load(Ordering::Relaxed) != SEEN {
            self.ticking.wake();
        }
        RunningEntry(&self.is_running)
    }
}

impl Drop for RunningEntry<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Ticking {
    #[cold]
    fn wake(&self) {
        if self.state.swap(SEEN, Ordering::SeqCst) == ASLEEP {
            // With the lock: the thread is either before its look at the state or waits.
            drop(self.sleeping.lock());
            self.woken.notify_all();
        }
    }

    fn is_any_running(&self) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.iter().filter_map(Weak::upgrade).any(|one| one.load(Ordering::SeqCst))
    }

    /// Waits until an entry begins, or for a while.
    fn sleep(&self) {
        let guard = self.sleeping.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state.load(Ordering::SeqCst) == ASLEEP {
            drop(self.woken.wait_timeout(guard, NAP));
        }
    }

    fn replace(&self, old: u8, new: u8) -> bool {
        self.state.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

fn tick(ticking: &Weak<Ticking>, engine: &wasmtime::Engine) {
    let mut idle_ticks = 0;
    while let Some(ticking) = ticking.upgrade() {
        if ticking.state.load(Ordering::SeqCst) == ASLEEP {
            ticking.sleep();
            continue;
        }
        if ticking.replace(SEEN, AWAKE) {
            idle_ticks = 0;
        } else {
            idle_ticks += 1;
        }
        if idle_ticks >= IDLE_TICKS {
            idle_ticks = 0;
            if !ticking.is_any_running() && ticking.replace(AWAKE, ASLEEP) {
                continue;
            }
        }
        drop(ticking);
        thread::sleep(TICK);
        engine.increment_epoch();
    }
}
