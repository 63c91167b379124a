//! Compilers that clients supply: fetched part by part from a client's memory, stored by hash,
//! and shown only to that client's jobs.
//!
//! A value without network, disk or clock: [`Adoptions::poll`] returns the next message to the
//! client, [`Adoptions::poll_work`] what a thread is to do in the store, and other methods return
//! the ranges to read from the client's memory: a part is written as it arrives, and never held
//! as a whole. A compiler that does not match its hash is refused; the compiler is not trusted
//! further, its jobs are confined by the sandbox. Parts that are installed on this server are not
//! fetched.

mod part;

pub(crate) use part::{PartDone, PartWork};

use super::client_sandbox::ShownFiles;
use super::toolchains::{CompilerProgram, Programs};
use crate::protocol::{Digest, ToClient};
use crate::toolchain::{Part, Toolchain, hash_of};
use outboard_cluster::hub::Exposed;
use part::{PartOutcome, PartTask, PartWriter};
use std::collections::{HashSet, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Parts of one compiler, at most.
const PARTS_MAX: usize = 1024;
/// Bytes of one part, at most.
const PART_MAX: u64 = 512 << 20;
/// Bytes of one read of a part.
const READ_MAX: u64 = 4 << 20;
/// Ticks that a client has to answer.
const SILENT_MAX: u32 = 60;
/// Compilers of one client held at a time.
const ADOPTED_MAX: usize = 64;
/// Compilers waiting to be fetched.
const WAITING_MAX: usize = 64;
/// Compilers remembered as useless.
const REFUSED_MAX: usize = 4096;
/// Paths that no file of a compiler may have: the sandbox uses them itself.
const RESERVED: &[&str] = &["/proc", "/dev", "/sys"];

/// Compilers of one client; see the [module](self).
#[derive(Debug)]
pub(crate) struct Adoptions {
    /// Whether compilers are fetched.
    is_allowed: bool,
    adopted: Vec<Adopted>,
    fetching: Option<Fetching>,
    waiting: VecDeque<Digest>,
    refused: HashSet<Digest>,
    settled: Vec<Digest>,
    says: VecDeque<ToClient>,
    works: VecDeque<PartWork>,
    /// Counts the compilers that were fetched: work for one that was given up concerns no other.
    fetches: u64,
    generation: u64,
    /// Ticks since the client last sent something about the compiler that is being fetched.
    silent: u32,
}

#[derive(Debug)]
struct Adopted {
    toolchain: Toolchain,
    /// Where its parts are on this server.
    files: Vec<PathBuf>,
}

/// The compiler that is being fetched.
#[derive(Debug)]
struct Fetching {
    hash: Digest,
    toolchain: Option<Toolchain>,
    /// Where the parts are that are here.
    files: Vec<PathBuf>,
    stage: PartStage,
}

/// How far the next part is.
#[derive(Debug)]
enum PartStage {
    /// The client has been asked for it, or for the compiler's description.
    Asked,
    /// A thread looks for it on this server.
    Looking,
    /// A range of it is being read, from this offset.
    Reading { exposed: Exposed, at: u64, writer: Option<PartWriter> },
    /// A thread writes what was read, up to this offset.
    Writing { exposed: Exposed, at: u64 },
}

/// A range to read of a part: its memory, offset and length.
pub(crate) type RemoteRange = (Exposed, u64, u64);

impl Adoptions {
    /// With `is_allowed`, compilers are fetched: there is a store for them.
    pub(crate) fn new(is_allowed: bool) -> Self {
        Self {
            is_allowed,
            adopted: Vec::new(),
            fetching: None,
            waiting: VecDeque::new(),
            refused: HashSet::new(),
            settled: Vec::new(),
            says: VecDeque::new(),
            works: VecDeque::new(),
            fetches: 0,
            generation: 0,
            silent: 0,
        }
    }

    /// The next message to the client.
    pub(crate) fn poll(&mut self) -> Option<ToClient> {
        self.says.pop_front()
    }

    /// The next work for a thread; its outcome goes to [`Self::handle_work`].
    pub(crate) fn poll_work(&mut self) -> Option<PartWork> {
        self.works.pop_front()
    }

    /// Compilers that have been fetched or refused since the last call.
    pub(crate) fn take_settled(&mut self) -> Vec<Digest> {
        std::mem::take(&mut self.settled)
    }

    /// The program of a compiler that has been fetched.
    pub(crate) fn find(&self, hash: &Digest) -> Option<CompilerProgram> {
        let found = self.adopted.iter().find(|at| at.toolchain.hash.0 == *hash);
        found.map(|at| CompilerProgram::of(&at.toolchain, 0))
    }

    /// Begins to fetch a compiler; false when it cannot be used.
    pub(crate) fn want(&mut self, hash: Digest) -> bool {
        if !self.is_allowed || self.refused.contains(&hash) {
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
        self.fetches += 1;
        let (files, stage) = (Vec::new(), PartStage::Asked);
        self.fetching = Some(Fetching { hash, toolchain: None, files, stage });
        self.says.push_back(ToClient::Describe { toolchain: hash });
    }

    /// Handles the client's description of a compiler.
    pub(crate) fn described(&mut self, hash: Digest, bytes: &[u8], programs: &Programs) {
        let Some(fetching) = self.fetching.as_mut().filter(|at| at.hash == hash) else { return };
        let told: Option<Toolchain> = postcard::from_bytes(bytes).ok();
        match told.filter(|told| is_sound(told, &hash)) {
            Some(told) if fetching.toolchain.is_none() => {
                fetching.toolchain = Some(told);
                self.go_on(programs);
            }
            _ => self.refuse(),
        }
    }

    /// Handles the memory that the client exposes for a part; returns the first range to read.
    pub(crate) fn offered(&mut self, exposed: Option<Exposed>) -> Option<RemoteRange> {
        let fetching = self.fetching.as_mut()?;
        let wanted = fetching.wanted().map(|part| part.size);
        let is_asked = matches!(fetching.stage, PartStage::Asked);
        match exposed.filter(|exposed| is_asked && wanted == Some(exposed.len())) {
            Some(exposed) => fetching.read_on(exposed, 0, None),
            None => {
                self.refuse();
                None
            }
        }
    }

    /// Handles bytes read from a part: they are to be written.
    pub(crate) fn read(&mut self, bytes: Vec<u8>) {
        self.silent = 0;
        let Some(fetching) = self.fetching.as_mut() else { return };
        let Some(Part { size, hash, .. }) = fetching.wanted().cloned() else { return };
        let PartStage::Reading { exposed, at, writer } = &mut fetching.stage else { return };
        let (exposed, at, writer) = (*exposed, *at + bytes.len() as u64, writer.take());
        fetching.stage = PartStage::Writing { exposed, at };
        let last = (at >= size).then_some(hash.0);
        self.work(PartTask::Write { writer, bytes, last });
    }

    fn work(&mut self, task: PartTask) {
        self.works.push_back(PartWork { fetch: self.fetches, task });
    }

    /// Handles what a thread has done; returns the next range to read.
    pub(crate) fn handle_work(
        &mut self,
        done: PartDone,
        programs: &Programs,
    ) -> Option<RemoteRange> {
        let PartDone { fetch, outcome } = done;
        let fetching = self.fetching.as_mut().filter(|_| fetch == self.fetches)?;
        match (&fetching.stage, outcome) {
            (PartStage::Looking | PartStage::Writing { .. }, PartOutcome::Kept(file)) => {
                fetching.files.push(file);
                self.go_on(programs);
            }
            (PartStage::Looking, PartOutcome::Absent) => {
                fetching.stage = PartStage::Asked;
                let part = u32::try_from(fetching.files.len()).unwrap_or(u32::MAX);
                let toolchain = fetching.hash;
                self.says.push_back(ToClient::NeedPart { toolchain, part });
            }
            (&PartStage::Writing { exposed, at }, PartOutcome::Written(writer)) => {
                self.silent = 0;
                return fetching.read_on(exposed, at, Some(writer));
            }
            _ => self.refuse(),
        }
        None
    }

    /// Has the next part looked for on this server; adopts the compiler when it has all.
    fn go_on(&mut self, programs: &Programs) {
        let Some(fetching) = self.fetching.as_mut() else { return };
        if let Some(part) = fetching.wanted() {
            let hash = part.hash.0;
            let installed = programs.part(&hash).map(Path::to_owned);
            fetching.stage = PartStage::Looking;
            return self.work(PartTask::Look { hash, installed });
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

    /// Refuses the compiler: its description is inconsistent, or the client does not hand it out.
    fn refuse(&mut self) {
        if let Some(fetching) = self.fetching.take() {
            if self.refused.len() >= REFUSED_MAX {
                self.refused.clear();
            }
            self.refused.insert(fetching.hash);
            self.settle(fetching.hash);
        }
    }

    /// Counts a tick: after too many without a message the client's compiler is given up.
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

    /// A number that changes whenever [`Self::shown`] does.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The files and links of these compilers that jobs are shown.
    pub(crate) fn shown(&self) -> ShownFiles {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let parts = self.adopted.iter().flat_map(|at| at.toolchain.parts.iter().zip(&at.files));
        let mut parts: Vec<_> = parts.map(|(part, file)| (&part.path, file)).collect();
        parts.sort_unstable();
        parts.dedup_by_key(|(path, _)| *path);
        let files = parts.into_iter().map(|(path, file)| (file.clone(), path.clone())).collect();
        let toolchains = || self.adopted.iter().map(|at| &at.toolchain);
        let links = toolchains().flat_map(|at| &at.links);
        let mut links: Vec<_> =
            links.map(|link| (bytes(&link.path), bytes(&link.target))).collect();
        links.sort_unstable();
        links.dedup();
        ShownFiles { files, links }
    }
}

impl Fetching {
    /// The next part to fetch.
    fn wanted(&self) -> Option<&Part> {
        self.toolchain.as_ref()?.parts.get(self.files.len())
    }

    /// Reads on at an offset of the part.
    fn read_on(
        &mut self,
        exposed: Exposed,
        at: u64,
        writer: Option<PartWriter>,
    ) -> Option<RemoteRange> {
        self.stage = PartStage::Reading { exposed, at, writer };
        Some((exposed, at, exposed.len().saturating_sub(at).min(READ_MAX)))
    }
}

impl Adopted {
    /// Whether both compilers can be shown in one sandbox.
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

/// Whether a description has its hash, and all of it can be shown in a sandbox.
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
