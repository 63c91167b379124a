//! Whether a store that nobody serves is as it should be: what recovery reads, and every structure
//! of the metadata against every other one.
//!
//! Changes nothing, and mends nothing. Files' bytes have no check words: what the disk has made of
//! them is not noticed.
//!
//! Modules in reading order: `found` (what is wrong, and where), `bytes` (reading a region),
//! `heap`, `table`, `names`, `inodes`, `blocks` (a module's state each), `tenants` (who pays),
//! `tree` (names and inodes against each other).

mod blocks;
mod bytes;
mod found;
mod heap;
mod inodes;
mod names;
mod table;
mod tenants;
mod tree;

pub use found::FsDamage;

use crate::protocol::{MAGIC, ROOT, ROOT_NUMBER};
use crate::store::{FsStoreError, OpenedStore};
use blocks::BlockUse;
use bytes::RegionBytes;
use found::Findings;
use heap::Heap;
use inodes::FoundInodes;
use outboard_mem::SharedRegion;
use std::path::Path;
use table::Table;
use tenants::TenantUse;
use tree::TreeCheck;

/// What there is, and what is wrong with it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FsCheckReport {
    /// The last commit that was found.
    pub commit: u64,
    /// Whether the store was closed in order.
    pub is_orderly: bool,
    /// Why the newer checkpoint was not used: a server that was killed may have been writing it.
    pub passed_over: Option<String>,
    /// FoundInodes in use.
    pub inodes: u64,
    /// Names of them.
    pub names: u64,
    /// FoundInodes that had no names, and somebody had them open.
    pub nameless: u64,
    /// FoundInodes without names whose blocks have still to be given back.
    pub dying: u64,
    /// Blocks of files.
    pub blocks: u64,
    /// Blocks that a server had ready for writes: its next start gives them back.
    pub reserved: u64,
    /// What is wrong, as far as it is told.
    pub damage: Vec<FsDamage>,
    /// How much is wrong in all.
    pub damage_count: u64,
}

/// Checks a store.
///
/// # Errors
/// [`FsStoreError`]: it cannot be looked at. What recovery finds damaged is in the report.
pub fn check_store(dir: &Path) -> Result<FsCheckReport, FsStoreError> {
    let read = OpenedStore::open(dir).and_then(|opened| {
        let recovered = opened.recover()?;
        let mut report = check_region(&recovered.memory, opened.shape().block_count);
        report.commit = recovered.last_seq;
        report.is_orderly = recovered.is_orderly;
        report.passed_over = recovered.passed_over;
        Ok(report)
    });
    match read {
        Err(error @ FsStoreError::Damaged { .. }) => {
            let damage = vec![FsDamage { path: None, what: error.to_string() }];
            Ok(FsCheckReport { damage, damage_count: 1, ..FsCheckReport::default() })
        }
        other => other,
    }
}

/// Checks a region of metadata, over a store of so many blocks. Nobody may change it meanwhile.
#[must_use]
pub fn check_region(memory: &SharedRegion, blocks: u64) -> FsCheckReport {
    let (region, mut found) = (RegionBytes(memory), Findings::default());
    let mut report = FsCheckReport::default();
    let head = region.words(ROOT, 8).unwrap_or_default();
    // A store that was never served has no file system yet.
    if head.iter().all(|word| *word == 0) {
        return report;
    }
    let root = head[usize::try_from(ROOT_NUMBER / 8).unwrap_or(0)];
    match head[0] == MAGIC {
        true => check_tree(region, &head, (blocks, root), &mut found, &mut report),
        false => found.of_region("there is no file system in the metadata"),
    }
    (report.damage, report.damage_count) = found.end(root);
    report
}

fn check_tree(
    region: RegionBytes<'_>,
    head: &[u64],
    (block_count, root): (u64, u64),
    found: &mut Findings,
    report: &mut FsCheckReport,
) {
    let (blocks_at, inodes_at, table_at) = (head[2], head[3], head[4]);
    let heap_at = region.word(table_at + 8).unwrap_or(0);
    let mut heap = Heap::read(region, heap_at, found);
    let inodes = FoundInodes::read(region, inodes_at, &mut heap, found);
    let table = Table::read(region, table_at, &mut heap, found);
    let mut blocks = BlockUse::new(block_count);
    for number in 1..inodes.next {
        inodes.check(number, &mut heap, &mut blocks, found);
    }
    let mut tree = TreeCheck::new(region, &inodes, table.names);
    tree.walk(root, &mut heap, found);
    tree.check_nameless((head[7], head[6]), &mut heap, found);
    let mut tenants = TenantUse::default();
    tree.end(found, report, &mut tenants);
    tenants.end(region, head[1], &mut heap, found);
    let seen = blocks.end(region, blocks_at, found);
    (report.blocks, report.reserved) = (seen.used, seen.reserved);
    tree::name_wrong_blocks(&inodes, &seen.wrong, found);
    heap.end(found);
}

#[cfg(test)]
mod tests;
