//! Files looked through at the server, some hundred with each request, by a module that this
//! client has loaded there.

use super::error::{FsError, result_of};
use super::transfer::UnderWay;
use super::{FsCaller, FsClient};
use crate::protocol::{ERRNO, FsInode, ScanArgs, scan_args};
use outboard_active::{ActiveError, ModuleHash, Outcome};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The name of modules that look through files; for people.
const NAME: &str = "fs-scan";
const ENTRY: &str = "scan";
/// How long a client waits before it asks a busy service again.
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// The service has no such module: there was no room, and another client has made some (ENOEXEC).
const NOT_LOADED: i32 = ERRNO + 8;
/// How often a module is loaded for one request.
const LOADS_MAX: u32 = 16;

/// A request to look through files that is under way; dropped, it is given up.
#[derive(Debug)]
pub struct PendingScan {
    call: UnderWay,
    args: Vec<u8>,
}

impl FsClient {
    /// Loads a module that finds lines. It stays, for whoever looks for the same, until there is no
    /// room: then those of all clients of this identity go, and whoever needs one loads it again.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn load_scanner(&self, module: &[u8]) -> Result<ModuleHash, FsError> {
        *self.scanner() = module.to_vec();
        let mut driven = self.driver.lock();
        match driven.client.load(NAME, module) {
            Err(ActiveError::NotLoaded { .. }) => {}
            loaded => return Ok(loaded?.0),
        }
        for old in driven.client.list()? {
            if old.name == NAME {
                // Another client may have done it.
                let _dropped = driven.client.drop_module(ModuleHash(old.module));
            }
        }
        Ok(driven.client.load(NAME, module)?.0)
    }

    /// The module that was loaded last.
    fn scanner(&self) -> MutexGuard<'_, Vec<u8>> {
        self.scanner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load_scanner_again(&self) -> Result<(), FsError> {
        let module = self.scanner().clone();
        self.load_scanner(&module).map(drop)
    }

    /// Begins to look through files.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn begin_scan(
        self: &Arc<Self>,
        caller: &FsCaller,
        args: &ScanArgs,
        files: &[FsInode],
    ) -> Result<PendingScan, FsError> {
        let count = u32::try_from(files.len()).map_err(|_| FsError::of(libc::E2BIG))?;
        let args = scan_args(&ScanArgs { who: caller.who, count, ..*args }, files);
        Ok(PendingScan { call: self.begin_scan_again(caller, &args)?, args })
    }

    fn begin_scan_again(
        self: &Arc<Self>,
        caller: &FsCaller,
        args: &[u8],
    ) -> Result<UnderWay, FsError> {
        let buffer = self.buffer(caller)?;
        self.begin(caller, ENTRY, args, Some(buffer))
    }
}

/// The numbers that name a module in a request.
#[must_use]
pub(crate) fn words_of(module: ModuleHash) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(module.0.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    }
    words
}

impl PendingScan {
    /// Waits for what was found.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn end(mut self, caller: &FsCaller) -> Result<Vec<u8>, FsError> {
        const NO_SCAN: FsError = FsError::Answer { entry: ENTRY };
        let mut loads = 0;
        loop {
            let (outcome, bytes) = self.call.end_with_bytes(caller, NO_SCAN)?;
            let client = Arc::clone(self.call.client());
            let is_late = client.is_late(self.call.begun);
            match outcome {
                Outcome::Busy(_) | Outcome::Conflict | Outcome::Unknown if !is_late => {
                    thread::sleep(BUSY_PAUSE);
                }
                Outcome::Unknown => return Err(FsError::TimedOut),
                Outcome::Failed { code, .. } if code == NOT_LOADED && loads < LOADS_MAX => {
                    loads += 1;
                    client.load_scanner_again()?;
                }
                outcome => {
                    let inline = result_of(outcome)?;
                    return bytes.unwrap_or(Ok(inline));
                }
            }
            let begun = self.call.begun;
            self.call = client.begin_scan_again(caller, &self.args)?;
            self.call.begun = begun;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_s_words_are_its_bytes() {
        let hash = ModuleHash::of(b"module");
        let bytes: Vec<u8> = words_of(hash).iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes, hash.0);
    }
}
