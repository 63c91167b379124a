//! Settings from the environment, which `outboard run` or a container file sets. Read once.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

/// The kind of device that programs see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Personality {
    /// An iWARP NIC: connections by rdma_cm, wire-compatible with siw and hardware.
    Iwarp,
    /// An RoCE v2 device with IPv4-mapped GIDs: connections by `ibv_modify_qp` too, between two
    /// Outboard ends only.
    Roce,
}

/// The value in the environment. Empty variables count as unset.
#[derive(Clone, Debug)]
pub struct Config {
    /// OUTBOARD_PERSONALITY: `iwarp` (the default) or `roce`.
    pub personality: Personality,
    /// OUTBOARD_DEVICES: interfaces or addresses, in this order; `None`: all.
    pub devices: Option<Vec<String>>,
    /// OUTBOARD_CRC: checksums on everything, unless both ends set `off`; `on` is the default.
    pub crc: bool,
    /// OUTBOARD_RECORD: a capture of the traffic is written here.
    pub record: Option<PathBuf>,
    /// OUTBOARD_STATS: with `1` figures are printed on exit; `0` is the default.
    pub stats: bool,
}

/// The environment as it was at the first call of any entry.
pub fn config() -> &'static Config {
    static CONFIG: LazyLock<Config> = LazyLock::new(Config::read);
    &CONFIG
}

impl Config {
    fn read() -> Self {
        Self {
            personality: personality(word("OUTBOARD_PERSONALITY").as_deref()),
            devices: word("OUTBOARD_DEVICES").map(|list| names(&list)),
            crc: crc(word("OUTBOARD_CRC").as_deref()),
            record: set("OUTBOARD_RECORD").map(PathBuf::from),
            stats: stats(word("OUTBOARD_STATS").as_deref()),
        }
    }
}

/// A variable; an empty one counts as unset.
fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The same, as text; invalid UTF-8 is replaced, so that the value is no known word and can be
/// shown.
fn word(name: &str) -> Option<String> {
    set(name).map(|value| value.to_string_lossy().into_owned())
}

fn personality(word: Option<&str>) -> Personality {
    match word {
        None | Some("iwarp") => Personality::Iwarp,
        Some("roce") => Personality::Roce,
        Some(other) => {
            say!(
                "OUTBOARD_PERSONALITY is {other:?}; it must be \"iwarp\" or \"roce\". \
                 Going on as iwarp."
            );
            Personality::Iwarp
        }
    }
}

fn crc(word: Option<&str>) -> bool {
    match word {
        None | Some("on") => true,
        Some("off") => false,
        Some(other) => {
            say!(
                "OUTBOARD_CRC is {other:?}; it must be \"on\" or \"off\". Going on with \
                 on."
            );
            true
        }
    }
}

fn stats(word: Option<&str>) -> bool {
    match word {
        None | Some("0") => false,
        Some("1") => true,
        Some(other) => {
            say!("OUTBOARD_STATS is {other:?}; it must be \"1\" or \"0\". Going on with 0.");
            false
        }
    }
}

fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_word_changes_nothing() {
        assert_eq!([None, Some("0"), Some("off"), Some("on")].map(stats), [false; 4]);
        assert!(stats(Some("1")));
        assert_eq!([None, Some("on"), Some("0")].map(crc), [true; 3]);
        assert!(!crc(Some("off")));
        assert_eq!(personality(Some("roce")), Personality::Roce);
        assert_eq!(personality(Some("RoCE")), Personality::Iwarp);
    }
}
