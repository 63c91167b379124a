//! What stands for sleeping in models, which have no clock and no kernel.

use loom::sync::atomic::AtomicU32;

pub(super) fn while_unchanged(_word: &AtomicU32, _value: u32) {
    loom::thread::yield_now();
}

pub(super) fn wake_all(_word: &AtomicU32) {}
