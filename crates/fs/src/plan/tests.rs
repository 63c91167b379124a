//! Plans against files that are bytes: whatever is changed, what the blocks hold afterwards is what
//! the file should hold.

use super::*;
use crate::protocol::{BLOCK_BYTES as BLOCK, GROW};
use std::collections::BTreeMap;

/// A file, and the same as blocks of a store.
#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    map: BTreeMap<u64, u64>,
    store: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

impl Model {
    fn known(&self, needs: ChangeNeeds) -> (FsRecord, Vec<FsExtent>) {
        let record = FsRecord { size: self.bytes.len() as u64, version: 5, ..FsRecord::default() };
        let (from, to) = match needs {
            ChangeNeeds::Blocks(from, to) => (from, to),
            _ => (0, 0),
        };
        let extents = self.map.range(from..to).map(|(file, block)| FsExtent {
            file: *file,
            block: *block,
            len: 1,
        });
        (record, extents.collect())
    }

    fn change(&mut self, change: &FsChangeArgs, data: &[u8]) {
        let mut needs = super::needs(change, None);
        if needs == ChangeNeeds::Record {
            needs = super::needs(change, Some(self.bytes.len() as u64));
            if needs == ChangeNeeds::Nothing {
                needs = ChangeNeeds::Record;
            }
        }
        let (record, extents) = self.known(needs);
        let known =
            (needs != ChangeNeeds::Nothing).then_some(Known { record: &record, extents: &extents });
        let plan = super::plan(change, known).expect("not too large");
        for piece in &plan.pieces {
            let mut buffer = vec![0; piece.len()];
            if let Some(head) = piece.head {
                buffer[..BLOCK].copy_from_slice(&self.store[&head]);
            }
            if let Some(tail) = piece.tail {
                let at = buffer.len() - BLOCK;
                buffer[at..].copy_from_slice(&self.store[&tail]);
            }
            match &piece.fill {
                Fill::Bytes(range) => {
                    buffer[piece.at..piece.at + range.len()].copy_from_slice(&data[range.clone()]);
                }
                Fill::Zeroes(len) => buffer[piece.at..piece.at + len].fill(0),
            }
            for (file, bytes) in (piece.file..).zip(buffer.chunks(BLOCK)) {
                self.next += 1;
                self.store.insert(self.next, bytes.to_vec());
                self.map.insert(file, self.next);
            }
        }
        self.map.retain(|file, _| !plan.cut.contains(file));
        if change.which & RESIZE != 0 {
            let end = plan.size.div_ceil(BLOCK_LEN);
            self.map.retain(|file, _| *file < end);
        }
        self.expect(change, data, plan.size);
    }

    fn expect(&mut self, change: &FsChangeArgs, data: &[u8], size: u64) {
        let old = self.bytes.len();
        let at = usize::try_from(change.offset).expect("small");
        let len = usize::try_from(change.size).expect("small");
        if change.which & RESIZE != 0 {
            self.bytes.resize(len, 0);
        } else if change.which & PUNCH != 0 {
            let end = old.min(at + len);
            self.bytes[at.min(old)..end].fill(0);
        } else {
            let at = if change.which & APPEND != 0 { old } else { at };
            self.bytes.resize(old.max(at + len), 0);
            self.bytes[at..at + len].copy_from_slice(data);
            assert_eq!(old.max(usize::try_from(size).expect("small")), self.bytes.len());
        }
        let zero = vec![0; BLOCK];
        for (file, bytes) in self.bytes.chunks(BLOCK).enumerate() {
            let found = self.map.get(&(file as u64)).map_or(&zero, |block| &self.store[block]);
            assert_eq!(&found[..bytes.len()], bytes, "block {file} after {change:?}");
            assert!(found[bytes.len()..].iter().all(|byte| *byte == 0), "behind the end");
        }
    }
}

#[test]
fn random_changes_come_to_the_same_as_on_plain_bytes() {
    let mut random = 11_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for _ in 0..60 {
        let mut model = Model::default();
        for _ in 0..60 {
            let round =
                |value: u64, to: u64| if to == 0 { value - value % BLOCK_LEN } else { value };
            let offset = round(next(20_000), next(3));
            let size = round(next(12_000), next(3)).max(1);
            let which =
                [GROW, GROW, APPEND, RESIZE, PUNCH][usize::try_from(next(5)).expect("small")];
            let change = FsChangeArgs { offset, size, which, ..FsChangeArgs::default() };
            let fill = next(255).to_le_bytes()[0] + 1;
            model.change(&change, &vec![fill; usize::try_from(size).expect("small")]);
        }
    }
}

#[test]
fn whole_blocks_need_nothing_and_keep_nothing() {
    let whole = FsChangeArgs { offset: 8192, size: 4096, which: GROW, ..FsChangeArgs::default() };
    assert_eq!(needs(&whole, None), ChangeNeeds::Nothing);
    let plan = plan(&whole, None).expect("not too large");
    assert_eq!((plan.version, plan.blocks(), plan.size), (0, 1, 12_288));
    let part = FsChangeArgs { size: 4095, ..whole };
    assert_eq!(needs(&part, None), ChangeNeeds::Blocks(2, 3));
}

#[test]
fn files_have_a_largest_size() {
    let far =
        FsChangeArgs { offset: u64::MAX - 5, size: 10, which: GROW, ..FsChangeArgs::default() };
    assert_eq!(plan(&far, None), Err(TooLarge));
    let huge = FsChangeArgs { size: SIZE_MAX + 1, which: RESIZE, ..FsChangeArgs::default() };
    assert_eq!(plan(&huge, None), Err(TooLarge));
}
