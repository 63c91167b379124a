//! One of the project's programs on the host: started, waited for, and killed when dropped.
//!
//! Its output stays in a pipe until it ends, so the output must be short (a pipe's 64 KiB).

use super::quiet::tail;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const LISTEN_LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// A running program, killed when dropped.
#[derive(Debug)]
pub(super) struct Ours {
    child: Option<Child>,
}

impl Ours {
    pub(super) fn start(command: &mut Command) -> Result<Self, String> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run {command:?}: {error}"))?;
        Ok(Self { child: Some(child) })
    }

    /// Waits until a socket on 127.0.0.1 listens on `port`. Looks without connecting, because a
    /// server accepts one connection only.
    pub(super) fn wait_listening(&mut self, port: u16) -> Result<(), String> {
        let socket = format!(" 0100007F:{port:04X} 00000000:0000 0A ");
        let listens = |_: &mut Self| {
            fs::read_to_string("/proc/net/tcp").is_ok_and(|table| table.contains(&socket))
        };
        if self.wait_until(LISTEN_LIMIT, listens) {
            return Ok(());
        }
        Err(format!("our server does not listen on 127.0.0.1:{port}\n{}", self.end()))
    }

    /// Waits for the program to exit with 0 and returns what it wrote to both streams.
    pub(super) fn finish(mut self, limit: Duration) -> Result<String, String> {
        if !self.wait_until(limit, Self::exited) {
            return Err(format!("our program did not end in {limit:?}\n{}", self.end()));
        }
        let status = self.child.as_mut().and_then(|child| child.wait().ok());
        let said = self.end();
        match status {
            Some(status) if status.success() => Ok(said),
            _ => Err(format!("our program failed\n{said}")),
        }
    }

    /// Checks repeatedly until `condition` holds; `false` if it did not within `limit`, or the
    /// program ended before it did.
    fn wait_until(&mut self, limit: Duration, condition: impl Fn(&mut Self) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self.exited();
            if condition(self) {
                return true;
            }
            if ended || Instant::now() > deadline {
                return false;
            }
            thread::sleep(PAUSE);
        }
    }

    fn exited(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    fn end(&mut self) -> String {
        let Some(mut child) = self.child.take() else {
            return String::new();
        };
        // If the program has exited already, the error is expected.
        let _ = child.kill();
        child.wait_with_output().map_or_else(
            |error| format!("our program's output is lost: {error}"),
            |output| {
                let both = [output.stdout, output.stderr].concat();
                let said = tail(&String::from_utf8_lossy(&both), 40);
                format!("our program ended with {} and said:\n{said}", output.status)
            },
        )
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn shell(script: &str) -> Ours {
        Ours::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn success_returns_both_streams() {
        let said = shell("echo out; echo err >&2").finish(LISTEN_LIMIT).unwrap();
        assert!(said.contains("out\nerr"), "{said}");
    }

    #[test]
    fn failure_and_slowness_are_errors_with_the_output() {
        let error = shell("echo why; exit 3").finish(LISTEN_LIMIT).unwrap_err();
        assert!(error.contains("exit status: 3") && error.contains("why"), "{error}");
        let error = shell("echo why; exec sleep 100").finish(PAUSE * 40).unwrap_err();
        assert!(error.contains("did not end") && error.contains("why"), "{error}");
    }

    #[test]
    fn a_listener_is_seen_and_its_absence_is_noticed_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        shell("sleep 1").wait_listening(port).unwrap();
        drop(listener);
        let began = Instant::now();
        assert!(shell("true").wait_listening(port).is_err());
        assert!(began.elapsed() < LISTEN_LIMIT);
    }
}
