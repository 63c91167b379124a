//! Resource use of the processes of a slot sandbox, sampled while a job runs: the kernel's limits
//! do not bound their memory together.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Dir, Mode, OFlags, openat};

/// Sums over all processes of a slot sandbox but its first.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) processes: u32,
    /// Bytes; pages that processes share are counted for each.
    pub(super) resident: u64,
}

/// Reads the slot sandbox's own `/proc`.
#[derive(Debug)]
pub(super) struct ProcessWatch {
    proc: OwnedFd,
    page: u64,
}

impl ProcessWatch {
    pub(super) fn new(proc: OwnedFd) -> Self {
        Self { proc, page: rustix::param::page_size() as u64 }
    }

    /// What is used now. A process that ends during the look is left out.
    pub(super) fn sample(&self) -> rustix::io::Result<Sample> {
        let mut sample = Sample::default();
        for entry in Dir::read_from(&self.proc)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"1" || !name.iter().all(u8::is_ascii_digit) {
                continue;
            }
            if let Some(pages) = self.resident(name) {
                sample.processes += 1;
                sample.resident += pages * self.page;
            }
        }
        Ok(sample)
    }

    fn resident(&self, process: &[u8]) -> Option<u64> {
        let path = [process, b"/statm"].concat();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let statm = openat(self.proc.as_fd(), path, flags, Mode::empty()).ok()?;
        let mut text = [0; 128];
        let length = File::from(statm).read(&mut text).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    }
}
