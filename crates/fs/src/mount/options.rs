//! Options of a mount, as people write them behind `-o`.

use crate::client::FsPatience;
use std::time::Duration;

/// How long a page of a directory's names is used, where anything is kept.
const KEEP_TIME: Duration = Duration::from_secs(1);
/// How long requests wait where `soft` does not say it with `timeo`.
const SOFT_DEFAULT: Duration = Duration::from_secs(60);

/// What a mount shows of others' changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsCacheMode {
    /// Every read sees every write that is finished.
    Strict,
    /// Whoever opens a file sees what was closed before.
    #[default]
    CloseToOpen,
    /// Nothing is kept.
    None,
}

/// How a mount is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsMountOptions {
    /// Nothing can be changed.
    pub is_read_only: bool,
    /// Other users than the one that mounts see it.
    pub allows_others: bool,
    /// Set-user-id programs are such here; only root may ask for it.
    pub allows_suid: bool,
    /// Devices are such here; only root may ask for it.
    pub allows_devices: bool,
    /// No program is started from here.
    pub is_no_exec: bool,
    /// What is kept.
    pub cache: FsCacheMode,
    /// How long requests wait.
    pub patience: FsPatience,
}

/// An option that is none. The caller is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FsOptionError {
    /// There is no such option.
    #[error(
        "-o {option}: there is no such option; there are ro, rw, allow_other, suid, dev, noexec, \
         cache=strict|close-to-open|none, hard, soft and timeo=SECONDS"
    )]
    Unknown {
        /// As it was written.
        option: String,
    },
    /// Its value is none.
    #[error("-o {option}: the value is {expected}")]
    Value {
        /// As it was written.
        option: String,
        /// What it may be.
        expected: &'static str,
    },
}

impl FsMountOptions {
    /// The options of a text: words with commas between them. Later ones count.
    ///
    /// # Errors
    /// [`FsOptionError`].
    pub fn parse(text: &str) -> Result<Self, FsOptionError> {
        let mut options = Self::default();
        let mut limit = SOFT_DEFAULT;
        let mut is_soft = false;
        for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("cache", mode)) => options.cache = cache_mode(option, mode)?,
                Some(("timeo", seconds)) => limit = seconds_of(option, seconds)?,
                _ => match option {
                    "hard" => is_soft = false,
                    "soft" => is_soft = true,
                    _ => options.set_word(option)?,
                },
            }
        }
        options.patience = if is_soft { FsPatience::Soft(limit) } else { FsPatience::Hard };
        Ok(options)
    }

    fn set_word(&mut self, option: &str) -> Result<(), FsOptionError> {
        match option {
            "ro" => self.is_read_only = true,
            "rw" => self.is_read_only = false,
            "allow_other" => self.allows_others = true,
            "suid" => self.allows_suid = true,
            "nosuid" => self.allows_suid = false,
            "dev" => self.allows_devices = true,
            "nodev" => self.allows_devices = false,
            "noexec" => self.is_no_exec = true,
            "exec" => self.is_no_exec = false,
            _ => return Err(FsOptionError::Unknown { option: option.to_owned() }),
        }
        Ok(())
    }

    /// Whether names and attributes are kept under leases.
    pub(super) fn keeps_names(&self) -> bool {
        self.cache == FsCacheMode::CloseToOpen
    }

    /// How long a page of names is used.
    pub(super) fn keep_time(&self) -> Duration {
        match self.cache {
            FsCacheMode::CloseToOpen => KEEP_TIME,
            FsCacheMode::Strict | FsCacheMode::None => Duration::ZERO,
        }
    }

    /// Whether the kernel, and this mount, may keep bytes.
    pub(super) fn keeps_bytes(&self) -> bool {
        self.cache == FsCacheMode::CloseToOpen
    }
}

fn cache_mode(option: &str, mode: &str) -> Result<FsCacheMode, FsOptionError> {
    match mode {
        "strict" => Ok(FsCacheMode::Strict),
        "close-to-open" => Ok(FsCacheMode::CloseToOpen),
        "none" => Ok(FsCacheMode::None),
        _ => Err(FsOptionError::Value {
            option: option.to_owned(),
            expected: "strict, close-to-open or none",
        }),
    }
}

fn seconds_of(option: &str, seconds: &str) -> Result<Duration, FsOptionError> {
    let parsed = seconds.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    let limit = parsed.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    limit.ok_or_else(|| FsOptionError::Value {
        option: option.to_owned(),
        expected: "a number of seconds above 0",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_what_people_write() {
        let of = |text: &str| FsMountOptions::parse(text);
        assert_eq!(of(""), Ok(FsMountOptions::default()));
        let options = of("ro,allow_other, cache=strict,soft,timeo=2.5,nosuid").expect("options");
        assert!(options.is_read_only && options.allows_others && !options.allows_suid);
        assert_eq!(options.cache, FsCacheMode::Strict);
        assert_eq!(options.patience, FsPatience::Soft(Duration::from_millis(2500)));
        assert_eq!(of("soft,hard").map(|options| options.patience), Ok(FsPatience::Hard));
        assert_eq!(of("timeo=3").map(|options| options.patience), Ok(FsPatience::Hard));
        for bad in ["cache=warm", "timeo=0", "timeo=-1", "timeo=NaN", "timeo=soon", "fast", "ro=1"]
        {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_keeps_nothing_has_no_time() {
        let of = |text: &str| FsMountOptions::parse(text).expect("options");
        assert_eq!(of("cache=none").keep_time(), Duration::ZERO);
        assert!(of("").keeps_bytes() && !of("cache=strict").keeps_bytes());
    }
}
