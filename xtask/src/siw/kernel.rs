//! Debian's kernel image, its modules, and siw built for it; kept in the cache by version.
//!
//! The packages are downloaded as files and unpacked, never installed. Image, headers and source
//! must have one version, or the module would not load: the version of the installed
//! linux-source-6.1. A cache directory appears by one rename when it is complete, and is never
//! changed.

use super::announced;
use super::modules;
use super::quiet::run;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE_PACKAGE: &str = "linux-source-6.1";
const SOURCE_ARCHIVE: &str = "/usr/src/linux-source-6.1.tar.xz";
const SIW_SOURCE: &str = "linux-source-6.1/drivers/infiniband/sw/siw";
const FLAVOUR: &str = "amd64";

/// A constant of siw that is changed for its second build, which then requests CRCs. It was a
/// parameter of the module once; since it is a constant, there is no other way to enable them
/// between siw and siw.
const WITHOUT_CRC: &str = "const bool mpa_crc_required;";
const WITH_CRC: &str = "const bool mpa_crc_required = true;";
const CRC_MODULE: &str = "siw_crc";

/// A complete cache directory.
#[derive(Debug)]
pub(super) struct Kernel {
    directory: PathBuf,
}

impl Kernel {
    /// The kernel as qemu boots it.
    pub(super) fn image(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    /// A siw that requests CRCs, to be inserted instead of the other.
    pub(super) fn crc_module(&self) -> PathBuf {
        self.directory.join(format!("{CRC_MODULE}.ko"))
    }

    /// The names of the modules in the order of insertion, and the content of each.
    pub(super) fn modules(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        let files = modules::files_under(&self.directory)?;
        let read = |name: String| match fs::read(&files[&name]) {
            Ok(content) => Ok((name, content)),
            Err(error) => Err(format!("cannot read module {name}: {error}")),
        };
        modules::load_order(&files)?.into_iter().map(read).collect()
    }
}

/// The kernel in `cache`; fetched and built first when its version is not there yet.
pub(super) fn cached(cache: &Path) -> Result<Kernel, String> {
    let version = source_version()?;
    // The suffix names the contents, so that caches of earlier releases are not used.
    let directory = cache.join(format!("{version}+{CRC_MODULE}"));
    if !directory.is_dir() {
        let work = Workshop::open(cache)?;
        work.build(&version)?;
        work.publish(&directory)?;
    }
    Ok(Kernel { directory })
}

/// A directory of this process in which everything is unpacked and built; removed when dropped.
struct Workshop {
    directory: PathBuf,
}

impl Workshop {
    fn open(cache: &Path) -> Result<Self, String> {
        let directory = cache.join(format!("build-{}", std::process::id()));
        fs::create_dir_all(directory.join("done"))
            .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
        // make is called with -C: every path it is given must be absolute.
        let directory = directory.canonicalize().map_err(|error| error.to_string())?;
        Ok(Self { directory })
    }

    fn build(&self, version: &str) -> Result<(), String> {
        let release = release_of(version)?;
        let packages = packages_of(&release, version);
        announced(&format!("fetched Debian's kernel {version}"), || self.fetch(&packages))?;
        announced("unpacked it", || self.unpack())?;
        announced("built siw.ko", || self.build_siw(&release))?;
        announced("built siw.ko with CRCs", || self.build_crc(&release))?;
        self.collect(&release)
    }

    fn fetch(&self, packages: &[String]) -> Result<(), String> {
        let mut command = Command::new("apt-get");
        command.current_dir(&self.directory).arg("download").args(packages);
        run(&mut command).map(drop)
    }

    fn unpack(&self) -> Result<(), String> {
        for path in files_ending(&self.directory, ".deb")? {
            run(Command::new("dpkg-deb").arg("-x").arg(path).arg(self.path("root")))?;
        }
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&self.directory).args(["-xf", SOURCE_ARCHIVE, SIW_SOURCE]);
        run(&mut tar).map(drop)
    }

    fn build_siw(&self, release: &str) -> Result<(), String> {
        self.compile(release)?;
        let kept = fs::rename(self.compiled(), self.siw_module());
        kept.map_err(|error| format!("cannot keep siw.ko: {error}"))
    }

    /// Builds from the same source with one constant changed.
    fn build_crc(&self, release: &str) -> Result<(), String> {
        let path = self.path(SIW_SOURCE).join("siw_main.c");
        let fault = |error| format!("cannot change {}: {error}", path.display());
        let source = fs::read_to_string(&path).map_err(fault)?;
        if !source.contains(WITHOUT_CRC) {
            return Err(format!("{} has no \"{WITHOUT_CRC}\"", path.display()));
        }
        fs::write(&path, source.replace(WITHOUT_CRC, WITH_CRC)).map_err(fault)?;
        self.compile(release)?;
        self.keep(&self.compiled(), &format!("{CRC_MODULE}.ko"))
    }

    /// Compiles the module in place. The headers' Makefile names its other half by an absolute
    /// path, the only one in these packages, which is replaced.
    fn compile(&self, release: &str) -> Result<(), String> {
        let headers = self.path(&format!("root/usr/src/linux-headers-{release}"));
        let common = release.replace(FLAVOUR, "common");
        let common = self.path(&format!("root/usr/src/linux-headers-{common}/Makefile"));
        fs::write(headers.join("Makefile"), format!("include {}\n", common.display()))
            .map_err(|error| format!("cannot write the headers' Makefile: {error}"))?;
        let source = format!("M={}", self.path(SIW_SOURCE).display());
        let mut make = Command::new("make");
        make.arg("-j2").arg("-C").arg(headers).args([&source, "CONFIG_RDMA_SIW=m", "modules"]);
        run(&mut make)?;
        // Nine tenths of it is debugging information, which every boot would have to unpack.
        run(Command::new("strip").arg("--strip-debug").arg(self.compiled())).map(drop)
    }

    /// Moves the files that a guest needs to `done`: some thirty of five thousand.
    fn collect(&self, release: &str) -> Result<(), String> {
        let mut files = modules::files_under(&self.path("root"))?;
        files.insert("siw".into(), self.siw_module());
        for name in modules::load_order(&files)? {
            self.keep(&files[&name], &format!("{name}.ko"))?;
        }
        self.keep(&self.path(&format!("root/boot/vmlinuz-{release}")), "vmlinuz")
    }

    fn keep(&self, from: &Path, name: &str) -> Result<(), String> {
        fs::rename(from, self.path("done").join(name))
            .map_err(|error| format!("cannot keep {}: {error}", from.display()))
    }

    fn publish(&self, directory: &Path) -> Result<(), String> {
        match fs::rename(self.path("done"), directory) {
            Err(error) if !directory.is_dir() => {
                Err(format!("cannot create {}: {error}", directory.display()))
            }
            // If another process was faster, its directory is used.
            _ => Ok(()),
        }
    }

    fn compiled(&self) -> PathBuf {
        self.path(SIW_SOURCE).join("siw.ko")
    }

    /// Moved aside, because the second build writes the same file.
    fn siw_module(&self) -> PathBuf {
        self.path("siw.ko")
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.directory.join(relative)
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // If the removal fails, only disk space is lost.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn source_version() -> Result<String, String> {
    let mut query = Command::new("dpkg-query");
    run(query.args(["--show", "--showformat", "${Version}", SOURCE_PACKAGE]))
}

/// The kernel release, such as "6.1.0-56-amd64", which Debian built from this source version.
fn release_of(version: &str) -> Result<String, String> {
    let pattern = format!("linux-headers-6.1.0-*-{FLAVOUR}");
    let listing = run(Command::new("apt-cache").args(["show", &pattern])).unwrap_or_default();
    release_in(&listing, version).ok_or_else(|| {
        format!(
            "apt knows no kernel headers of {version}, the version of {SOURCE_PACKAGE}; \
             run: apt-get update && apt-get install {SOURCE_PACKAGE}"
        )
    })
}

fn release_in(listing: &str, version: &str) -> Option<String> {
    let mut release = None;
    for line in listing.lines() {
        if let Some(package) = line.strip_prefix("Package: linux-headers-") {
            release = Some(package).filter(|release| is_plain(release));
        } else if line.strip_prefix("Version: ") == Some(version) && release.is_some() {
            return release.map(str::to_owned);
        }
    }
    None
}

/// Whether it is "6.1.0-NN-amd64" and not one of the cloud or real-time kernels.
fn is_plain(release: &str) -> bool {
    let number = release.strip_prefix("6.1.0-").and_then(|rest| rest.strip_suffix("-amd64"));
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The image is the one that is built together with the headers. The signed one is uploaded days
/// later, and only a firmware that checks signatures asks for it.
fn packages_of(release: &str, version: &str) -> Vec<String> {
    let common = release.replace(FLAVOUR, "common");
    [
        format!("linux-image-{release}-unsigned={version}"),
        format!("linux-headers-{release}={version}"),
        format!("linux-headers-{common}={version}"),
        format!("linux-kbuild-6.1={version}"),
    ]
    .into()
}

fn files_ending(directory: &Path, suffix: &str) -> Result<Vec<PathBuf>, String> {
    let listing = fs::read_dir(directory)
        .map_err(|error| format!("cannot list {}: {error}", directory.display()))?;
    let paths = listing.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths.filter(|path| path.to_string_lossy().ends_with(suffix)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "Package: linux-headers-6.1.0-56-cloud-amd64\nVersion: 6.1.192-2\n\n\
        Package: linux-headers-6.1.0-55-amd64\nSource: linux\nVersion: 6.1.192-1\n\n\
        Package: linux-headers-6.1.0-56-amd64\nSource: linux\nVersion: 6.1.192-2\n";

    #[test]
    fn the_release_is_that_of_the_very_same_version() {
        assert_eq!(release_in(LISTING, "6.1.192-2").as_deref(), Some("6.1.0-56-amd64"));
        assert_eq!(release_in(LISTING, "6.1.192-1").as_deref(), Some("6.1.0-55-amd64"));
        assert_eq!(release_in(LISTING, "6.1.190-1"), None);
    }

    #[test]
    fn all_packages_are_pinned_to_the_version() {
        let packages = packages_of("6.1.0-56-amd64", "6.1.192-2");
        assert_eq!(packages[0], "linux-image-6.1.0-56-amd64-unsigned=6.1.192-2");
        assert_eq!(packages[2], "linux-headers-6.1.0-56-common=6.1.192-2");
        assert!(packages.iter().all(|package| package.ends_with("=6.1.192-2")));
    }
}
