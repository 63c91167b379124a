//! Programs that gain rights, and ELF files, also broken ones.

use super::{Caller, Elf, changes_ids};
use std::fs::{self, File};

const CALLER: Caller = Caller { uid: 1000, gid: 100 };

#[test]
fn only_anothers_setuid_and_setgid_count() {
    assert!(changes_ids(0o4755, 0, 0, CALLER));
    assert!(changes_ids(0o2755, 1000, 0, CALLER));
    assert!(!changes_ids(0o755, 0, 0, CALLER));
    assert!(!changes_ids(0o4755, 1000, 100, CALLER));
    assert!(!changes_ids(0o2755, 1000, 100, CALLER));
    assert!(!changes_ids(0o2745, 1000, 0, CALLER), "mandatory locking");
}

/// Reads `bytes` as a program file.
fn read(name: &str, bytes: &[u8]) -> std::io::Result<Option<Elf>> {
    let path = std::env::temp_dir().join(format!("outboard-{name}-{}", std::process::id()));
    fs::write(&path, bytes).unwrap();
    let elf = Elf::read(&File::open(&path).unwrap());
    fs::remove_file(&path).unwrap();
    elf
}

/// A header and program headers of the kinds given.
fn elf(kinds: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[18] = 62;
    bytes[32] = 64;
    bytes[54] = 56;
    bytes[56] = u8::try_from(kinds.len()).unwrap();
    for kind in kinds {
        bytes.extend(kind.to_le_bytes());
        bytes.extend([0; 52]);
    }
    bytes
}

#[test]
fn the_loader_is_found_among_program_headers() {
    let read = |name, kinds: &[u32]| read(name, &elf(kinds)).unwrap().unwrap().interpreted;
    assert!(read("dynamic", &[6, 3, 1]));
    assert!(!read("static", &[6, 1, 2]));
    assert!(!read("empty", &[]));
}

#[test]
fn other_files_are_no_elf_and_broken_ones_an_error() {
    assert_eq!(read("script", b"#!/bin/sh\n").unwrap(), None);
    assert_eq!(read("short", b"\x7fELF\x02\x01").unwrap(), None);
    let mut broken = elf(&[1, 1]);
    broken.truncate(70);
    assert!(read("broken", &broken).is_err());
    let mut far = elf(&[1]);
    far[32..40].fill(0xff);
    assert!(read("far", &far).is_err());
}
