//! Grants of openings: the rights that a file's mode allowed when it was opened hold for the
//! opening, for any user and after changes of the mode.
//!
//! A client keeps its grants, and they are good after a restart and at a promoted replica: the key
//! is derived from the store's number, which its servers have and no client learns. A grant is of
//! one inode and one identity.

use crate::protocol::{FsGrant, FsInode, FsLayout, FsWho};
use outboard_secure::NodeId;

/// Entries whose requests may use an opening: the inode follows [`FsWho`] in their arguments.
const USERS: &[&str] = &["read", "seek", "change", "list"];

/// Makes grants, and knows its own.
#[derive(Clone)]
pub(super) struct GrantKey([u8; 32]);

impl GrantKey {
    pub(super) fn new(store: &[u8; 16]) -> Self {
        Self(blake3::derive_key("outboard fs grants of openings", store))
    }

    pub(super) fn grant(&self, node: NodeId, inode: FsInode, rights: u32) -> FsGrant {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(node.bytes()).update(&inode.bytes()).update(&rights.to_le_bytes());
        let mut proof = [0; 16];
        hasher.finalize_xof().fill(&mut proof);
        let proof = u128::from_le_bytes(proof);
        // Both halves.
        #[expect(clippy::cast_possible_truncation, reason = "the halves are taken")]
        let proof = [proof as u64, (proof >> 64) as u64];
        FsGrant { proof, rights, zero: 0 }
    }

    /// What of a request's grant counts.
    pub(super) fn checked(&self, node: NodeId, (entry, args): (&str, &[u8])) -> FsGrant {
        let named = USERS.contains(&entry).then(|| FsWho::split(args)).flatten();
        let said = named.filter(|(who, _)| who.grant != FsGrant::default());
        let made = said.and_then(|(who, rest)| {
            let (inode, _) = FsInode::split(rest)?;
            let is_own = self.grant(node, inode, who.grant.rights) == who.grant;
            is_own.then_some(who.grant)
        });
        made.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{FsReadArgs, MAY_READ, MAY_WRITE};
    use outboard_secure::Identity;

    #[test]
    fn a_grant_is_of_one_inode_one_identity_and_one_store() {
        let node = || Identity::generate().expect("an identity").node();
        let (key, own, inode) =
            (GrantKey::new(&[1; 16]), node(), FsInode { number: 5, generation: 2 });
        let grant = key.grant(own, inode, MAY_READ);
        let args = |inode, grant| {
            let who = FsWho { grant, ..FsWho::default() };
            FsReadArgs { who, inode, offset: 0, len: 1 }.bytes()
        };
        let rights =
            |key: &GrantKey, node, entry, args: &[u8]| key.checked(node, (entry, args)).rights;
        assert_eq!(rights(&key, own, "read", &args(inode, grant)), MAY_READ);
        assert_eq!(rights(&key, node(), "read", &args(inode, grant)), 0);
        assert_eq!(rights(&key, own, "set", &args(inode, grant)), 0);
        let more = FsGrant { rights: MAY_READ | MAY_WRITE, ..grant };
        assert_eq!(rights(&key, own, "read", &args(inode, more)), 0);
        for other in [FsInode { number: 6, ..inode }, FsInode { generation: 3, ..inode }] {
            assert_eq!(rights(&key, own, "read", &args(other, grant)), 0);
        }
        assert_eq!(rights(&GrantKey::new(&[2; 16]), own, "read", &args(inode, grant)), 0);
        assert_eq!(rights(&GrantKey::new(&[1; 16]), own, "read", &args(inode, grant)), MAY_READ);
        let short = &args(inode, grant)[..FsWho::LEN + 8];
        assert_eq!(rights(&key, own, "read", short), 0);
    }
}
