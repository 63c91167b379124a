//! The servers: Outboard's, sshd with keys and a configuration of its own, nfs-ganesha. Never
//! touches what the machine has of these.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::Result;

use super::stage::FsStage;
use crate::command;

pub(super) const OURS_PORT: u16 = 7410;
/// Where the volatile one is.
pub(super) const VOLATILE_PORT: u16 = 7411;
pub(super) const SSH_PORT: u16 = 2222;
pub(super) const NFS_PORT: u16 = 2049;
pub(super) const MOUNT_PORT: u16 = 20048;
const BINDER_PORT: u16 = 111;

/// Starts all. Without a FUSE client for NFS there is no ganesha.
pub(super) fn start(stage: &mut FsStage) -> Result<()> {
    let served = stage.on_disk_path("served");
    fs::create_dir(&served)?;
    fs::set_permissions(&served, Permissions::from_mode(0o777))?;
    ours(stage)?;
    sshd(stage)?;
    if command::succeeds("which", &["fuse-nfs"]) && command::succeeds("which", &["ganesha.nfsd"]) {
        ganesha(stage)?;
        stage.has_ganesha = true;
    }
    Ok(())
}

fn ours(stage: &mut FsStage) -> Result<()> {
    let home = stage.directory("home")?;
    // Services run as an ordinary user, which may have no access to the workspace.
    let program = home.join("outboard");
    fs::copy(command::target_dir().join("release/outboard"), &program)?;
    let mut make = Command::new(&program);
    make.args(["key", "new"]).env("OUTBOARD_KEY", home.join("key")).env("HOME", &home);
    command::output(&mut make)?;
    let mut serve = stage.outboard(stage.server());
    serve.args(["fs", "serve", "--size", "2GiB", "--no-root-squash", "--one-sided", "--store"]);
    serve.arg(stage.on_disk_path("store"));
    serve.args(["--listen", &format!("{}:{OURS_PORT}", stage.address())]);
    serve.arg("--key").arg(home.join("key"));
    stage.start(&mut serve, OURS_PORT)?;
    // A server listens before its service runs.
    let mut stats = stage.outboard(stage.client());
    stats.args(["fs", "stats", &format!("{}:{OURS_PORT}", stage.address())]);
    stage.timed(&mut stats)?;
    Ok(())
}

/// A volatile one, beside the others.
pub(super) fn volatile(stage: &mut FsStage) -> Result<()> {
    let mut serve = stage.outboard(stage.server());
    serve.args(["fs", "serve", "--volatile", "--size", "1GiB"]);
    serve.args(["--listen", &format!("{}:{VOLATILE_PORT}", stage.address())]);
    serve.arg("--key").arg(stage.path("home/key"));
    stage.start(&mut serve, VOLATILE_PORT)
}

fn sshd(stage: &mut FsStage) -> Result<()> {
    let own = stage.directory("ssh")?;
    for key in ["host", "user"] {
        let mut make = Command::new("ssh-keygen");
        command::run(make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(own.join(key)))?;
    }
    fs::copy(own.join("user.pub"), own.join("authorized"))?;
    let own = own.display();
    let text = format!(
        "Port {SSH_PORT}\nListenAddress {}\nHostKey {own}/host\nPidFile none\nUsePAM no\n\
         AuthorizedKeysFile {own}/authorized\nStrictModes no\nPermitRootLogin yes\n\
         Subsystem sftp /usr/lib/openssh/sftp-server\nUseDNS no\n",
        stage.address()
    );
    let configuration = stage.path("ssh/sshd_config");
    fs::write(&configuration, text)?;
    fs::create_dir_all("/run/sshd")?;
    let mut serve = stage.server().command("/usr/sbin/sshd");
    stage.start(serve.args(["-D", "-e", "-f"]).arg(configuration), SSH_PORT)
}

fn ganesha(stage: &mut FsStage) -> Result<()> {
    let mut binder = stage.server().command("rpcbind");
    stage.start(binder.args(["-f", "-w"]), BINDER_PORT)?;
    let own = stage.directory("ganesha")?;
    let text = format!(
        "NFS_CORE_PARAM {{ NFS_Protocols = 3; NFS_Port = {NFS_PORT}; MNT_Port = {MOUNT_PORT}; \
         Enable_NLM = false; Enable_RQUOTA = false; mount_path_pseudo = true; }}\n\
         EXPORT {{ Export_Id = 1; Path = {}; Pseudo = /served; Protocols = 3; \
         Access_Type = RW; Squash = None; SecType = sys; FSAL {{ Name = VFS; }} }}\n",
        stage.on_disk_path("served").display()
    );
    let configuration = own.join("ganesha.conf");
    fs::write(&configuration, text)?;
    let mut server = stage.server().command("ganesha.nfsd");
    server.args(["-F", "-N", "NIV_EVENT", "-f"]).arg(&configuration);
    server.arg("-L").arg(own.join("log")).arg("-p").arg(own.join("pid"));
    stage.start(&mut server, NFS_PORT)
}
