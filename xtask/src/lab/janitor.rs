//! Cleans up after a lab, however the program that made it ends.
//!
//! A shell that waits for its input to end, which happens when the lab is dropped and also when
//! this program is killed. It is in a process group of its own, so no Ctrl-C reaches it.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// `$0` is the control group; the rest are namespaces. A group can be removed only a moment after
/// its processes have ended, so that is retried for five seconds.
const CLEAR: &str = r#"
cat > /dev/null
echo 1 > "$0/cgroup.kill"
for namespace; do
    ip netns pids "$namespace" | xargs --no-run-if-empty kill -KILL
    ip netns delete "$namespace"
done
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    find "$0" -depth -type d -exec rmdir {} +
    test -d "$0" || exit 0
    sleep 0.5
done
"#;

/// The waiting process.
#[derive(Debug)]
pub(super) struct Janitor(Child);

impl Janitor {
    pub(super) fn start(
        group: &Path,
        namespaces: impl Iterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", CLEAR]).arg(group).args(namespaces);
        // Errors about namespaces or groups that are gone already are expected and suppressed.
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        shell.spawn().map(Self).context("cannot start a shell")
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
