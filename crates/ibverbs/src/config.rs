//! What the environment says: `outboard run` sets it, a container file may too. Read once.

use std::path::PathBuf;
use std::sync::LazyLock;

/// What the devices look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Personality {
    /// An iWARP NIC: connections by rdma_cm, wire-compatible with siw and hardware.
    Iwarp,
    /// An RoCE v2 device with IPv4-mapped GIDs: connections by `ibv_modify_qp` too, between
    /// Outboards only.
    Roce,
}

/// The environment's word.
#[derive(Clone, Debug)]
pub struct Config {
    /// OUTBOARD_PERSONALITY: `iwarp` (the default) or `roce`.
    pub personality: Personality,
    /// OUTBOARD_DEVICES: interfaces or addresses, in this order; `None`: all.
    pub devices: Option<Vec<String>>,
    /// OUTBOARD_CRC: checksums on everything, unless both ends say `off`; `on` is the default.
    pub crc: bool,
    /// OUTBOARD_RECORD: a capture of the traffic is written here.
    pub record: Option<PathBuf>,
    /// OUTBOARD_STATS: figures are printed on exit.
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
            personality: personality(std::env::var("OUTBOARD_PERSONALITY").ok().as_deref()),
            devices: std::env::var("OUTBOARD_DEVICES").ok().map(|list| names(&list)),
            crc: crc(std::env::var("OUTBOARD_CRC").ok().as_deref()),
            record: std::env::var_os("OUTBOARD_RECORD").map(PathBuf::from),
            stats: std::env::var_os("OUTBOARD_STATS").is_some_and(|value| value != "0"),
        }
    }
}

fn personality(word: Option<&str>) -> Personality {
    match word {
        None | Some("" | "iwarp") => Personality::Iwarp,
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
        None | Some("" | "on") => true,
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

fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
