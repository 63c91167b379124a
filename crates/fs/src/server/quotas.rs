//! Who pays: identities with limits, whose numbers the service says with each of their requests.
//! What they have is counted by the module, in the commit that changes it.

use super::backend::{FS_ROOT, FsBackend};
use super::call::OwnWork;
use crate::protocol::{
    FsLayout, FsQuotaArgs, FsServing, FsStats, FsTenant, FsTenantsArgs, NO_LIMIT,
};
use outboard_active::Outcome;
use outboard_secure::NodeId;

/// Bits of a file system's flags; above them is where tenants are.
const FLAG_BITS: u32 = 16;
/// Bytes in front of the first one.
const HEAD: usize = 16;

impl FsBackend {
    /// Nothing is served until everybody who pays is known.
    pub(super) fn learn_tenants(&mut self, first: u64) {
        self.execute_own("tenants", FsTenantsArgs { first }.bytes(), OwnWork::Tenants { first });
    }

    pub(super) fn tenants_told(&mut self, first: u64, mut result: &[u8]) {
        let mut next = first;
        while let Some(tenant) = FsTenant::take(&mut result) {
            if let Some(node) = node_of(tenant.id) {
                self.unlimited.insert(node);
            }
            next += 1;
        }
        if next != first {
            return self.learn_tenants(next);
        }
        let quotas: Vec<_> = self.accounts.rules().quotas.iter().map(|(id, q)| (*id, *q)).collect();
        for (node, quota) in quotas {
            self.unlimited.remove(&node);
            self.set_quota(node, quota.blocks, quota.inodes);
        }
        // Who had a limit goes on to be counted.
        for node in std::mem::take(&mut self.unlimited) {
            self.set_quota(node, NO_LIMIT, NO_LIMIT);
        }
        self.serve_if_known();
    }

    fn set_quota(&mut self, node: NodeId, blocks_max: u64, inodes_max: u64) {
        let args = FsQuotaArgs { id: id_of(node), blocks_max, inodes_max };
        self.quotas_asked += 1;
        self.execute_own("set_quota", args.bytes(), OwnWork::Quota(node));
    }

    pub(super) fn quota_set(&mut self, node: NodeId, number: u64) {
        self.quotas_asked -= 1;
        self.accounts.pays(node, u16::try_from(number).unwrap_or(0));
        self.serve_if_known();
    }

    fn serve_if_known(&mut self) {
        if self.quotas_asked == 0 && !self.is_ready {
            self.is_ready = true;
            self.begin_housekeeping();
        }
    }

    /// What whoever asks has and may have: no more room than that.
    pub(super) fn with_quota(&self, tenant: u16, outcome: Outcome) -> Outcome {
        let Outcome::Done { result, seq } = outcome else { return outcome };
        let Some((stats, _)) = FsStats::split(&result) else {
            return Outcome::Done { result, seq };
        };
        let mut stats = self.with_reserved(stats);
        if let Some([blocks, inodes, blocks_max, inodes_max]) = self.tenant_words(tenant) {
            (stats.quota_blocks, stats.quota_inodes) = (blocks, inodes);
            (stats.quota_blocks_max, stats.quota_inodes_max) = (blocks_max, inodes_max);
            stats.blocks_free = stats.blocks_free.min(blocks_max.saturating_sub(blocks));
            stats.inodes_free = stats.inodes_free.min(inodes_max.saturating_sub(inodes));
            if blocks_max != NO_LIMIT {
                stats.blocks = stats.blocks.min(blocks + stats.blocks_free);
            }
        }
        let replica = self.shipping.as_ref().map(|state| state.numbers(self.store.logged()));
        let serving = FsServing { epoch: self.store.epoch(), replica };
        Outcome::Done { result: [stats.bytes(), serving.bytes()].concat(), seq }
    }

    fn tenant_words(&self, tenant: u16) -> Option<[u64; 4]> {
        let memory = self.region.memory();
        let flags = memory.load_u64(FS_ROOT + 8).ok()?;
        let table = usize::try_from((flags >> FLAG_BITS) * 16).ok().filter(|at| *at != 0)?;
        let at = table + HEAD + usize::from(tenant.checked_sub(1)?) * FsTenant::LEN;
        let word = |index: usize| memory.load_u64(at + 8 * index).ok();
        Some([word(2)?, word(3)?, word(4)?, word(5)?])
    }
}

/// An identity as the region has it: its digits as numbers.
fn id_of(node: NodeId) -> [u64; 2] {
    let digits = node.to_string();
    let half = |range: std::ops::Range<usize>| {
        digits.get(range).and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0)
    };
    [half(0..16), half(16..32)]
}

fn node_of([high, low]: [u64; 2]) -> Option<NodeId> {
    format!("{high:016x}{low:016x}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_found_again() {
        let node: NodeId = "2f9d1c0a4b7e8d6605aa0c1b2d3e4f50".parse().expect("one");
        assert_eq!(id_of(node), [0x2f9d_1c0a_4b7e_8d66, 0x05aa_0c1b_2d3e_4f50]);
        assert_eq!(node_of(id_of(node)), Some(node));
    }
}
