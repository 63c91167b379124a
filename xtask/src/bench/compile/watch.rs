//! Parsing the log of `strace` for a compiler's requests to the file system.
//!
//! Only the compiler proper (cc1, cc1plus) counts: the driver and the assembler look for parts of
//! the toolchain, which every server has. For the same reason its shared libraries are left out.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use outboard_stand_in::record::{Kind, Lookup};

/// Programs that read sources.
const COMPILERS: &[&str] = &["cc1", "cc1plus"];
/// Directories of the compiling machine, which are not the project's.
const MACHINE: &[&str] =
    &["/proc/", "/dev/", "/sys/", "/etc/", "/tmp/", "/usr/share/locale", "/usr/lib/locale"];

/// The look-ups in the log of one process; `None` unless it was a compiler. `size` returns the size
/// of a file.
pub(super) fn lookups(log: &str, size: impl Fn(&Path) -> Option<u64>) -> Option<Vec<Lookup>> {
    let mut lines = log.lines().filter_map(Call::parse);
    lines.find(|call| call.name == "execve" && !call.absent && is_compiler(&call.path))?;
    let mut read = HashSet::new();
    let calls = lines.filter(|call| !is_of_machine(&call.path));
    let lookups = calls.filter_map(|call| {
        let kind = match (call.name, call.absent) {
            ("open" | "openat", true) => Kind::OpenAbsent,
            ("stat" | "lstat" | "newfstatat" | "statx", true) => Kind::StatAbsent,
            ("access" | "faccessat" | "faccessat2", true) => Kind::AccessAbsent,
            ("readlink" | "readlinkat", true) => Kind::LinkAbsent,
            ("open" | "openat", false) if call.reads && read.insert(call.path.clone()) => {
                Kind::Read { size: size(&call.path)? }
            }
            _ => return None,
        };
        Some(Lookup { kind, path: call.path })
    });
    Some(lookups.collect())
}

/// One line of the log.
struct Call<'a> {
    name: &'a str,
    path: PathBuf,
    /// The path was absent.
    absent: bool,
    /// It opened a file for reading.
    reads: bool,
}

impl<'a> Call<'a> {
    /// `openat(AT_FDCWD, "src/a.h", O_RDONLY|O_NOCTTY) = -1 ENOENT (No such file or directory)`.
    fn parse(line: &'a str) -> Option<Self> {
        let (name, rest) = line.split_once('(')?;
        let (arguments, result) = rest.rsplit_once(" = ")?;
        let path = quoted(arguments)?;
        let failed = result.starts_with('-');
        let absent = result.contains(" ENOENT ") || result.contains(" ENOTDIR ");
        let done = !failed && arguments.contains("O_RDONLY") && !arguments.contains("O_DIRECTORY");
        (!path.as_os_str().is_empty()).then_some(Self { name, path, absent, reads: done })
    }
}

/// The first text in quotes, with strace's escapes undone.
fn quoted(arguments: &str) -> Option<PathBuf> {
    let mut rest = arguments.split_once('"')?.1.bytes();
    let mut path = Vec::new();
    loop {
        match rest.next()? {
            b'"' => return Some(OsString::from_vec(path).into()),
            b'\\' => path.push(escaped(&mut rest)?),
            byte => path.push(byte),
        }
    }
}

/// The byte after a backslash: up to three octal digits, or a character that stands for itself.
fn escaped(rest: &mut std::str::Bytes<'_>) -> Option<u8> {
    let first = rest.next()?;
    if !first.is_ascii_digit() {
        return Some(match first {
            b'n' => b'\n',
            b't' => b'\t',
            other => other,
        });
    }
    let mut value = first - b'0';
    while let Some(digit) = rest.clone().next().filter(u8::is_ascii_digit) {
        value = value.wrapping_mul(8).wrapping_add(digit - b'0');
        rest.next();
    }
    Some(value)
}

fn is_compiler(path: &Path) -> bool {
    COMPILERS.iter().any(|name| path.ends_with(name))
}

fn is_of_machine(path: &Path) -> bool {
    let text = path.to_string_lossy();
    MACHINE.iter().any(|place| text.starts_with(place)) || text.contains(".so")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
execve(\"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\", [\"cc1\", \"-quiet\"...], 0x13f7 /* 4 vars */) = 0
openat(AT_FDCWD, \"/etc/ld.so.cache\", O_RDONLY|O_CLOEXEC) = 3
openat(AT_FDCWD, \"/lib/x86_64-linux-gnu/libc.so.6\", O_RDONLY|O_CLOEXEC) = 3
readlink(\"/usr\", 0x7fff2f5ed440, 1023)  = -1 EINVAL (Invalid argument)
readlink(\"/usr/local/include/bits\", 0x7ff, 1023) = -1 ENOENT (No such file or directory)
newfstatat(4, \"\", {st_mode=S_IFREG|0644, st_size=1515, ...}, AT_EMPTY_PATH) = 0
newfstatat(AT_FDCWD, \"src/a.h.gch\", 0x7fff2f5ee830, 0) = -1 ENOENT (No such file or directory)
openat(AT_FDCWD, \"src/a.c\", O_RDONLY|O_NOCTTY) = 4
openat(AT_FDCWD, \"src/\\303\\244 \\\"b\\\".h\", O_RDONLY|O_NOCTTY) = 4
openat(AT_FDCWD, \"src/a.c\", O_RDONLY|O_NOCTTY) = 4
access(\"deps/none\", X_OK) = -1 ENOTDIR (Not a directory)
openat(AT_FDCWD, \"a.s\", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 5
+++ exited with 0 +++
";

    #[test]
    fn files_count_once_and_failures_each_time() {
        let found = lookups(LOG, |_| Some(7)).unwrap();
        let expected = [
            (Kind::LinkAbsent, "/usr/local/include/bits"),
            (Kind::StatAbsent, "src/a.h.gch"),
            (Kind::Read { size: 7 }, "src/a.c"),
            (Kind::Read { size: 7 }, "src/ä \"b\".h"),
            (Kind::AccessAbsent, "deps/none"),
        ];
        let expected = expected.map(|(kind, path)| Lookup { kind, path: path.into() });
        assert_eq!(found, expected);
    }

    #[test]
    fn other_programs_do_not_count() {
        assert_eq!(lookups(&LOG.replace("/cc1\"", "/as\""), |_| Some(7)), None);
    }
}
