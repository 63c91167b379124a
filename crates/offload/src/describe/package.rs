//! A package: a directory with an offcode's description, its bodies and its interfaces.
//!
//! Reads regular files inside that directory alone, each with a limit. Never looks into a body.

#[cfg(test)]
mod tests;

use super::fault::DescribeError;
use super::name::PackagePath;
use super::offcode::{OFFCODE_FILE, OFFCODE_FILE_LEN_MAX, OffcodeBody, OffcodeFile};
use super::xml::{Assumption, OFFCODE_XML};
use outboard_unix::regular::read_regular;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a body, and of a library, at most.
pub const BODY_LEN_MAX: usize = 16 << 20;
/// Bytes of all bodies and libraries of a package, at most.
pub const PACKAGE_LEN_MAX: usize = 64 << 20;
/// Bytes of a WIT file, at most.
pub const WIT_LEN_MAX: usize = 256 << 10;
/// WIT files of a package, at most.
pub const WIT_FILES_MAX: usize = 64;

/// An offcode's package, read as a whole.
#[derive(Clone, Debug)]
pub struct OffcodePackage {
    /// Its directory, without links.
    pub directory: PathBuf,
    /// Its description.
    pub file: OffcodeFile,
    /// The description's path.
    pub path: PathBuf,
    /// What the description left open, if it is the paper's XML.
    pub assumptions: Vec<Assumption>,
    /// Its bodies, in the description's order.
    pub bodies: Vec<PackageBody>,
    /// Its WIT files, by their paths.
    pub wit: Vec<WitText>,
}

/// A body with its contents.
#[derive(Clone, Debug)]
pub struct PackageBody {
    /// What the description says of it.
    pub body: OffcodeBody,
    /// Its code; a builtin has none.
    pub code: Option<CodeFile>,
    /// The modules that it imports, in the description's order.
    pub libraries: Vec<CodeFile>,
}

/// The contents of a body or a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeFile {
    /// Its path in the package.
    pub path: PackagePath,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
    /// The BLAKE3 hash of its bytes.
    pub hash: [u8; 32],
}

/// A WIT file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitText {
    /// Its path.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

impl OffcodePackage {
    /// Reads the package in a directory.
    ///
    /// # Errors
    /// [`DescribeError`]: a fault of its description, or a file that is not there, not inside the
    /// directory, not regular or too long.
    pub fn read(directory: &Path) -> Result<Self, DescribeError> {
        let mut package = Self::without_code(directory)?;
        let mut budget = PACKAGE_LEN_MAX;
        for body in &package.file.bodies {
            package.bodies.push(read_body(&package.directory, body, &mut budget)?);
        }
        Ok(package)
    }

    /// Reads the package in a directory without its bodies, which may not be built yet.
    ///
    /// # Errors
    /// As [`OffcodePackage::read`].
    pub fn without_code(directory: &Path) -> Result<Self, DescribeError> {
        let failed = |source| DescribeError::file(directory, source);
        let directory = directory.canonicalize().map_err(failed)?;
        let (path, file, assumptions) = read_description(&directory)?;
        let wit = read_wit(&directory, &file.paths)?;
        Ok(Self { directory, file, path, assumptions, bodies: Vec::new(), wit })
    }

    /// Bytes of its bodies and libraries.
    #[must_use]
    pub fn code_len(&self) -> usize {
        let of_body = |body: &PackageBody| {
            let libraries: usize = body.libraries.iter().map(|file| file.bytes.len()).sum();
            libraries + body.code.as_ref().map_or(0, |file| file.bytes.len())
        };
        self.bodies.iter().map(of_body).sum()
    }

    /// The body that the description gives for a kind of device.
    #[must_use]
    pub fn body(&self, kind: super::offcode::DeviceKind) -> Option<&PackageBody> {
        let body = self.file.body(kind)?;
        self.bodies.iter().find(|read| read.body == *body)
    }
}

/// The description, as TOML or else as the paper's XML.
fn read_description(
    directory: &Path,
) -> Result<(PathBuf, OffcodeFile, Vec<Assumption>), DescribeError> {
    let (toml, xml) = (directory.join(OFFCODE_FILE), directory.join(OFFCODE_XML));
    if !toml.exists() && xml.exists() {
        let text = read_text(directory, &xml, OFFCODE_FILE_LEN_MAX)?;
        let (file, assumptions) = OffcodeFile::parse_xml(&text).map_err(|fault| fault.at(&xml))?;
        return Ok((xml, file, assumptions));
    }
    let text = read_text(directory, &toml, OFFCODE_FILE_LEN_MAX)?;
    let file = OffcodeFile::parse(&text).map_err(|fault| fault.at(&toml))?;
    Ok((toml, file, Vec::new()))
}

fn read_body(
    directory: &Path,
    body: &OffcodeBody,
    budget: &mut usize,
) -> Result<PackageBody, DescribeError> {
    let (code, libraries) = match body {
        OffcodeBody::Wasm { file, libraries, .. } => (Some(file), libraries.as_slice()),
        OffcodeBody::Bpf { file, .. } => (Some(file), [].as_slice()),
        OffcodeBody::Builtin { .. } => (None, [].as_slice()),
    };
    let mut read = |path: &PackagePath| read_code(directory, path, budget);
    Ok(PackageBody {
        body: body.clone(),
        code: code.map(&mut read).transpose()?,
        libraries: libraries.iter().map(read).collect::<Result<_, _>>()?,
    })
}

fn read_code(
    directory: &Path,
    path: &PackagePath,
    budget: &mut usize,
) -> Result<CodeFile, DescribeError> {
    let full = directory.join(path);
    let bytes = read_inside(directory, &full, BODY_LEN_MAX.min(*budget))?;
    *budget -= bytes.len();
    let hash = *blake3::hash(&bytes).as_bytes();
    Ok(CodeFile { path: path.clone(), bytes: bytes.into(), hash })
}

/// The WIT files of directories that are there; a package without interfaces needs none.
fn read_wit(directory: &Path, paths: &[PackagePath]) -> Result<Vec<WitText>, DescribeError> {
    let mut files = Vec::new();
    for path in paths {
        let below = directory.join(path);
        if below.symlink_metadata().is_err() {
            continue;
        }
        check_inside(directory, &below)?;
        list_wit(&below, &mut files)?;
    }
    files.sort();
    let read = |path: PathBuf| {
        let text = read_text(directory, &path, WIT_LEN_MAX)?;
        Ok(WitText { path, text })
    };
    files.into_iter().map(read).collect()
}

fn list_wit(below: &Path, files: &mut Vec<PathBuf>) -> Result<(), DescribeError> {
    let failed = |source| DescribeError::file(below, source);
    for entry in below.read_dir().map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|ending| ending == "wit") {
            if files.len() == WIT_FILES_MAX {
                let message = format!("it has more than {WIT_FILES_MAX} WIT files");
                return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, message)));
            }
            files.push(path);
        }
    }
    Ok(())
}

fn read_text(directory: &Path, path: &Path, max: usize) -> Result<String, DescribeError> {
    let bytes = read_inside(directory, path, max)?;
    String::from_utf8(bytes).map_err(|_| {
        let message = "it is no text in UTF-8";
        DescribeError::file(path, io::Error::new(io::ErrorKind::InvalidData, message))
    })
}

fn read_inside(directory: &Path, path: &Path, max: usize) -> Result<Vec<u8>, DescribeError> {
    let path = check_inside(directory, path)?;
    read_regular(&path, max).map_err(|source| DescribeError::file(&path, source))
}

/// The path without links, if it leads to something inside the directory.
fn check_inside(directory: &Path, path: &Path) -> Result<PathBuf, DescribeError> {
    let real = path.canonicalize().map_err(|source| DescribeError::file(path, source))?;
    match real.starts_with(directory) {
        true => Ok(real),
        false => {
            let message = "it leads out of the package's directory";
            let source = io::Error::new(io::ErrorKind::PermissionDenied, message);
            Err(DescribeError::file(path, source))
        }
    }
}
