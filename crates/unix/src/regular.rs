//! Files that people name, read as a whole: no more than they may be, and never a device, a pipe or
//! a directory, which would block or never end.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file that is none of these.
///
/// # Errors
/// The system's; [`io::ErrorKind::InvalidInput`] if it is one.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a pipe waits for whoever writes into it, but for this flag.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no regular file")),
    }
}

/// The contents of a file of at most `max` bytes.
///
/// # Errors
/// As for [`open_regular`]; [`io::ErrorKind::FileTooLarge`].
pub fn read_regular(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max {
        let why = format!("it has more than {max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_pipes_and_directories_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("a pipe");
        for path in [Path::new("/dev/zero"), directory.path(), &pipe] {
            let error = read_regular(path, 10).expect_err("no file");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}: {error}", path.display());
        }
    }

    #[test]
    fn files_have_a_length() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, b"ten bytes!").expect("written");
        assert_eq!(read_regular(&path, 10).expect("read"), b"ten bytes!");
        let error = read_regular(&path, 9).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
