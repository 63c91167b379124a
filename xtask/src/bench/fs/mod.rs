//! `cargo xtask bench fs`: the file system beside sshfs and nfs-ganesha, on a link of 1 Gbit/s.
//!
//! `OUTBOARD_ONLY=names,bulk` measures these parts alone, see `bench::aimed`. nfs-ganesha is
//! measured where a FUSE client for NFS (`fuse-nfs`) is on the search path: kernels of test
//! machines need not have one, and Debian has no package. Nothing here tests correctness beyond
//! counting lines and comparing copies: `cargo xtask test` does.
//!
//! Reading order: `stage` (hosts, how programs are timed), `servers`, `contender` (mounts), `tree`
//! (what is unpacked), `samples`; then the parts: `names` (whole trees), `bulk` (one large file),
//! `clients` (many at once), `commits` (small writes that outlive a loss of power), `variants`
//! (ours in three ways).

mod bulk;
mod clients;
mod commits;
mod contender;
mod names;
mod samples;
mod servers;
mod stage;
mod tree;
mod variants;

use anyhow::Result;

use super::aimed::{self, Aim, AimedPage, AimedPart, least, most};
use super::report::Report;
use crate::lab;
use crate::test::needs::Need;
use stage::FsLink;

/// What it needs; nfs-ganesha is not among it.
pub(super) const NEEDS: &[Need] = &[
    Need::Packages(lab::PACKAGES),
    Need::Packages(&["gcc", "libc6-dev", "mount", "fuse3", "sshfs", "openssh-server"]),
];

/// Measures what is asked for, and draws everything that was found.
///
/// # Errors
/// When a part has another name, or a file cannot be written.
pub(super) fn run() -> Result<Report> {
    aimed::run(&AimedPage {
        bench: "fs",
        title: "The file system",
        conditions: CONDITIONS,
        parts: PARTS,
    })
}

const CONDITIONS: &[&str] = &[
    "Client and server are network namespaces with a link of 1 Gbit/s each to one bridge, \
     which share this machine's processors; where the link delays, both are on processor 0 and \
     the link (`cargo xtask lab delay`) has the other. Files and stores are in memory, the \
     server's caches warm. A client is cold: each step has a mount of its own, which is made \
     before its time begins.",
    "Times are of whole commands with the start of their processes; those of `outboard fs find`, \
     `grep` and `rm` contain connecting to the server, and grep's the pattern's translation.",
    "Outboard encrypts (AES-256-GCM), as sshfs does (told to use aes128-gcm, its quickest); NFS \
     and plain TCP do not. All have their defaults otherwise. nfs-ganesha's client is fuse-nfs \
     (libnfs, version 3), because the kernel's is not everywhere.",
];

/// Every part, in the order of the page.
const PARTS: &[AimedPart] = &[
    AimedPart {
        name: "names",
        aims: &[
            least("grep of an expression at the server: `grep -r` over sshfs, cold / ours", 10.0),
            least("grep of a literal at the server: `grep -r` over sshfs, cold / ours", 20.0),
            most("find at the server / GNU find on tmpfs", 1.5),
            least("find through the mount, cold: sshfs / ours", 1.0),
            least("untar of 2,000 files: sshfs / ours", 5.0),
            least("untar of 2,000 files: nfs-ganesha / ours", 5.0),
            least("rm -r at the server: `rm -r` over sshfs / ours", 20.0),
        ],
        measure: || names::measure(FsLink::Gigabit),
    },
    AimedPart {
        name: "names-delayed",
        aims: &DELAYED,
        measure: || names::measure(FsLink::Delayed),
    },
    AimedPart {
        name: "bulk",
        aims: &[
            least("100 MB copied in: time of plain TCP / ours", 0.95),
            least("100 MB copied out, cold: time of plain TCP / ours", 0.95),
        ],
        measure: || bulk::measure(FsLink::Gigabit),
    },
    AimedPart {
        name: "bulk-delayed",
        aims: &[
            least("100 MB copied in, 100 µs one way: time of plain TCP / ours", 0.95),
            least("100 MB copied out, cold, 100 µs one way: time of plain TCP / ours", 0.95),
        ],
        measure: || bulk::measure(FsLink::Delayed),
    },
    AimedPart {
        name: "clients",
        aims: &[
            least("eight clients / the lesser of 4 x one and 0.8 x what two processors can", 1.0),
            most("server's processor time an operation: ours / nfs-ganesha's", 1.0),
        ],
        measure: || clients::measure(FsLink::Gigabit),
    },
    AimedPart {
        name: "clients-delayed",
        aims: &[
            least(
                "100 µs one way: eight clients / the lesser of 4 x one and 0.8 x what the \
                 processor can",
                1.0,
            ),
            most("100 µs one way: server's processor time an operation: ours / ganesha's", 1.0),
        ],
        measure: || clients::measure(FsLink::Delayed),
    },
    AimedPart {
        name: "commits",
        aims: &[least("eight clients that fsync: ours / plain C that commits in groups", 0.8)],
        measure: commits::measure,
    },
    AimedPart {
        name: "variants",
        aims: &[
            least("create and write a file: rdma / active", 1.0),
            least("stat, cold: rdma / active", 1.0),
            least("read a file: rdma / active", 1.0),
            least("remove a file: rdma / active", 1.0),
        ],
        measure: || variants::measure(FsLink::Gigabit),
    },
    AimedPart {
        name: "variants-delayed",
        aims: &[
            least("100 µs one way: create and write a file: rdma / active", 2.0),
            least("100 µs one way: stat, cold: rdma / active", 1.0),
            least("100 µs one way: read a file: rdma / active", 1.5),
            least("100 µs one way: remove a file: rdma / active", 2.0),
        ],
        measure: || variants::measure(FsLink::Delayed),
    },
];

const DELAYED: [Aim; 7] = [
    least("100 µs one way: grep of an expression at the server: over sshfs, cold / ours", 10.0),
    least("100 µs one way: grep of a literal at the server: over sshfs, cold / ours", 20.0),
    most("100 µs one way: find at the server / GNU find on tmpfs", 1.5),
    least("100 µs one way: find through the mount, cold: sshfs / ours", 1.0),
    least("100 µs one way: untar of 2,000 files: sshfs / ours", 5.0),
    least("100 µs one way: untar of 2,000 files: nfs-ganesha / ours", 5.0),
    least("100 µs one way: rm -r at the server: `rm -r` over sshfs / ours", 20.0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_parts_or_aims_are_called_alike() {
        assert!(aimed::are_apart(PARTS));
    }
}
