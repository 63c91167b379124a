//! How many bytes the connections of a context hold because TCP has not taken them. A peer that
//! does not read makes its connection hold a batch; once the total is large, [`super::link`] makes
//! batches small. This file only counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that all connections hold together.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnsentTotal(Arc<AtomicUsize>);

/// What one connection holds; dropping it takes it off the total.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    total: UnsentTotal,
    own: usize,
}

impl UnsentTotal {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn change(&self, before: usize, after: usize) {
        self.0.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Unsent {
    /// The connection of a context with this total holds this many bytes now.
    pub(crate) fn set(&mut self, total: &UnsentTotal, own: usize) {
        if own == self.own {
            return;
        }
        if self.own == 0 {
            self.total = total.clone();
        }
        self.total.change(self.own, own);
        self.own = own;
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.total.change(self.own, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_the_sum_over_live_connections() {
        let total = UnsentTotal::default();
        let (mut one, mut other) = (Unsent::default(), Unsent::default());
        one.set(&total, 1000);
        other.set(&total, 30);
        assert_eq!(total.get(), 1030);
        one.set(&total, 0);
        other.set(&total, 20);
        assert_eq!(total.get(), 20);
        drop((one, other));
        assert_eq!(total.get(), 0);
    }
}
