//! Memory that outlives a service's process: descriptors of memory files that the supervisor keeps
//! under names, and gives to the next process of the service.
//!
//! The supervisor neither maps nor reads them. A service never gets another service's memory.

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

/// Memory files of one service, at most.
const COUNT_MAX: usize = 64;
/// Bytes of a name, at most.
const NAME_MAX: usize = 255;
/// The seals that fix the length, so that no process can truncate a mapping.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Kept(BTreeMap<String, Memory>);

#[derive(Debug)]
struct Memory {
    fd: OwnedFd,
    len: u64,
}

impl Kept {
    /// Keeps memory under a name, and drops what had that name; the error says what is wrong with
    /// the memory.
    pub(super) fn keep(&mut self, name: String, memory: Option<OwnedFd>) -> Result<(), String> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(format!("a name of kept memory has 1 to {NAME_MAX} bytes"));
        }
        let Some(fd) = memory else { return Err("no memory came along".into()) };
        let seals = fcntl_get_seals(&fd).map_err(|_| "only memory files are kept".to_owned())?;
        if !seals.contains(SEALS) {
            return Err("kept memory must be sealed against growing and shrinking".into());
        }
        let len = fstat(&fd).map_err(|error| error.to_string())?.st_size;
        let len = u64::try_from(len).unwrap_or_default();
        let others = self.0.iter().filter(|(known, _)| **known != name);
        let others = others.fold((0, 0), |(count, sum), (_, one)| (count + 1, sum + one.len));
        if others.0 >= COUNT_MAX {
            return Err(format!("{COUNT_MAX} memory files are kept for this service already"));
        }
        let all = rustix::system::sysinfo();
        let limit = (all.totalram as u64).saturating_mul(all.mem_unit.into()) / 2;
        if others.1.saturating_add(len) > limit {
            return Err(format!("more than {limit} bytes, half of this machine's memory"));
        }
        self.0.insert(name, Memory { fd, len });
        Ok(())
    }

    pub(super) fn discard(&mut self, name: &str) -> Result<(), String> {
        let gone = self.0.remove(name).map(drop);
        gone.ok_or_else(|| format!("no memory is kept under the name {name:?}"))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// For the next process.
    pub(super) fn copies(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        self.0.iter().map(|(name, one)| Ok((name.clone(), one.fd.try_clone()?))).collect()
    }

    pub(super) fn describe(&self) -> Value {
        let sizes = self.0.iter().map(|(name, one)| (name.clone(), json!(one.len)));
        Value::Object(sizes.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    fn memory(len: u64) -> OwnedFd {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let fd = fd.expect("memory");
        ftruncate(&fd, len).expect("sparse");
        fd
    }

    fn sealed(len: u64) -> Option<OwnedFd> {
        let fd = memory(len);
        fcntl_add_seals(&fd, SEALS).expect("sealed");
        Some(fd)
    }

    #[test]
    fn only_sealed_memory_is_kept_and_not_without_bound() {
        let mut kept = Kept::default();
        let refused = |kept: &mut Kept, fd| kept.keep("one".into(), fd).expect_err("refused");
        assert!(refused(&mut kept, None).contains("no memory"));
        assert!(refused(&mut kept, Some(memory(1))).contains("sealed"));
        let pipe = rustix::pipe::pipe().expect("a pipe").0;
        assert!(refused(&mut kept, Some(pipe)).contains("memory files"));
        assert!(refused(&mut kept, sealed(1 << 50)).contains("half of this machine"));
        kept.keep("one".into(), sealed(10)).expect("kept");
        kept.keep("one".into(), sealed(20)).expect("kept in its place");
        assert_eq!(kept.describe(), json!({ "one": 20 }));
        for number in 1..COUNT_MAX {
            kept.keep(number.to_string(), sealed(1)).expect("kept");
        }
        kept.keep("more".into(), sealed(1)).expect_err("too many");
        kept.discard("one").expect("there");
        kept.discard("one").expect_err("gone");
        assert_eq!(kept.copies().expect("descriptors").len(), COUNT_MAX - 1);
    }
}
