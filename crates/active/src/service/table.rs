//! The service's table of a node's configuration.
//!
//! docs/active.md, "A node's table", has one with every key and what it means.

use super::options::ActiveLimits;
use super::regions::RegionSetup;
use crate::protocol::NAME_MAX;
use outboard_cluster::node::{Needs, TableError};
use outboard_cluster::service::SpinMode;
use outboard_offcode::abi::REGION_MAX;
use outboard_offcode::executor::BackgroundLimits;
use outboard_offcode::store::StoreLimits;
use outboard_secure::NodeId;
use outboard_unix::staged::directory_of;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Regions, at most: a supervisor keeps 64 memory files for a service, two for each region.
const REGIONS_MAX: usize = 32;
/// Bytes of a page of WebAssembly: regions have whole pages.
const PAGE: usize = 64 << 10;
/// Bytes that any disk writes in a second.
const DISK_A_SECOND: usize = 32 << 20;
/// Bytes that an execution may write, at most.
const WRITES_MAX: usize = 64 << 20;

/// See this file's first lines.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ActiveTable {
    pub(super) modules: Option<PathBuf>,
    time_ms: Option<u32>,
    executions: Option<usize>,
    queued: Option<usize>,
    modules_max: Option<usize>,
    module_bytes: Option<SizeText>,
    all_module_bytes: Option<SizeText>,
    spin: SpinWord,
    regions: BTreeMap<String, RegionTable>,
    /// Jobs of this service: the node's own word, which every table may have.
    #[serde(rename = "slots")]
    _slots: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionTable {
    size: SizeText,
    writes: Option<SizeText>,
    persist: Option<PathBuf>,
    allow: Option<Vec<String>>,
    #[serde(default)]
    read: Vec<String>,
}

/// Whether the loop spins.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SpinWord {
    Never,
    #[default]
    Adaptive,
    Always,
}

/// Bytes: a number, or a number with a unit.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a size is a number of bytes, or text such as \"64MiB\"")]
enum SizeText {
    Bytes(u64),
    Text(String),
}

impl SizeText {
    fn bytes(&self) -> Result<usize, String> {
        let parsed = match self {
            Self::Bytes(bytes) => usize::try_from(*bytes).ok(),
            Self::Text(text) => parse_size(text),
        };
        parsed.ok_or_else(|| {
            let text = match self {
                Self::Bytes(bytes) => bytes.to_string(),
                Self::Text(text) => format!("{text:?}"),
            };
            format!("{text} is no size: write a number and KiB, MiB or GiB, as in \"64MiB\"")
        })
    }
}

/// Bytes of a text such as `64MiB`, `4096` or `1GiB`.
#[must_use]
pub fn parse_size(text: &str) -> Option<usize> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" | "K" => 10,
        "MiB" | "M" => 20,
        "GiB" | "G" => 30,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(1 << shift)
}

impl ActiveTable {
    pub(super) fn regions(&self) -> Result<Vec<RegionSetup>, String> {
        if self.regions.len() > REGIONS_MAX {
            return Err(format!("{} regions: at most {REGIONS_MAX}", self.regions.len()));
        }
        let setup = |(name, table): (&String, &RegionTable)| {
            table.setup(name).map_err(|why| format!("region {name}: {why}"))
        };
        let setups: Vec<RegionSetup> = self.regions.iter().map(setup).collect::<Result<_, _>>()?;
        let mut files = HashMap::new();
        for RegionSetup { name, persist, .. } in &setups {
            if let Some(path) = persist
                && let Some(other) = files.insert(path, name)
            {
                let path = path.display();
                return Err(format!("regions {other} and {name} have one file, {path}"));
            }
        }
        Ok(setups)
    }

    pub(super) fn spin(&self) -> SpinMode {
        match self.spin {
            SpinWord::Never => SpinMode::Never,
            SpinWord::Adaptive => SpinMode::Adaptive,
            SpinWord::Always => SpinMode::Always,
        }
    }

    pub(super) fn limits(&self) -> Result<ActiveLimits, String> {
        let default = ActiveLimits::default();
        let bytes = self.module_bytes.as_ref().map(SizeText::bytes).transpose()?;
        let all_bytes = self.all_module_bytes.as_ref().map(SizeText::bytes).transpose()?;
        let running = self.executions.unwrap_or(default.background.running);
        if running == 0 {
            return Err("executions = 0 lets nothing run that takes long: at least 1".into());
        }
        if self.time_ms == Some(0) {
            return Err("time_ms = 0 lets nothing run that takes long: at least 1".into());
        }
        Ok(ActiveLimits {
            store: StoreLimits {
                modules: self.modules_max.unwrap_or(default.store.modules),
                bytes: bytes.unwrap_or(default.store.bytes),
                ..default.store
            },
            all_bytes: all_bytes.unwrap_or(default.all_bytes),
            background: BackgroundLimits {
                running,
                waiting: self.queued.unwrap_or(default.background.waiting),
                ..default.background
            },
            time: self.time_ms.map_or(default.time, |ms| Duration::from_millis(ms.into())),
            ..default
        })
    }

    /// Checks everything; what the service needs.
    pub(super) fn check(&self) -> Result<Needs, TableError> {
        let regions = self.regions().map_err(TableError::new)?;
        if regions.is_empty() {
            return Err(TableError::incomplete(
                "no regions: name at least one, by --region kv=64MiB, or in the configuration as \
                 [active.regions.kv] with size = \"64MiB\"",
            ));
        }
        self.limits().map_err(TableError::new)?;
        if let Some(modules) = self.modules.as_deref().filter(|path| !path.is_dir()) {
            let why = format!("modules = {}: there is no such directory", modules.display());
            return Err(TableError::new(why));
        }
        let files = regions.iter().filter_map(|region| region.persist.as_deref());
        let mut directories: Vec<PathBuf> = files.map(|file| directory_of(file).into()).collect();
        directories.sort();
        directories.dedup();
        // It writes its regions at the end, and a slow disk is one that takes this much.
        let files = regions.iter().filter(|region| region.persist.is_some());
        let bytes: usize = files.map(|region| region.len).sum();
        let ending = Needs::ENDING + Duration::from_secs((bytes / DISK_A_SECOND) as u64);
        Ok(Needs { directories, ending, ..Needs::default() })
    }
}

impl RegionTable {
    fn setup(&self, name: &str) -> Result<RegionSetup, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_MAX / 2 || !name.chars().all(is_plain) {
            return Err("a name has letters, digits, '-', '_' and '.', at most 127".into());
        }
        let len = self.size.bytes()?;
        if len == 0 || len as u64 > REGION_MAX {
            return Err(format!("size = {len}: a region has 1 byte to {} GiB", REGION_MAX >> 30));
        }
        let writes = self.writes.as_ref().map(SizeText::bytes).transpose()?;
        if writes.is_some_and(|bytes| bytes > WRITES_MAX) {
            return Err(format!("writes: at most {} MiB", WRITES_MAX >> 20));
        }
        let persist = self.persist.as_deref().map(|path| real_file(path, len)).transpose()?;
        let default = RegionSetup::new(name, len.next_multiple_of(PAGE));
        Ok(RegionSetup {
            write_max: writes.unwrap_or(default.write_max),
            persist,
            allow: self.allow.as_deref().map(identities).transpose()?,
            read: identities(&self.read)?,
            ..default
        })
    }
}

/// The file behind a path, which may be a link: another one takes its place at each flush.
fn real_file(path: &Path, region_len: usize) -> Result<PathBuf, String> {
    let shown = path.display();
    if !path.is_absolute() {
        return Err(format!("persist = {shown}: write an absolute path"));
    }
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::metadata(&real) {
        Ok(found) if !found.is_file() => {
            Err(format!("persist = {shown}: this is no regular file, and cannot be replaced"))
        }
        Ok(found) if found.len() > region_len.next_multiple_of(PAGE) as u64 => Err(format!(
            "persist = {shown}: the file has {} bytes, the region {region_len}: give the region \
             that size, or move the file away",
            found.len()
        )),
        // What is not there is made.
        _ => Ok(real),
    }
}

fn identities(all: &[String]) -> Result<HashSet<NodeId>, String> {
    let parse = |id: &String| id.parse().map_err(|error| format!("{id:?}: {error}"));
    all.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_secure::Identity;
    use serde_json::{Value, json};

    fn table(value: Value) -> Result<Vec<RegionSetup>, String> {
        let table: ActiveTable = serde_json::from_value(value).map_err(|why| why.to_string())?;
        table.check().map_err(|why| why.to_string())?;
        table.regions()
    }

    fn region(value: Value) -> Result<RegionSetup, String> {
        table(json!({ "regions": { "kv": value } })).map(|mut regions| regions.remove(0))
    }

    #[test]
    fn sizes_have_units() {
        let sizes = ["4096", "64KiB", "64MiB", "2GiB", "1 MiB", "", "MiB", "-1", "1TB", "1.5MiB"];
        let parsed = sizes.map(parse_size);
        let known = [4096, 64 << 10, 64 << 20, 2 << 30, 1 << 20].map(Some);
        assert_eq!(parsed[..5], known);
        assert_eq!(parsed[5..], [None; 5]);
        assert_eq!(parse_size("99999999999GiB"), None);
    }

    #[test]
    fn regions_have_whole_pages_a_file_and_those_who_may() {
        let [writer, reader, other] =
            [0; 3].map(|_| Identity::generate().expect("an identity").node());
        assert_eq!(region(json!({ "size": 1 })).expect("legal").len, 64 << 10);
        let found = region(json!({
            "size": "1MiB", "persist": "/var/lib/a/kv", "allow": [writer.to_string()],
            "read": [reader.to_string()], "writes": "2MiB",
        }));
        let found = found.expect("legal");
        assert_eq!((found.len, found.write_max), (1 << 20, 2 << 20));
        assert!(found.access(writer).is_some_and(|all| all.contains(Access::REMOTE_ATOMIC)));
        assert_eq!(found.access(reader), Some(Access::REMOTE_READ));
        assert_eq!(found.access(other), None);
        let open = region(json!({ "size": "1MiB", "read": [reader.to_string()] })).expect("legal");
        assert!(open.access(other).is_some_and(|all| all.contains(Access::REMOTE_WRITE)));
        assert_eq!(open.access(reader), Some(Access::REMOTE_READ));
    }

    #[test]
    fn mistakes_are_told() {
        let mistakes = [
            (json!({ "size": 0 }), "size = 0"),
            (json!({ "size": "4GiB" }), "3 GiB"),
            (json!({ "size": "lots" }), "\"lots\" is no size"),
            (json!({ "size": "1M", "persist": "/dev/null" }), "no regular file"),
            (json!({ "size": "1M", "persist": "/" }), "no regular file"),
            (json!({ "size": [] }), "a size is a number"),
            (json!({ "size": 1, "persist": "kv" }), "absolute path"),
            (json!({ "size": 1, "allow": ["me"] }), "32 hexadecimal"),
            (json!({ "size": 1, "writes": "1GiB" }), "at most 64 MiB"),
            (json!({ "sise": 1 }), "unknown field"),
        ];
        for (value, why) in mistakes {
            let found = region(value).expect_err("a mistake");
            assert!(found.contains(why), "{found}, not {why}");
        }
        let (one, filed) = (json!({ "size": 1 }), json!({ "size": 1, "persist": "/var/x/a" }));
        let many: serde_json::Map<_, _> =
            (0..33).map(|at| (format!("r{at}"), one.clone())).collect();
        let mistakes = [
            (json!({}), "no regions"),
            (json!({ "regions": many }), "at most 32"),
            (json!({ "regions": { "a/b": one } }), "letters, digits"),
            (json!({ "executions": 0, "regions": { "a": one } }), "executions = 0"),
            (json!({ "time_ms": 0, "regions": { "a": one } }), "time_ms = 0"),
            (json!({ "regions": { "a": filed, "b": filed } }), "a and b have one file"),
        ];
        for (value, why) in mistakes {
            let found = table(value).expect_err("a mistake");
            assert!(found.contains(why), "{found}, not {why}");
        }
    }

    use outboard_verbs::Access;

    #[test]
    fn the_service_needs_the_directories_of_its_files() {
        let value = json!({ "regions": {
            "a": { "size": 1, "persist": "/var/lib/x/a" },
            "b": { "size": 1, "persist": "/var/lib/x/b" },
            "c": { "size": 1 },
        }});
        let table: ActiveTable = serde_json::from_value(value).expect("legal");
        let needs = table.check().expect("legal");
        assert_eq!(needs.directories, [PathBuf::from("/var/lib/x")]);
        assert_eq!(needs.ending, Needs::ENDING);
        let value = json!({ "spin": "never", "regions": {
            "a": { "size": "1GiB", "persist": "/var/lib/x/a" },
        }});
        let table: ActiveTable = serde_json::from_value(value).expect("legal");
        assert_eq!(table.check().expect("legal").ending, Duration::from_secs(5 + 32));
        assert_eq!(table.spin(), SpinMode::Never);
    }
}
