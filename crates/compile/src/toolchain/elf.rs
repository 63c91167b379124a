//! Finds a program's loader and its libraries, as the loader itself does.

use super::run;
use object::FileKind;
use object::elf::{DT_RPATH, DT_RUNPATH, FileHeader32, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};
use outboard_unix::names::without_dots;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a file is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Image {
    /// By this loader.
    Dynamic(PathBuf),
    /// By itself.
    Static,
    /// By another program: it is a script.
    Script,
    /// Not recognized: it cannot be run here.
    Other,
}

/// Looks at a file's first bytes.
pub(super) fn image(path: &Path) -> io::Result<Image> {
    let mut file = File::open(path)?;
    let mut start = [0; 2];
    // A file of one byte is none of these.
    let _ = file.read(&mut start)?;
    if start == *b"#!" {
        return Ok(Image::Script);
    }
    let data = ReadCache::new(file);
    Ok(match FileKind::parse(&data) {
        Ok(FileKind::Elf64) => loader::<FileHeader64<Endianness>, _>(&data),
        Ok(FileKind::Elf32) => loader::<FileHeader32<Endianness>, _>(&data),
        _ => Image::Other,
    })
}

fn loader<'a, H: FileHeader<Endian = Endianness>, R: ReadRef<'a>>(data: R) -> Image {
    let find = || -> object::read::Result<Option<PathBuf>> {
        let header = H::parse(data)?;
        let endian = header.endian()?;
        for segment in header.program_headers(endian, data)? {
            if segment.p_type(endian) == PT_INTERP {
                let bytes = segment.data(endian, data).unwrap_or_default();
                let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
                return Ok(Some(Path::new(OsStr::from_bytes(name)).into()));
            }
        }
        Ok(None)
    };
    match find() {
        Ok(Some(path)) => Image::Dynamic(path),
        Ok(None) => Image::Static,
        Err(_) => Image::Other,
    }
}

/// The libraries that `loader` would load for `program`, which it does not run.
pub(super) fn libraries(loader: &Path, program: &Path) -> io::Result<Vec<PathBuf>> {
    let mut command = Command::new(loader);
    command.arg("--list").arg(program).env_remove("LD_PRELOAD");
    let output = run::output(&mut command)?;
    if !output.status.success() {
        return Err(io::Error::other("its loader does not find all of its libraries"));
    }
    Ok(output.stdout.split(|byte| *byte == b'\n').filter_map(library).collect())
}

/// Directories that a program or library names for others' libraries, `$ORIGIN` replaced: the
/// loader looks there first, whether or not there is anything.
pub(super) fn run_paths(path: &Path) -> io::Result<Vec<PathBuf>> {
    let data = ReadCache::new(File::open(path)?);
    let lists = match FileKind::parse(&data) {
        Ok(FileKind::Elf64) => run_path_lists::<FileHeader64<Endianness>, _>(&data),
        Ok(FileKind::Elf32) => run_path_lists::<FileHeader32<Endianness>, _>(&data),
        _ => Ok(Vec::new()),
    };
    let lists = lists.unwrap_or_default();
    let directories = lists.iter().flat_map(|list| list.split(|byte| *byte == b':'));
    let own = path.parent().unwrap_or_else(|| Path::new("/"));
    Ok(directories.filter_map(|directory| expand(directory, own)).collect())
}

fn run_path_lists<'a, H: FileHeader<Endian = Endianness>, R: ReadRef<'a>>(
    data: R,
) -> object::read::Result<Vec<Vec<u8>>> {
    let header = H::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let Some((entries, link)) = sections.dynamic(endian, data)? else { return Ok(Vec::new()) };
    let strings = sections.strings(endian, data, link)?;
    let entries =
        entries.iter().filter(|entry| matches!(entry.tag32(endian), Some(DT_RPATH | DT_RUNPATH)));
    let string = |entry: &H::Dyn| {
        let at = entry.val32(endian)?;
        strings.get(at).ok().map(<[u8]>::to_vec)
    };
    Ok(entries.filter_map(string).collect())
}

/// Without `.` and `..`, and without links as far as the directory is there.
fn expand(directory: &[u8], own: &Path) -> Option<PathBuf> {
    let behind =
        [&b"$ORIGIN"[..], b"${ORIGIN}"].iter().find_map(|word| directory.strip_prefix(*word));
    let path = match behind {
        Some(rest) => own.join(OsStr::from_bytes(rest.strip_prefix(b"/").unwrap_or(rest))),
        None => PathBuf::from(OsStr::from_bytes(directory)),
    };
    let plain = without_dots(&path);
    plain.is_absolute().then(|| plain.canonicalize().unwrap_or(plain))
}

/// `libm.so.6 => /lib/libm.so.6 (0x…)` names a file, `/lib64/ld-linux.so.2 (0x…)` too, and
/// `linux-vdso.so.1 (0x…)` none.
fn library(line: &[u8]) -> Option<PathBuf> {
    let line = line.trim_ascii();
    let path = match line.windows(4).position(|bytes| bytes == b" => ") {
        Some(at) => &line[at + 4..],
        None => line,
    };
    let end = path.windows(4).rposition(|bytes| bytes == b" (0x")?;
    let path = Path::new(OsStr::from_bytes(&path[..end]));
    path.is_absolute().then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_list_is_read() {
        let of = |line: &str| library(line.as_bytes());
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(of("\tlibm.so.6 => /lib/libm.so.6 (0x00007f)"), path("/lib/libm.so.6"));
        assert_eq!(of("\t/lib64/ld.so.2 (0x00007f)"), path("/lib64/ld.so.2"));
        assert_eq!(of("\tliba b.so => /a (0x b/liba b.so (0x1)"), path("/a (0x b/liba b.so"));
        assert_eq!(of("\tlinux-vdso.so.1 (0x00007f)"), None);
        assert_eq!(of("\tlibx.so => not found"), None);
    }

    #[test]
    fn directories_for_libraries_are_expanded() {
        let of = |directory: &str| expand(directory.as_bytes(), Path::new("/no/lib/deep"));
        assert_eq!(of("$ORIGIN/../lib"), Some("/no/lib/lib".into()));
        assert_eq!(of("${ORIGIN}"), Some("/no/lib/deep".into()));
        assert_eq!(of("/no/where/."), Some("/no/where".into()));
        assert_eq!(of("where/ever"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn programs_scripts_and_others_are_told_apart() {
        let own = std::env::current_exe().unwrap();
        let Image::Dynamic(loader) = image(&own).unwrap() else { panic!("{own:?} is dynamic") };
        let libraries = libraries(&loader, &own).unwrap();
        assert!(libraries.iter().any(|path| path.to_string_lossy().contains("libc.so")));
        let script = own.with_extension("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(image(&script).unwrap(), Image::Script);
        std::fs::write(&script, "#").unwrap();
        assert_eq!(image(&script).unwrap(), Image::Other);
        std::fs::write(&script, b"\x7fELF\x02\x01\x01 and nothing more").unwrap();
        assert_eq!(image(&script).unwrap(), Image::Other);
        std::fs::remove_file(script).unwrap();
    }
}
