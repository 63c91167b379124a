//! `outboard sbcast` beside Slurm's own, on the same files.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};

use super::cluster::{NODES, SlurmCluster};

/// What is sent: names, bytes and modes.
const FILES: [(&str, usize, u32); 4] =
    [("empty", 0, 0o644), ("one", 1, 0o400), ("program", 5_000_001, 0o751), ("set", 100, 0o4755)];
/// Bytes of the file that is timed.
const TIMED: usize = 64 << 20;

fn write(path: &Path, len: usize, mode: u32) -> Result<()> {
    let mut state = u64::try_from(len)? | 1;
    let bytes = (0..len).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    fs::write(path, bytes.collect::<Vec<u8>>())?;
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::open(path)?.set_modified(modified)?;
    // The user of the jobs must be able to read it.
    std::os::unix::fs::chown(path, Some(super::cluster::USER), None)?;
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

/// Contents, modes and times are what Slurm's `sbcast -p` makes of them.
pub(super) fn same_files(cluster: &SlurmCluster) -> Result<()> {
    for (name, len, mode) in FILES {
        write(&cluster.file("work").join(name), len, mode)?;
    }
    let run = cluster.allocated(
        "set -e; for file in empty one program set; do \
           sbcast -p $file $AT/$file.slurm; $OB sbcast -C -F 4 -s 3m $file $AT/$file; \
         done; \
         cd $AT; $OB sbcast ../work/one relative; \
         SBCAST_FORCE= SBCAST_SIZE=512k SBCAST_TIMEOUT=20 $OB sbcast ../work/program relative; \
         $OB sbcast --force -v ../work/program $AT/empty",
    )?;
    run.expect_code(0)?.expect_said("n3: there")?;
    for node in 1..=NODES {
        let disk = cluster.disk(node);
        for (name, ..) in FILES.iter().filter(|(name, ..)| *name != "empty") {
            expect_same(&disk.join(format!("{name}.slurm")), &disk.join(name))?;
        }
        for name in ["relative", "empty"] {
            expect_same(&cluster.file("work/program"), &disk.join(name))?;
        }
        ensure!(fs::metadata(disk.join("empty.slurm"))?.len() == 0);
        let names = fs::read_dir(&disk)?.count();
        ensure!(names == 2 * FILES.len() + 1, "node {node} has {names} names");
    }
    Ok(())
}

/// Requires equal contents, modes and times.
fn expect_same(one: &Path, other: &Path) -> Result<()> {
    let facts = |path: &Path| -> Result<(u32, SystemTime, Vec<u8>)> {
        let metadata = fs::symlink_metadata(path).with_context(|| format!("{path:?}"))?;
        Ok((metadata.permissions().mode(), metadata.modified()?, fs::read(path)?))
    };
    let ((mode, time, bytes), (other_mode, other_time, other_bytes)) = (facts(one)?, facts(other)?);
    ensure!(mode == other_mode, "{other:?} has mode {other_mode:o}, {one:?} {mode:o}");
    ensure!(time == other_time, "{other:?} is of {other_time:?}, {one:?} of {time:?}");
    ensure!(bytes == other_bytes, "{other:?} has other contents than {one:?}");
    Ok(())
}

/// What Slurm's sbcast refuses, ours refuses, and says why.
pub(super) fn same_refusals(cluster: &SlurmCluster) -> Result<()> {
    write(&cluster.file("work/one"), 1, 0o644)?;
    write(&cluster.file("work/two"), 2, 0o644)?;
    cluster.allocated("$OB sbcast one $AT/there")?.expect_code(0)?;
    for (arguments, why) in [
        ("two $AT/there", "at the destination already"),
        ("two $AT/none/x", "No such file"),
        ("two $AT/", "give a file's path"),
        ("two $AT", "outboard: n4: "),
        ("none $AT/x", "none"),
        ("--bad two $AT/x", "--bad"),
    ] {
        let script = format!("sbcast {arguments}; test $? != 0 || exit 99; $OB sbcast {arguments}");
        let run = cluster.allocated(&script)?;
        if run.expect_code(1).is_err() {
            run.expect_code(2)?;
        }
        run.expect_said(why)?;
    }
    let outside = super::program::CommandRun::of(
        cluster.user_command(cluster.program()).args(["sbcast", "two", "/tmp/x"]),
    )?;
    outside.expect_code(1)?.expect_said("this is no Slurm job")?;
    for node in 1..=NODES {
        ensure!(fs::read(cluster.disk(node).join("there"))?.len() == 1, "it was replaced");
        ensure!(fs::read_dir(cluster.disk(node))?.count() == 1, "something was left there");
    }
    Ok(())
}

/// `--send-libs` finds the same libraries, for programs and for scripts.
pub(super) fn same_libraries(cluster: &SlurmCluster) -> Result<()> {
    fs::write(cluster.file("work/script"), "#!/bin/sh\n")?;
    fs::set_permissions(cluster.file("work/script"), Permissions::from_mode(0o755))?;
    let run = cluster.allocated(
        "set -e; for which in sbcast \"$OB sbcast\"; do name=${which%% *}; name=${name##*/}; \
           $which --send-libs --exclude=NONE /bin/ls $AT/$name-all; \
           $which --send-libs=yes /bin/ls $AT/$name-some; \
           SBCAST_SEND_LIBS=yes $which script $AT/$name-script; \
           $which --send-libs=no /bin/ls $AT/$name-alone; \
         done",
    )?;
    run.expect_code(0)?;
    for node in 1..=NODES {
        let disk = cluster.disk(node);
        for (kind, least) in [("all", 2), ("some", 0)] {
            let [theirs, ours] =
                ["sbcast", "outboard"].map(|who| disk.join(format!("{who}-{kind}_libs")));
            let names = names_in(&theirs)?;
            ensure!(names == names_in(&ours)? && names.len() >= least, "{kind}: {names:?}");
            for name in names {
                ensure!(fs::read(theirs.join(&name))? == fs::read(ours.join(&name))?, "{name}");
            }
        }
        ensure!(
            !disk.join("outboard-script_libs").exists() && disk.join("outboard-script").exists()
        );
        ensure!(!disk.join("outboard-alone_libs").exists());
    }
    Ok(())
}

fn names_in(directory: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(directory).with_context(|| format!("{}", directory.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Prints how long both take; only a hang fails.
pub(super) fn timed(cluster: &SlurmCluster) -> Result<()> {
    write(&cluster.file("work/large"), TIMED, 0o644)?;
    let time = |script: &str| -> Result<f64> {
        let run = cluster.allocated(&format!("date +%s.%N; {script} && date +%s.%N"))?;
        let said = run.expect_code(0)?.out();
        let times: Vec<f64> = said.lines().filter_map(|line| line.parse().ok()).collect();
        match times.as_slice() {
            [began, ended] => Ok(ended - began),
            _ => bail!("no times in {said}"),
        }
    };
    let theirs = time("sbcast large $AT/theirs")?;
    let ours = time("$OB sbcast large $AT/ours")?;
    let mib = TIMED >> 20;
    println!(
        "  {mib} MiB to {NODES} nodes: sbcast {theirs:.2} s, ours {ours:.2} s (not optimized)"
    );
    Ok(())
}
