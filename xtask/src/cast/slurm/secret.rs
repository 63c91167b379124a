//! The secret of a cast: in no argument, no environment and no file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Result, ensure};

use super::cluster::{NODES, SlurmCluster, receivers, wait_until};

/// Stands in for the program at the nodes: shows the test the secret, starts the real receiver, and
/// lets it say where it is when the test has searched.
const TELLTALE: &str = r#"#!/bin/sh
read -r key; read -r terms
umask 022
me=$SEEN/$SLURMD_NODENAME
echo "${key##* }" >$me.new && mv $me.new $me
{ printf '%s\n%s\n' "$key" "$terms"; cat; } | "$OB" "$@" |
{ until [ -e $SEEN/go ]; do sleep 0.05; done; cat; }
"#;

/// Searches while four receivers run.
pub(super) fn nowhere(cluster: &SlurmCluster) -> Result<()> {
    let (work, seen) = (cluster.file("work"), cluster.file("seen"));
    fs::write(work.join("file"), "contents")?;
    let telltale = work.join("telltale");
    fs::write(&telltale, TELLTALE)?;
    fs::set_permissions(&telltale, PermissionsExt::from_mode(0o755))?;
    let mut salloc = cluster.user_command("timeout");
    let script = "exec $OB sbcast --launch-program $PWD/telltale file $AT/file";
    salloc.args(["60", "salloc", "--quiet", &format!("--nodes={NODES}"), "sh", "-c", script]);
    cluster.named(&mut salloc).env("SEEN", &seen).stdout(Stdio::null());
    let mut salloc = salloc.spawn()?;
    let are_all_told = || (1..=NODES).all(|node| seen.join(format!("n{node}")).exists());
    wait_until("all receivers", || Ok(are_all_told() && receivers()?.len() == NODES))?;
    let found = search(cluster);
    fs::write(seen.join("go"), "")?;
    let status = salloc.wait()?;
    let secret = found?;
    ensure!(status.success(), "the cast: {status}");
    let path = cluster.disk(NODES).join("file");
    ensure!(fs::read_to_string(path)? == "contents", "the cast went on");
    // The next cast has another.
    ensure!(secret.len() == 64, "{} digits", secret.len());
    Ok(())
}

/// Everything that the secret must not be in; returns it.
fn search(cluster: &SlurmCluster) -> Result<String> {
    let seen = cluster.file("seen");
    let secret = fs::read_to_string(seen.join("n1"))?.trim().to_owned();
    for node in 1..=NODES {
        let found = fs::read_to_string(seen.join(format!("n{node}")))?;
        ensure!(found.trim() == secret, "node n{node} has another secret");
    }
    let holds = |path: &Path| fs::read(path).is_ok_and(|bytes| contains(&bytes, &secret));
    let mut processes = 0;
    for entry in fs::read_dir("/proc")? {
        let process = entry?.path();
        for part in ["cmdline", "environ"] {
            ensure!(!holds(&process.join(part)), "it is in {}/{part}", process.display());
        }
        processes += u32::from(process.join("cmdline").exists());
    }
    ensure!(processes > 8, "only {processes} processes were seen");
    let mut files = 0;
    let mut left = vec![cluster.file("")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            // The program is older than the secret, and large.
            if kind.is_dir() && entry.file_name() != "bin" {
                left.push(path);
            } else if kind.is_file() {
                files += 1;
                // What the stand-in wrote shows that the search finds it.
                ensure!(
                    holds(&path) == path.parent().is_some_and(|at| at == seen)
                        || path.starts_with(&seen),
                    "it is in {}",
                    path.display()
                );
            }
        }
    }
    ensure!(holds(&seen.join("n2")) && files > 10, "{files} files were seen");
    Ok(secret)
}

fn contains(bytes: &[u8], secret: &str) -> bool {
    bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
}
