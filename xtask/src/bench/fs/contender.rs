//! A contender's mount on the client: made anew wherever the client has to be cold.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::servers::{MOUNT_PORT, NFS_PORT, OURS_PORT, SSH_PORT, VOLATILE_PORT};
use super::stage::FsStage;
use crate::command;

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FsContender {
    Ours,
    /// Names and attributes are read one-sided.
    OneSided,
    /// Everything is, on a volatile file system.
    Rdma,
    Sshfs,
    Ganesha,
}

impl FsContender {
    /// Those that there are.
    pub(super) fn all(stage: &FsStage) -> Vec<Self> {
        let ganesha = stage.has_ganesha.then_some(Self::Ganesha);
        [Self::Ours, Self::Sshfs].into_iter().chain(ganesha).collect()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "outboard fs, mounted",
            Self::OneSided => "outboard fs, mounted --one-sided",
            Self::Rdma => "outboard fs, volatile, rdma",
            Self::Sshfs => "sshfs",
            Self::Ganesha => "nfs-ganesha, fuse-nfs",
        }
    }

    /// A new mount, of which several may be at once.
    pub(super) fn mount(self, stage: &FsStage, number: usize) -> Result<MountedFs> {
        let at = stage.directory(&format!("at{number}"))?;
        stage.timed(self.command(stage).args(self.options(stage, &at)))?;
        Ok(MountedFs(at))
    }

    fn command(self, stage: &FsStage) -> Command {
        match self {
            Self::Ours | Self::OneSided | Self::Rdma => stage.outboard(stage.client()),
            Self::Sshfs => stage.client().command("sshfs"),
            Self::Ganesha => stage.client().command("fuse-nfs"),
        }
    }

    fn options(self, stage: &FsStage, at: &std::path::Path) -> Vec<String> {
        let (host, at) = (stage.address(), at.display().to_string());
        let served = stage.on_disk_path("served");
        match self {
            Self::Ours => ours(&[], (host, OURS_PORT), at),
            Self::OneSided => ours(&["--one-sided"], (host, OURS_PORT), at),
            Self::Rdma => ours(&["--variant", "rdma"], (host, VOLATILE_PORT), at),
            Self::Sshfs => {
                let key = stage.path("ssh/user");
                let known = stage.path("ssh/known");
                let options = format!(
                    "Port={SSH_PORT},IdentityFile={},UserKnownHostsFile={},\
                     StrictHostKeyChecking=no,Ciphers=aes128-gcm@openssh.com,Compression=no",
                    key.display(),
                    known.display()
                );
                let from = format!("root@{host}:{}", served.display());
                vec!["-F".into(), "/dev/null".into(), from, at, "-o".into(), options]
            }
            Self::Ganesha => {
                let ports = format!("nfsport={NFS_PORT}&mountport={MOUNT_PORT}&version=3");
                let from = format!("nfs://{host}/served?{ports}");
                vec!["-n".into(), from, "-m".into(), at]
            }
        }
    }
}

/// How ours is mounted.
fn ours(how: &[&str], (host, port): (std::net::Ipv4Addr, u16), at: String) -> Vec<String> {
    let words = ["fs", "mount"].iter().chain(how).map(|word| (*word).to_owned());
    words.chain([format!("{host}:{port}:/"), at]).collect()
}

/// A mount; unmounted when dropped.
#[derive(Debug)]
pub(super) struct MountedFs(pub(super) PathBuf);

impl Drop for MountedFs {
    fn drop(&mut self) {
        let plain = Command::new("umount").arg(&self.0).status();
        if !plain.is_ok_and(|status| status.success()) {
            // The scratch directory's end tries again.
            let _ = command::run(Command::new("umount").arg("--lazy").arg(&self.0));
        }
    }
}
