//! A body as its author's compiler made it: an ELF object, looked at and found within limits.
//!
//! Never asks the kernel, and never panics on any bytes. What it lets pass the kernel's verifier
//! still has to see; what it refuses would cost memory, outlive its owner or reach beyond its
//! interface.

use std::panic::{AssertUnwindSafe, catch_unwind};

use aya_obj::generated::bpf_map_type;
use aya_obj::maps::PinningType;
use aya_obj::programs::XdpAttachType;
use aya_obj::{Map, Object, ProgramSection};
use object::elf;
use object::read::elf::{ElfFile64, FileHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolSection};

use crate::error::NicError;

/// Most bytes of an object.
pub const OBJECT_BYTES_MAX: usize = 1 << 20;
/// Most maps of a body.
pub const MAPS_MAX: usize = 32;
/// Most bytes of all maps of a body together, as far as they are known before they are made.
pub const MAP_BYTES_MAX: u64 = 64 << 20;
/// Bytes of `oc_config`.
pub const CONFIG_BYTES: usize = 1024;
/// Most counters of a body.
pub const COUNTERS_MAX: u32 = 1024;
/// Most words of a body's state.
pub const STATE_WORDS_MAX: u32 = 65_536;
/// Most bytes of a record: longer ones are dropped and counted.
pub const RECORD_BYTES_MAX: usize = 4096;
/// Most bytes of the names of counters.
const NAMES_BYTES_MAX: usize = 65_536;
/// Most sections, and most symbols, of an object.
const PARTS_MAX: usize = 16_384;

pub(crate) const CONFIG: &str = "oc_config";
pub(crate) const COUNTERS: &str = "oc_counters";
pub(crate) const OUT: &str = "oc_out";
pub(crate) const STATE: &str = "oc_state";
pub(crate) const XSKS: &str = "oc_xsks";
/// The section of the counters' names.
const NAMES: &str = "oc_names";

/// Where in the receive path a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// In the driver, before the kernel has made anything of the packet; or right behind it.
    Xdp,
    /// In traffic control, on ingress (Linux 6.6 or later).
    Classifier,
}

/// An object that may be loaded.
#[derive(Clone, Debug)]
pub struct BpfBody {
    bytes: Vec<u8>,
    program: String,
    kind: ProgramKind,
    counters: Vec<String>,
    maps: Vec<String>,
    state_words: u32,
}

impl BpfBody {
    /// Looks at an object's bytes.
    ///
    /// # Errors
    /// [`NicError::ObjectTooLong`], [`NicError::NotBpf`], [`NicError::Malformed`],
    /// [`NicError::NoProgram`], [`NicError::SeveralPrograms`], [`NicError::Map`]: all are the
    /// author's.
    pub fn parse(bytes: &[u8]) -> Result<Self, NicError> {
        if bytes.len() > OBJECT_BYTES_MAX {
            return Err(NicError::ObjectTooLong { bytes: bytes.len(), limit: OBJECT_BYTES_MAX });
        }
        // A copy of its own begins where an object's structures may be read in place.
        let bytes = bytes.to_vec();
        let names = checked_names(&bytes)?;
        let object = guarded(|| Object::parse(&bytes))?.map_err(NicError::malformed)?;
        let (program, kind) = chosen(&object)?;
        check_maps(&object)?;
        let counters = counter_names(object.maps.get(COUNTERS), names)?;
        let state_words = object.maps.get(STATE).map_or(0, Map::max_entries);
        let maps = object.maps.keys().cloned().collect();
        Ok(Self { bytes, program, kind, counters, maps, state_words })
    }

    /// The program's name.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Where it runs.
    #[must_use]
    pub fn kind(&self) -> ProgramKind {
        self.kind
    }

    /// The names of its counters, by their numbers. The first is "lost" whenever there are any.
    #[must_use]
    pub fn counters(&self) -> &[String] {
        &self.counters
    }

    /// 64-bit words of its state.
    #[must_use]
    pub fn state_words(&self) -> u32 {
        self.state_words
    }

    /// Whether it takes a configuration.
    #[must_use]
    pub fn takes_configuration(&self) -> bool {
        self.has(CONFIG)
    }

    /// Whether it sends records.
    #[must_use]
    pub fn sends_records(&self) -> bool {
        self.has(OUT)
    }

    pub(crate) fn has(&self, map: &str) -> bool {
        self.maps.iter().any(|name| name == map)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Runs what the loader's library does with an author's bytes, where it trusts them too much.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, NicError> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| NicError::malformed("its sections and symbols contradict each other"))
}

/// Whether the file is one for BPF and all its parts lie within it; the bytes of the section with
/// the counters' names.
fn checked_names(bytes: &[u8]) -> Result<Vec<u8>, NicError> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes)
        .map_err(|_| NicError::NotBpf { found: "no 64-bit ELF file".to_owned() })?;
    let endian = header.endian().map_err(NicError::malformed)?;
    let machine = header.e_machine(endian);
    if machine != elf::EM_BPF || endian != Endianness::Little {
        return Err(NicError::NotBpf { found: format!("{endian:?}-endian, machine {machine}") });
    }
    let file: ElfFile64<'_> = ElfFile64::parse(bytes).map_err(NicError::malformed)?;
    if file.sections().count() > PARTS_MAX || file.symbols().count() > PARTS_MAX {
        return Err(NicError::malformed(format!("more than {PARTS_MAX} sections or symbols")));
    }
    file.sections()
        .try_for_each(|section| section.data().map(|_| ()))
        .map_err(NicError::malformed)?;
    check_symbols(&file)?;
    let names = file.section_by_name(NAMES).map(|section| section.data().unwrap_or_default());
    match names {
        Some(names) if names.len() > NAMES_BYTES_MAX => Err(NicError::malformed(format!(
            "section {NAMES} has {} bytes, more than {NAMES_BYTES_MAX}",
            names.len()
        ))),
        names => Ok(names.unwrap_or_default().to_vec()),
    }
}

/// Whether every symbol lies within its section.
fn check_symbols(file: &ElfFile64<'_>) -> Result<(), NicError> {
    for symbol in file.symbols() {
        let SymbolSection::Section(index) = symbol.section() else { continue };
        let section = file.section_by_index(index).map_err(NicError::malformed)?;
        let end = symbol.address().checked_add(symbol.size());
        let inside = section.address().checked_add(section.size());
        let starts = symbol.address() >= section.address();
        if !starts || end.zip(inside).is_none_or(|(end, inside)| end > inside) {
            let name = symbol.name().unwrap_or("without a name");
            return Err(NicError::malformed(format!("symbol {name} lies outside its section")));
        }
    }
    Ok(())
}

/// The program that is meant: that for XDP, else that for traffic control.
fn chosen(object: &Object) -> Result<(String, ProgramKind), NicError> {
    let named = |kind: ProgramKind| {
        let programs = object.programs.iter();
        let mut names: Vec<&str> = programs
            .filter(|(_, program)| kind_of(&program.section) == Some(kind))
            .map(|(name, _)| name.as_str())
            .collect();
        names.sort_unstable();
        names
    };
    for kind in [ProgramKind::Xdp, ProgramKind::Classifier] {
        match named(kind).as_slice() {
            [] => {}
            [name] => return Ok(((*name).to_owned(), kind)),
            names => return Err(NicError::SeveralPrograms { names: names.join(", ") }),
        }
    }
    Err(NicError::NoProgram)
}

fn kind_of(section: &ProgramSection) -> Option<ProgramKind> {
    match section {
        ProgramSection::Xdp { attach_type: XdpAttachType::Interface, .. } => Some(ProgramKind::Xdp),
        ProgramSection::SchedClassifier => Some(ProgramKind::Classifier),
        _ => None,
    }
}

/// Types of maps that keep to themselves. Those that reach other devices, processors or processes
/// are not among them.
const ALLOWED: &[bpf_map_type] = &[
    bpf_map_type::BPF_MAP_TYPE_ARRAY,
    bpf_map_type::BPF_MAP_TYPE_PERCPU_ARRAY,
    bpf_map_type::BPF_MAP_TYPE_HASH,
    bpf_map_type::BPF_MAP_TYPE_PERCPU_HASH,
    bpf_map_type::BPF_MAP_TYPE_LRU_HASH,
    bpf_map_type::BPF_MAP_TYPE_LRU_PERCPU_HASH,
    bpf_map_type::BPF_MAP_TYPE_LPM_TRIE,
    bpf_map_type::BPF_MAP_TYPE_RINGBUF,
    bpf_map_type::BPF_MAP_TYPE_XSKMAP,
];

fn check_maps(object: &Object) -> Result<(), NicError> {
    if object.maps.len() > MAPS_MAX {
        let reason = format!("{} maps, at most {MAPS_MAX} are allowed", object.maps.len());
        return Err(NicError::malformed(reason));
    }
    let mut total = 0_u64;
    for (name, map) in &object.maps {
        let allowed = bpf_map_type::try_from(map.map_type()).is_ok_and(|t| ALLOWED.contains(&t));
        if !allowed {
            let reason = format!("its type {} is not for bodies", map.map_type());
            return Err(NicError::map(name, reason));
        }
        if map.pinning() != PinningType::None {
            return Err(NicError::map(name, "it is pinned and would outlive the body: do not pin"));
        }
        total = total.saturating_add(bytes_of(map));
        check_convention(name, map)?;
    }
    if total > MAP_BYTES_MAX {
        return Err(NicError::malformed(format!(
            "its maps take {total} bytes, at most {MAP_BYTES_MAX} are allowed"
        )));
    }
    Ok(())
}

/// Bytes of a map at most, but for the kernel's own overhead; one value for a map with one each per
/// processor counts as 64 of them.
fn bytes_of(map: &Map) -> u64 {
    let entry = u64::from(map.key_size()) + u64::from(map.value_size());
    let per_cpu = [
        bpf_map_type::BPF_MAP_TYPE_PERCPU_ARRAY,
        bpf_map_type::BPF_MAP_TYPE_PERCPU_HASH,
        bpf_map_type::BPF_MAP_TYPE_LRU_PERCPU_HASH,
    ];
    let is_per_cpu = per_cpu.iter().any(|kind| *kind as u32 == map.map_type());
    let copies = if is_per_cpu { 64 } else { 1 };
    // A ring has no entries: its size is said instead of their number.
    entry.max(1).saturating_mul(u64::from(map.max_entries())).saturating_mul(copies)
}

/// Type, size of a value in bytes, and most entries of the maps whose names mean something.
fn convention(name: &str) -> Option<(bpf_map_type, usize, u32)> {
    Some(match name {
        CONFIG => (bpf_map_type::BPF_MAP_TYPE_ARRAY, CONFIG_BYTES, 1),
        COUNTERS => (bpf_map_type::BPF_MAP_TYPE_PERCPU_ARRAY, 8, COUNTERS_MAX),
        STATE => (bpf_map_type::BPF_MAP_TYPE_ARRAY, 8, STATE_WORDS_MAX),
        OUT => (bpf_map_type::BPF_MAP_TYPE_RINGBUF, 0, 1 << 26),
        XSKS => (bpf_map_type::BPF_MAP_TYPE_XSKMAP, 4, 1024),
        _ => return None,
    })
}

fn check_convention(name: &str, map: &Map) -> Result<(), NicError> {
    let Some((kind, value, entries)) = convention(name) else { return Ok(()) };
    let declare = "declare it with offcode_bpf.h";
    if map.map_type() != kind as u32 {
        let reason = format!("its type is {}, not {}: {declare}", map.map_type(), kind as u32);
        return Err(NicError::map(name, reason));
    }
    if map.value_size() as usize != value && kind != bpf_map_type::BPF_MAP_TYPE_RINGBUF {
        let reason = format!("a value has {} bytes, not {value}: {declare}", map.value_size());
        return Err(NicError::map(name, reason));
    }
    if map.max_entries() == 0 || map.max_entries() > entries {
        let reason = format!("it has {} entries, 1 to {entries} are right", map.max_entries());
        return Err(NicError::map(name, reason));
    }
    let ring = kind == bpf_map_type::BPF_MAP_TYPE_RINGBUF;
    if ring && (!map.max_entries().is_power_of_two() || map.max_entries() < 4096) {
        return Err(NicError::map(name, "its size is a power of two, 4096 or more"));
    }
    Ok(())
}

/// One name for each counter, as the section says, or its number where it says nothing.
fn counter_names(map: Option<&Map>, names: Vec<u8>) -> Result<Vec<String>, NicError> {
    let Some(map) = map else { return Ok(Vec::new()) };
    let count = map.max_entries() as usize;
    if names.is_empty() {
        return Ok((0..count).map(numbered).collect());
    }
    let text = String::from_utf8(names)
        .map_err(|_| NicError::map(COUNTERS, "the names of its counters are no UTF-8"))?;
    let names: Vec<&str> = text.trim_end_matches('\0').split('\0').collect();
    if names.len() != count {
        let reason = format!("it has {count} counters and {} names", names.len());
        return Err(NicError::map(COUNTERS, reason));
    }
    if names[0] != "lost" {
        return Err(NicError::map(COUNTERS, "counter 0 is \"lost\", the first name must be that"));
    }
    Ok(names.into_iter().map(str::to_owned).collect())
}

fn numbered(number: usize) -> String {
    if number == 0 { "lost".to_owned() } else { format!("counter_{number}") }
}

#[cfg(test)]
mod tests;
