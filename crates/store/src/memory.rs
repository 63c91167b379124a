//! The most recently used contents, within a limit in bytes.

use crate::store::ContentHash;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct MemoryCache {
    len: usize,
    len_max: usize,
    /// Counter of uses.
    now: u64,
    held: HashMap<ContentHash, (Arc<[u8]>, u64)>,
    by_use: BTreeMap<u64, ContentHash>,
}

impl MemoryCache {
    pub(crate) fn new(len_max: usize) -> Self {
        Self { len: 0, len_max, now: 0, held: HashMap::new(), by_use: BTreeMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&mut self, hash: &ContentHash) -> Option<Arc<[u8]>> {
        let (bytes, used) = self.held.get_mut(hash)?;
        self.by_use.remove(used);
        self.now += 1;
        *used = self.now;
        self.by_use.insert(self.now, *hash);
        Some(Arc::clone(bytes))
    }

    /// Keeps contents if they are small; the least recently used are dropped.
    pub(crate) fn put(&mut self, hash: &ContentHash, bytes: &Arc<[u8]>) {
        if bytes.len() > self.len_max / 16 || self.get(hash).is_some() {
            return;
        }
        self.now += 1;
        self.len += bytes.len();
        self.held.insert(*hash, (Arc::clone(bytes), self.now));
        self.by_use.insert(self.now, *hash);
        while self.len > self.len_max {
            let Some((_, hash)) = self.by_use.pop_first() else { return };
            self.len -= self.held.remove(&hash).map_or(0, |(bytes, _)| bytes.len());
        }
    }
}
