//! Other programs that bring a file to many machines, each with the options that were best here.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::stage::{CastStage, SourceFile, wait_end};

const RSYNC_PORT: u16 = 873;
const NFS_PORT: u16 = 2049;
const MOUNT_PORT: u16 = 20048;
/// The part of a link that a sender by multicast is told to fill.
const MULTICAST_SHARE: f64 = 0.9;

/// udpcast: multicast, receivers ask again for what they missed.
pub(super) fn udpcast(stage: &mut CastStage, file: &SourceFile) -> Result<f64> {
    for index in 0..stage.receivers() {
        let mut receive = stage.at(index, "udp-receiver");
        receive.args(["--nokbd", "--nosync", "--interface", "eth0", "--file"]);
        receive.arg(stage.destination().join(file.path.file_name().unwrap_or_default()));
        stage.start(&mut receive)?;
    }
    let mut send = stage.here("udp-sender");
    send.args(["--nokbd", "--interface", "eth0", "--min-receivers"]);
    send.arg(stage.receivers().to_string()).arg("--file").arg(&file.path);
    let sent = stage.run(&mut send);
    // Receivers close their files after the sender has ended.
    let checked = sent.and_then(|(cost, _)| settled(stage, file).map(|()| cost.seconds));
    stage.end_all()?;
    checked
}

/// uftp: multicast at a given rate, not encrypted.
pub(super) fn uftp(stage: &mut CastStage, file: &SourceFile, bits: u64) -> Result<f64> {
    for index in 0..stage.receivers() {
        let mut receive = stage.at(index, "uftpd");
        receive.args(["-d", "-t", "-I", "eth0", "-D"]).arg(stage.destination());
        stage.start(&mut receive)?;
    }
    let mut send = stage.here("uftp");
    send.args(["-I", "eth0", "-q", "-R", &share(bits)]).arg(&file.path);
    let sent = stage.run(&mut send);
    let checked = sent.and_then(|(cost, _)| settled(stage, file).map(|()| cost.seconds));
    stage.end_all()?;
    checked
}

/// Kilobits a second.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn share(bits: u64) -> String {
    format!("{:.0}", bits as f64 * MULTICAST_SHARE / 1000.0)
}

/// Waits a little for what receivers do after their sender has ended, and checks it.
fn settled(stage: &CastStage, file: &SourceFile) -> Result<()> {
    let name = file.path.file_name().unwrap_or_default();
    let there = |index: usize| {
        stage.disk(index).join(name).metadata().is_ok_and(|copy| copy.len() == file.bytes)
    };
    for _ in 0..100 {
        if (0..stage.receivers()).all(there) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    stage.check(file)
}

/// rsync to one daemon after the other.
pub(super) fn rsync(stage: &mut CastStage, file: &SourceFile) -> Result<f64> {
    for index in 0..stage.receivers() {
        let own = stage.directory(&format!("rsync{index}"))?;
        let configuration = own.join("rsyncd.conf");
        let text = format!(
            "use chroot = no\nuid = 0\ngid = 0\npid file = {}\n[at]\npath = {}\nread only = no\n",
            own.join("pid").display(),
            stage.destination().display(),
        );
        fs::write(&configuration, text)?;
        let mut daemon = stage.at(index, "rsync");
        daemon.args(["--daemon", "--no-detach", "--config"]).arg(configuration);
        let process = stage.start(&mut daemon)?;
        stage.wait_listening(process, RSYNC_PORT)?;
    }
    let (cost, ()) = stage.measured(|| {
        for address in stage.addresses() {
            let mut copy = stage.here("rsync");
            copy.args(["--whole-file", "--inplace"]).arg(&file.path);
            stage.run(copy.arg(format!("rsync://{address}/at/")))?;
        }
        Ok(())
    })?;
    // A daemon writes its pid file once.
    for index in 0..stage.receivers() {
        let _ = fs::remove_file(stage.directory(&format!("rsync{index}"))?.join("pid"));
    }
    stage.end_all()?;
    stage.check(file)?;
    Ok(cost.seconds)
}

/// All receivers read from one NFS server at the same time: nfs-ganesha, NFS version 3, and
/// libnfs's client.
pub(super) fn nfs(stage: &mut CastStage, file: &SourceFile) -> Result<f64> {
    let mut binder = stage.here("rpcbind");
    stage.start(binder.args(["-f", "-w"]))?;
    let own = stage.directory("ganesha")?;
    let exported = file.path.parent().context("the file is in no directory")?;
    let text = format!(
        "NFS_CORE_PARAM {{ NFS_Protocols = 3; NFS_Port = {NFS_PORT}; MNT_Port = {MOUNT_PORT}; \
         Enable_NLM = false; Enable_RQUOTA = false; mount_path_pseudo = true; }}\n\
         EXPORT {{ Export_Id = 1; Path = {}; Pseudo = /source; Protocols = 3; \
         Access_Type = RO; Squash = None; SecType = sys; FSAL {{ Name = VFS; }} }}\n",
        exported.display()
    );
    let configuration = own.join("ganesha.conf");
    fs::write(&configuration, text)?;
    let mut server = stage.here("ganesha.nfsd");
    server.args(["-F", "-N", "NIV_EVENT", "-f"]).arg(&configuration);
    server.arg("-L").arg(own.join("log")).arg("-p").arg(own.join("pid"));
    let process = stage.start(&mut server)?;
    stage.wait_listening(process, NFS_PORT)?;
    let name = file.path.file_name().unwrap_or_default();
    let from = format!(
        "nfs://{}/source/{}?nfsport={NFS_PORT}&mountport={MOUNT_PORT}&version=3",
        stage.source_host().address,
        name.to_string_lossy(),
    );
    let read = stage.measured(|| {
        let start = |index| {
            let mut read = stage.at(index, "nfs-cp");
            Ok(read.arg(&from).arg(stage.destination().join(name)).spawn()?)
        };
        let readers: Vec<_> = (0..stage.receivers()).map(start).collect::<Result<_>>()?;
        for mut reader in readers {
            ensure!(wait_end(&mut reader)?.success(), "nfs-cp failed");
        }
        Ok(())
    });
    stage.end_all()?;
    let _ = fs::remove_file(own.join("pid"));
    let (cost, ()) = read?;
    stage.check(file)?;
    Ok(cost.seconds)
}
