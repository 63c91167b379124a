//! Who pays: what is counted of each tenant, and what inodes say of it.

use super::bytes::RegionBytes;
use super::found::Findings;
use super::heap::Heap;
use crate::protocol::{FsLayout, FsRecord, FsTenant};
use std::collections::BTreeMap;

/// Bits of a file system's flags; above them is where tenants are.
const FLAG_BITS: u32 = 16;
const HEAD: u64 = 16;
const TENANTS_MAX: u64 = 65534;

/// Blocks and inodes of each tenant.
#[derive(Debug, Default)]
pub(super) struct TenantUse(BTreeMap<u16, (u64, u64)>);

impl TenantUse {
    /// An inode that is used.
    pub(super) fn add(&mut self, record: &FsRecord) {
        let (blocks, inodes) = self.0.entry(record.tenant).or_default();
        (*blocks, *inodes) = (blocks.saturating_add(record.blocks), *inodes + 1);
    }

    /// Compares it with what is counted.
    pub(super) fn end(
        mut self,
        region: RegionBytes<'_>,
        flags: u64,
        heap: &mut Heap,
        found: &mut Findings,
    ) {
        // Nobody pays for these.
        self.0.remove(&0);
        let at = (flags >> FLAG_BITS) * 16;
        let head = if at == 0 { Some(vec![0, 0]) } else { region.words(at, 2) };
        let is_table = |head: &Vec<u64>| head[1] <= head[0] && head[0] <= 2 * TENANTS_MAX;
        let Some(head) = head.filter(is_table) else {
            return found.of_region("the table of tenants is none");
        };
        let len = FsTenant::LEN as u64;
        if at != 0
            && let Err(why) = heap.claim(at, HEAD + head[0] * len)
        {
            found.of_region(format!("the table of tenants: {why}"));
        }
        for number in 1..=head[1] {
            let bytes = region.bytes(at + HEAD + (number - 1) * len, len).unwrap_or_default();
            let Some((tenant, _)) = FsTenant::split(&bytes) else { continue };
            let real = u16::try_from(number).ok().and_then(|number| self.0.remove(&number));
            let real = real.unwrap_or_default();
            if real != (tenant.blocks, tenant.inodes) {
                let FsTenant { blocks, inodes, .. } = tenant;
                found.of_region(format!(
                    "tenant {number} counts {blocks} blocks of {inodes} inodes, and has {} of {}",
                    real.0, real.1
                ));
            }
        }
        for number in self.0.keys() {
            found.of_region(format!("inodes are tenant {number}'s, which there is not"));
        }
    }
}
