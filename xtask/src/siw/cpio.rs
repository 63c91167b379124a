//! The "newc" cpio format, which the Linux kernel unpacks as its first root file system.
//!
//! Writes only what an initramfs needs: directories, regular files and symbolic links, all owned
//! by root. It never reads the format. The kernel accepts several archives one after another,
//! each aligned to four bytes. Layout: Linux, Documentation/driver-api/early-userspace.

use std::collections::BTreeSet;

const DIRECTORY: u32 = 0o040_755;
const LINK: u32 = 0o120_777;
const REGULAR: u32 = 0o100_000;
const TRAILER: &str = "TRAILER!!!";

/// An archive under construction.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    entries: usize,
}

impl Archive {
    /// Adds a regular file at the absolute `path`, and the directories above it.
    pub(super) fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        self.parents_of(path);
        self.entry(path, REGULAR | permissions, content);
    }

    /// Adds a symbolic link at the absolute `path`, and the directories above it.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.parents_of(path);
        self.entry(path, LINK, target.as_bytes());
    }

    /// Adds a directory unless it is there, and the directories above it.
    pub(super) fn directory(&mut self, path: &str) {
        if path.is_empty() || !self.directories.insert(path.to_owned()) {
            return;
        }
        self.parents_of(path);
        self.entry(path, DIRECTORY, &[]);
    }

    /// The finished archive; another may follow it directly.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.bytes
    }

    fn parents_of(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let name = path.trim_start_matches('/');
        let inode = self.entries;
        let (length, name_length) = (content.len(), name.len() + 1);
        // ino mode uid gid nlink mtime filesize, two device numbers in halves, namesize check
        let header = format!(
            "070701{inode:08x}{mode:08x}{zero}{zero}{one}{zero}{length:08x}{zero}{zero}{zero}{zero}\
             {name_length:08x}{zero}{name}\0",
            zero = "00000000",
            one = "00000001",
        );
        self.bytes.extend(header.as_bytes());
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_is_laid_out_as_the_kernel_expects() {
        let mut archive = Archive::default();
        archive.file("/a", 0o755, b"hello");
        let bytes = archive.finish();
        let header = b"07070100000001000081ed0000000000000000000000010000000000000005\
                       0000000000000000000000000000000000000002";
        assert_eq!(&bytes[..header.len()], header);
        assert_eq!(&bytes[110..120], b"a\0hello\0\0\0");
        assert_eq!(&bytes[120..126], b"070701");
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn directories_come_once_and_before_their_content() {
        let mut archive = Archive::default();
        archive.file("/usr/bin/x", 0o755, b"");
        archive.file("/usr/bin/y", 0o755, b"");
        archive.link("/usr/z", "bin/x");
        let text = String::from_utf8(archive.finish()).unwrap();
        let at = |name: &str| text.find(&format!("{name}\0")).unwrap();
        assert!(at("usr") < at("usr/bin") && at("usr/bin") < at("usr/bin/x"));
        assert_eq!(text.matches("\0usr/bin\0").count() + text.matches("0usr/bin\0").count(), 1);
    }
}
