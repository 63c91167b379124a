//! A client and a server on one machine: the server reads the client's region.

use crate::{
    Answer, Change, Contents, Export, ExportHeader, HEADER_LEN, HiddenNames, LookUp, Position,
    Replica, Sizes,
};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Both halves, and a directory that is exported.
pub(crate) struct Rig {
    pub(crate) dir: TempDir,
    pub(crate) export: Export,
    pub(crate) replica: Replica,
}

/// Small memory, so that tests exhaust it.
pub(crate) const SMALL: Sizes = Sizes { ring: 1 << 20, log: 1 << 20 };

/// A directory whose name does not begin with a dot.
pub(crate) fn directory() -> TempDir {
    tempfile::Builder::new().prefix("outboard-export-").tempdir().unwrap()
}

pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(HiddenNames::Withheld)
    }

    pub(crate) fn with(hidden_names: HiddenNames) -> Self {
        let dir = directory();
        let export = Export::new(SMALL, hidden_names).unwrap();
        let mut rig = Self { dir, export, replica: Replica::new() };
        assert!(rig.export.allow(&rig.path("")).unwrap());
        rig
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let root = self.dir.path().canonicalize().unwrap();
        if name.is_empty() { root } else { root.join(name) }
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), contents).unwrap();
    }

    /// The server reads all of the log.
    pub(crate) fn read_log(&mut self) -> Vec<Change> {
        let memory = self.export.memory();
        let mut changes = Vec::new();
        loop {
            let header = ExportHeader::parse(&memory.snapshot(0..HEADER_LEN).unwrap()).unwrap();
            let Some(want) = self.replica.want(&header) else { return changes };
            let start = usize::try_from(header.log_at + want.offset).unwrap();
            let end = start + usize::try_from(want.len).unwrap();
            let log = memory.snapshot(start..end).unwrap();
            changes.extend(self.replica.handle(&want, &log).unwrap());
        }
    }

    /// Submits a job; its server reads the log as far as it must.
    pub(crate) fn submit(&mut self) -> (Position, Vec<Change>) {
        let position = self.export.submit();
        let changes = self.read_log();
        assert!(self.replica.has_reached(position));
        (position, changes)
    }

    pub(crate) fn look_up(&self, dir: &str, name: &str) -> LookUp {
        self.replica.look_up(bytes(&self.path(dir)), name.as_bytes())
    }

    /// A client without the kernel's notices.
    pub(crate) fn unwatched() -> Self {
        let dir = directory();
        let mut export = Export::new(SMALL, HiddenNames::Withheld).unwrap();
        export.watch.refuse();
        let mut rig = Self { dir, export, replica: Replica::new() };
        assert!(rig.export.allow(&rig.path("")).unwrap());
        rig
    }

    /// Looks up, and requests what is unknown.
    pub(crate) fn find(&mut self, dir: &str, name: &str) -> LookUp {
        let dir = self.path(dir);
        self.find_at(&dir, name.as_bytes())
    }

    pub(crate) fn find_at(&mut self, dir: &Path, name: &[u8]) -> LookUp {
        self.read_log();
        for _ in 0..8 {
            match self.replica.look_up(bytes(dir), name) {
                LookUp::Unknown(ask) => {
                    let answer = self.export.answer(&ask);
                    self.read_log();
                    match answer {
                        Answer::Published(_) | Answer::Changed(_) => {}
                        Answer::Withheld => return LookUp::Withheld,
                        other => panic!("{other:?}"),
                    }
                }
                known => return known,
            }
        }
        panic!("never known: {}", dir.display());
    }

    pub(crate) fn version(&mut self, dir: &str, name: &str) -> u64 {
        match self.find(dir, name) {
            LookUp::File(attr) => attr.version,
            other => panic!("{other:?}"),
        }
    }

    /// What a compiler would read: bytes that have the announced hash.
    pub(crate) fn read(&mut self, dir: &str, name: &str) -> Vec<u8> {
        let path = self.path(dir).join(name);
        self.read_at(&path)
    }

    pub(crate) fn read_at(&mut self, path: &Path) -> Vec<u8> {
        let (dir, name) = (path.parent().unwrap(), bytes(path.file_name().unwrap().as_ref()));
        for _ in 0..100 {
            let LookUp::File(attr) = self.find_at(dir, name) else { panic!("no file") };
            let found = self.replica.contents(attr.dev, attr.ino, attr.version);
            if let Some(bytes) = found.and_then(|contents| self.fetch(&contents)) {
                return bytes;
            }
            let answer = self.export.offer(bytes(path), attr.version);
            assert!(matches!(answer, Answer::Published(_) | Answer::Changed(_)), "{answer:?}");
            self.read_log();
        }
        panic!("never had its contents: {}", path.display());
    }

    /// Reads contents from the region, if they have the announced hash.
    pub(crate) fn fetch(&self, contents: &Contents) -> Option<Vec<u8>> {
        let start = usize::try_from(contents.at).unwrap();
        let end = start + usize::try_from(contents.packed).unwrap();
        contents.open(self.export.memory().snapshot(start..end).unwrap())
    }
}
