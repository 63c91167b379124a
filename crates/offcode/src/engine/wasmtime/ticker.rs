//! Time for executions without fuel: a thread that advances the engine's epoch while any runs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// How exact time limits are.
const TICK: Duration = Duration::from_millis(1);

/// See this file's first lines. Clones share the thread, which ends with the last.
#[derive(Clone)]
pub(super) struct Ticker(Arc<Shared>);

struct Shared {
    held: Mutex<usize>,
    changed: Condvar,
}

/// As long as it is held, time advances.
pub(super) struct Ticks(Arc<Shared>);

impl Ticker {
    pub(super) fn new(engine: wasmtime::Engine) -> Self {
        let shared = Arc::new(Shared { held: Mutex::new(0), changed: Condvar::new() });
        let weak = Arc::downgrade(&shared);
        let spawned = thread::Builder::new()
            .name("outboard-ticks".into())
            .spawn(move || tick(&weak, &engine));
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for time limits");
        }
        Self(shared)
    }

    pub(super) fn hold(&self) -> Ticks {
        *self.0.lock() += 1;
        self.0.changed.notify_all();
        Ticks(Arc::clone(&self.0))
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tick(shared: &Weak<Shared>, engine: &wasmtime::Engine) {
    while let Some(shared) = shared.upgrade() {
        let held = shared.lock();
        if *held == 0 {
            // Looks now and then whether anybody is left.
            let waited = shared.changed.wait_timeout(held, Duration::from_millis(200));
            drop(waited);
            continue;
        }
        drop(held);
        drop(shared);
        thread::sleep(TICK);
        engine.increment_epoch();
    }
}
