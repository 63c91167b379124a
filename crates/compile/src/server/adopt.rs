//! Compilers that a client brings along: fetched part by part out of its memory, kept by hash, and
//! shown to nobody else's jobs.
//!
//! A value without network or clock: [`Adoptions::poll`] says what to ask the client or to read. A
//! compiler is what its hash says, or it is refused; what it does is the sandbox's business alone.
//! Parts that this server has installed itself are not fetched.

use super::room::Shown;
use super::toolchains::{Program, Programs, absent_beneath};
use crate::protocol::{Digest, ToClient};
use crate::sandbox::Bind;
use crate::toolchain::{Part, Toolchain, hash_of};
use crate::view::KNOWN_ABSENT;
use outboard_cluster::hub::Exposed;
use outboard_store::{Kind, Store};
use std::collections::{HashSet, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Parts of one compiler, at most.
const PARTS_MAX: usize = 1024;
/// Octets of one part, at most.
const PART_MAX: u64 = 512 << 20;
/// Octets of one read.
const READ_MAX: u64 = 4 << 20;
/// Ticks that a client has to answer.
const SILENT_MAX: u32 = 60;
/// Compilers of one client that are here at a time.
const ADOPTED_MAX: usize = 64;
/// Compilers that wait for others to be fetched.
const WAITING_MAX: usize = 64;
/// Compilers that are known to be of no use.
const REFUSED_MAX: usize = 4096;
/// Where nothing of a compiler's may be: there is something of the sandbox's.
const RESERVED: &[&str] = &["/proc", "/dev", "/sys"];

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Adoptions {
    /// Without one nothing is fetched.
    store: Option<Arc<Store>>,
    adopted: Vec<Adopted>,
    fetching: Option<Fetching>,
    waiting: VecDeque<Digest>,
    refused: HashSet<Digest>,
    settled: Vec<Digest>,
    says: VecDeque<ToClient>,
    generation: u64,
    /// Ticks since the client last said something of the compiler that is fetched.
    silent: u32,
}

#[derive(Debug)]
struct Adopted {
    toolchain: Toolchain,
    /// Where its parts are here.
    files: Vec<PathBuf>,
}

/// The compiler that is being fetched.
#[derive(Debug)]
struct Fetching {
    hash: Digest,
    toolchain: Option<Toolchain>,
    files: Vec<PathBuf>,
    part: Option<(Exposed, Vec<u8>)>,
}

/// What is to be read of a part: where it is exposed, from which octet on, how many.
pub(crate) type Piece = (Exposed, u64, u64);

impl Adoptions {
    pub(crate) fn new(store: Option<Arc<Store>>) -> Self {
        Self {
            store,
            adopted: Vec::new(),
            fetching: None,
            waiting: VecDeque::new(),
            refused: HashSet::new(),
            settled: Vec::new(),
            says: VecDeque::new(),
            generation: 0,
            silent: 0,
        }
    }

    /// What the client is to be asked.
    pub(crate) fn poll(&mut self) -> Option<ToClient> {
        self.says.pop_front()
    }

    /// Compilers that are here now, or never will be.
    pub(crate) fn take_settled(&mut self) -> Vec<Digest> {
        std::mem::take(&mut self.settled)
    }

    /// The program of a compiler that is here.
    pub(crate) fn find(&self, hash: &Digest) -> Option<Program> {
        let found = self.adopted.iter().find(|at| at.toolchain.hash.0 == *hash);
        found.map(|at| Program::of(&at.toolchain, 0))
    }

    /// Begins to fetch a compiler; false when that is of no use.
    pub(crate) fn want(&mut self, hash: Digest) -> bool {
        if self.store.is_none() || self.refused.contains(&hash) {
            return false;
        }
        let is_next = self.fetching.as_ref().is_some_and(|at| at.hash == hash);
        if !is_next && !self.waiting.contains(&hash) {
            if self.waiting.len() >= WAITING_MAX {
                return false;
            }
            self.waiting.push_back(hash);
            self.begin();
        }
        true
    }

    fn begin(&mut self) {
        if self.fetching.is_some() {
            return;
        }
        let Some(hash) = self.waiting.pop_front() else { return };
        self.silent = 0;
        let fetching = Fetching { hash, toolchain: None, files: Vec::new(), part: None };
        self.fetching = Some(fetching);
        self.says.push_back(ToClient::Describe { toolchain: hash });
    }

    /// The client says what a compiler is made of.
    pub(crate) fn described(&mut self, hash: Digest, octets: &[u8], programs: &Programs) {
        let Some(fetching) = self.fetching.as_mut().filter(|at| at.hash == hash) else { return };
        let told: Option<Toolchain> = postcard::from_bytes(octets).ok();
        match told.filter(|told| is_sound(told, &hash)) {
            Some(told) if fetching.toolchain.is_none() => {
                fetching.toolchain = Some(told);
                self.go_on(programs);
            }
            _ => self.refuse(),
        }
    }

    /// The client lets a part be read; says what to read of it.
    pub(crate) fn offered(&mut self, exposed: Option<Exposed>) -> Option<Piece> {
        let fetching = self.fetching.as_mut()?;
        let Some(wanted) = fetching.wanted().map(|part| part.size) else {
            self.refuse();
            return None;
        };
        match exposed.filter(|exposed| exposed.len() == wanted && fetching.part.is_none()) {
            Some(exposed) => {
                fetching.part = Some((exposed, Vec::new()));
                Some((exposed, 0, wanted.min(READ_MAX)))
            }
            None => {
                self.refuse();
                None
            }
        }
    }

    /// A piece of a part is here; says what to read next.
    pub(crate) fn read(&mut self, octets: &[u8], programs: &Programs) -> Option<Piece> {
        self.silent = 0;
        let (exposed, so_far) = self.fetching.as_mut()?.part.as_mut()?;
        so_far.extend_from_slice(octets);
        let (at, len) = (so_far.len() as u64, exposed.len());
        if at < len {
            return Some((*exposed, at, (len - at).min(READ_MAX)));
        }
        self.keep(programs);
        None
    }

    fn keep(&mut self, programs: &Programs) {
        let Some(fetching) = self.fetching.as_mut() else { return };
        let Some((_, octets)) = fetching.part.take() else { return };
        let kept = fetching.wanted().zip(self.store.as_ref()).and_then(|(part, store)| {
            // It hashes to what was announced, or is not kept.
            store.put(&part.hash.0, octets.into(), Kind::Program).ok()
        });
        match kept {
            Some(()) => self.go_on(programs),
            None => self.refuse(),
        }
    }

    /// Takes the parts that are here, and asks for the next that is not.
    fn go_on(&mut self, programs: &Programs) {
        let Some(fetching) = self.fetching.as_mut() else { return };
        while let Some(part) = fetching.wanted() {
            let hash = &part.hash.0;
            let kept = self.store.as_ref().and_then(|store| {
                store.path_of(hash).or_else(|| copied(store, programs.part(hash)?, hash))
            });
            match kept {
                Some(file) => fetching.files.push(file),
                None => {
                    let part = u32::try_from(fetching.files.len()).unwrap_or(u32::MAX);
                    let toolchain = fetching.hash;
                    return self.says.push_back(ToClient::NeedPart { toolchain, part });
                }
            }
        }
        let Some(Fetching { hash, toolchain: Some(toolchain), files, .. }) = self.fetching.take()
        else {
            return;
        };
        self.adopted.retain(|other| other.fits(&toolchain));
        if self.adopted.len() >= ADOPTED_MAX {
            self.adopted.remove(0);
        }
        self.adopted.push(Adopted { toolchain, files });
        self.generation += 1;
        self.settle(hash);
    }

    /// What the client says of the compiler cannot be true, or it does not hand it out.
    fn refuse(&mut self) {
        if let Some(fetching) = self.fetching.take() {
            if self.refused.len() >= REFUSED_MAX {
                self.refused.clear();
            }
            self.refused.insert(fetching.hash);
            self.settle(fetching.hash);
        }
    }

    /// Time passes: a client that says nothing for so many ticks hands nothing out.
    pub(crate) fn tick(&mut self) {
        self.silent += 1;
        if self.silent > SILENT_MAX {
            self.refuse();
        }
    }

    fn settle(&mut self, hash: Digest) {
        self.says.push_back(ToClient::Equipped { toolchain: hash });
        self.settled.push(hash);
        self.begin();
    }

    /// Changes whenever what has to be shown does.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// What jobs of these compilers are shown.
    pub(crate) fn shown(&self) -> Shown {
        let octets = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let parts = self.adopted.iter().flat_map(|at| at.toolchain.parts.iter().zip(&at.files));
        let mut parts: Vec<_> = parts.map(|(part, file)| (&part.path, file)).collect();
        parts.sort_unstable();
        parts.dedup_by_key(|(path, _)| *path);
        // A part that is gone meanwhile is missed by who runs it.
        let binds = parts.into_iter().filter_map(|(path, file)| Bind::new(file, path).ok());
        let toolchains = || self.adopted.iter().map(|at| &at.toolchain);
        let links = toolchains().flat_map(|at| &at.links);
        let mut links: Vec<_> =
            links.map(|link| (octets(&link.path), octets(&link.target))).collect();
        links.sort_unstable();
        links.dedup();
        let asked = toolchains().flat_map(|at| &at.probes_absent).map(|path| octets(path));
        let asked = asked.chain(toolchains().flat_map(absent_beneath));
        let known = KNOWN_ABSENT.iter().map(|(path, _)| path.as_bytes().to_vec());
        Shown { binds: binds.collect(), links, absent: known.chain(asked).collect() }
    }
}

/// A file of this machine in the store, if it is what its hash says: its own may be replaced later.
fn copied(store: &Store, file: &Path, hash: &Digest) -> Option<PathBuf> {
    let octets = std::fs::read(file).ok()?;
    store.put(hash, octets.into(), Kind::Program).ok()?;
    store.path_of(hash)
}

impl Fetching {
    /// The next part.
    fn wanted(&self) -> Option<&Part> {
        self.toolchain.as_ref()?.parts.get(self.files.len())
    }
}

impl Adopted {
    /// Whether both can be shown at once.
    fn fits(&self, other: &Toolchain) -> bool {
        let own = &self.toolchain;
        let clashes = |part: &Part| {
            let is_other = |at: &Part| at.path == part.path && at.hash != part.hash;
            other.parts.iter().any(is_other) || other.links.iter().any(|at| at.path == part.path)
        };
        let turns = |path: &Path, target: &Path| {
            other.links.iter().any(|at| at.path == path && at.target != target)
                || other.parts.iter().any(|at| at.path.starts_with(path))
        };
        let crosses = |path: &Path| other.links.iter().any(|at| path.starts_with(&at.path));
        !own.parts.iter().any(|part| clashes(part) || crosses(&part.path))
            && !own.links.iter().any(|link| turns(&link.path, &link.target))
    }
}

/// Whether a compiler is what its hash says, and can be shown as it says.
fn is_sound(told: &Toolchain, hash: &Digest) -> bool {
    let plain = |path: &Path| {
        path.is_absolute()
            && path.components().skip(1).all(|part| matches!(part, Component::Normal(_)))
            && path.parent().is_some()
            && !RESERVED.iter().any(|reserved| path.starts_with(reserved))
    };
    let through =
        |path: &Path| told.links.iter().any(|at| at.path != path && path.starts_with(&at.path));
    let paths = || told.parts.iter().map(|part| &part.path);
    let all = || paths().chain(told.links.iter().map(|link| &link.path));
    let beneath_another = || {
        let mut sorted: Vec<_> = all().collect();
        sorted.sort_unstable();
        sorted.windows(2).any(|pair| pair[1].starts_with(pair[0]))
    };
    told.hash.0 == *hash
        && hash_of(&told.parts).0 == *hash
        && told.parts.len() <= PARTS_MAX
        && told.links.len() <= PARTS_MAX
        && told.parts.iter().all(|part| (1..=PART_MAX).contains(&part.size))
        && paths().any(|path| *path == told.driver)
        && all().all(|path| plain(path) && !through(path))
        && !beneath_another()
}

#[cfg(test)]
mod tests;
