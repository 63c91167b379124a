//! A running guest: its serial console and its end.
//!
//! qemu emulates the processor, because hardware virtualization is rarely available where tests
//! run. Its user network gives the guest 10.0.2.15, shows it the host's loopback as 10.0.2.2 and
//! opens the forwarded ports on 127.0.0.1 only. A guest ends with its [`Guest`] and with the thread
//! that booted it, even if the whole process is killed.

use super::Vm;
use super::quiet::tail;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How much of the console an error message shows.
const TAIL_LINES: usize = 60;

/// Distinguishes the initramfs files of one process.
static BOOTS: AtomicU32 = AtomicU32::new(0);

/// A virtual machine which ends when this value does.
#[derive(Debug)]
pub struct Guest {
    qemu: Child,
    console: Receiver<String>,
    log: String,
    _initrd: File,
}

impl Guest {
    pub(super) fn start(vm: &Vm, initrd: &[u8], forwards: &[(u16, u16)]) -> Result<Self, String> {
        let initrd = unnamed(&vm.scratch, initrd)
            .map_err(|error| format!("cannot write in {}: {error}", vm.scratch.display()))?;
        let mut qemu = qemu_command(vm, &initrd, forwards)
            .spawn()
            .map_err(|error| format!("cannot run qemu-system-x86_64: {error}"))?;
        let (sender, console) = mpsc::channel();
        forward(qemu.stdout.take(), sender.clone());
        forward(qemu.stderr.take(), sender);
        Ok(Self { qemu, console, log: String::new(), _initrd: initrd })
    }

    /// Waits until the console has shown `text`, now or earlier.
    ///
    /// # Errors
    /// When the guest ended or `timeout` passed without it; with the end of the console.
    pub fn wait_for(&mut self, text: &str, timeout: Duration) -> Result<(), String> {
        let deadline = Instant::now() + timeout;
        while !self.log.contains(text) {
            if !self.read_until(deadline).map_err(|late| self.complain(text, late))? {
                return Err(self.complain(text, "the guest ended"));
            }
        }
        Ok(())
    }

    /// Waits for the guest to power off and returns its whole console.
    ///
    /// # Errors
    /// When it did not within `timeout`, a step of its start failed, or its script did not exit
    /// with 0; with the end of the console.
    pub fn wait(mut self, timeout: Duration) -> Result<String, String> {
        let deadline = Instant::now() + timeout;
        let success = "SCRIPT EXIT 0\n";
        while self.read_until(deadline).map_err(|late| self.complain("its end", late))? {}
        if self.log.contains("INIT FAILED") || !self.log.contains(success) {
            return Err(self.complain(success.trim(), "the guest ended"));
        }
        Ok(std::mem::take(&mut self.log))
    }

    /// Reads the console's next output; `false` once the guest has ended.
    fn read_until(&mut self, deadline: Instant) -> Result<bool, &'static str> {
        match self.console.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(text) => self.log.push_str(&text),
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
            Err(RecvTimeoutError::Timeout) => return Err("the time is up"),
        }
        Ok(true)
    }

    fn complain(&self, wanted: &str, happened: &str) -> String {
        let console = tail(&self.log, TAIL_LINES);
        format!("waited for \"{wanted}\" of the siw guest, but {happened}; console:\n{console}")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // If the guest has ended already, the error is expected.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// A file with this content and no name: its space is freed once this process and qemu have closed
/// it.
fn unnamed(directory: &Path, content: &[u8]) -> io::Result<File> {
    let number = BOOTS.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!("initrd-{}-{number}", process::id()));
    fs::write(&path, content)?;
    let file = File::open(&path);
    fs::remove_file(&path)?;
    file
}

fn qemu_command(vm: &Vm, initrd: &File, forwards: &[(u16, u16)]) -> Command {
    let mut network = String::from("user,id=net0");
    for (host, guest) in forwards {
        network.push_str(&format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}"));
    }
    // setpriv executes qemu; the kernel then kills it when the booting thread ends, for whatever
    // reason.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
        .args(["-accel", "tcg", "-cpu", "qemu64", "-m", "1024"])
        .args(["-smp", &vm.processors.to_string()])
        .args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"])
        .args(["-append", "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off"])
        .args(["-netdev", &network, "-device", "virtio-net-pci,netdev=net0,romfile="])
        .arg("-kernel")
        .arg(&vm.kernel)
        .arg("-initrd")
        .arg(format!("/proc/{}/fd/{}", process::id(), initrd.as_raw_fd()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Forwards the output of `stream`, without carriage returns, until it ends.
fn forward(stream: Option<impl Read + Send + 'static>, console: Sender<String>) {
    let Some(mut stream) = stream else { return };
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]).replace('\r', "");
            if console.send(text).is_err() {
                return;
            }
        }
    });
}
