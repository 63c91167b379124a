//! What is built: three versions of Lua, whose C sources cargo's registry has.
//!
//! cargo fetches and checks them; nothing of the package is built or run by it.

use super::{Guide, Trouble};
use serde_json::Value;
use std::env;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A package that depends on the sources and has no content.
const MANIFEST: &str = include_str!("project/manifest.toml");
const PACKAGE: &str = "lua-src";
const VERSIONS: [&str; 3] = ["lua-5.3.6", "lua-5.4.8", "lua-5.5.0"];
/// How long a network may take.
const FETCH_MAX: Duration = Duration::from_secs(90);
/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// The version whose objects are linked at the end.
const LINKED: &str = "lua-5.4.8";
const MAIN: &str = include_str!("project/main.c");

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Project {
    /// The directory of all of it; builds run there.
    pub(super) directory: PathBuf,
    /// C files, by their path in it.
    pub(super) sources: Vec<PathBuf>,
    /// Bytes of all files.
    pub(super) bytes: u64,
}

impl Project {
    pub(super) fn fetch(guide: &Guide) -> Result<Self, Trouble> {
        let package = package(guide)?;
        let directory = guide.place.directory("project")?;
        let mut project = Self { directory, sources: Vec::new(), bytes: 0 };
        for version in VERSIONS {
            project.take(&package, version).map_err(|error| {
                Trouble::failed("the sources from cargo's registry are not as they were", error)
            })?;
        }
        project.sources.sort();
        fs::write(project.directory.join("main.c"), MAIN)?;
        Ok(project)
    }

    /// Copies the sources of one version: directories that are hidden, as cargo's is, are not shown
    /// to servers.
    fn take(&mut self, package: &Path, version: &str) -> io::Result<()> {
        fs::create_dir_all(self.directory.join(version))?;
        for entry in fs::read_dir(package.join(version))? {
            let name = PathBuf::from(version).join(entry?.file_name());
            self.bytes += fs::copy(package.join(&name), self.directory.join(&name))?;
            if name.extension().is_some_and(|kind| kind == "c") {
                self.sources.push(name);
            }
        }
        Ok(())
    }

    /// The command that links the objects in the directory `objects`.
    pub(super) fn link(&self, objects: &Path) -> Vec<String> {
        let word = |path: &Path| path.display().to_string();
        let own = self.sources.iter().filter(|source| source.starts_with(LINKED));
        let mut words: Vec<String> = ["-o", "lua-tour", "-I", LINKED].map(str::to_owned).into();
        words.push("main.c".into());
        words.extend(own.map(|source| word(&objects.join(source).with_extension("o"))));
        words.push("-lm".into());
        words
    }
}

/// Where cargo has unpacked the package.
fn package(guide: &Guide) -> Result<PathBuf, Trouble> {
    let directory = guide.place.directory("fetch")?;
    fs::write(directory.join("Cargo.toml"), MANIFEST)?;
    fs::write(directory.join("empty.rs"), "")?;
    let said = match metadata(guide, &directory, &["--offline"]) {
        Err(Trouble::LeftOut(_)) => metadata(guide, &directory, &[])?,
        said => said?,
    };
    let said: Value = serde_json::from_slice(&said).unwrap_or_default();
    let mut packages = said["packages"].as_array().into_iter().flatten();
    let package = packages.find(|package| package["name"] == PACKAGE);
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    let manifest = manifest.and_then(|path| Path::new(path).parent());
    manifest.map(Path::to_path_buf).ok_or_else(|| {
        Trouble::LeftOut("`cargo metadata` does not say where the sources are".into())
    })
}

/// What `cargo metadata` prints; it fetches what is not there.
fn metadata(guide: &Guide, directory: &Path, words: &[&str]) -> Result<Vec<u8>, Trouble> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let (out, errors) = (directory.join("said"), directory.join("errors"));
    let mut child = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--color=never"])
        .args(words)
        .current_dir(directory)
        .env("CARGO_NET_RETRY", "1")
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out)?)
        .stderr(fs::File::create(&errors)?)
        .spawn()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => Trouble::LeftOut(
                "cargo is not in PATH, and it fetches the sources: install Rust, \
                 https://rustup.rs"
                    .into(),
            ),
            _ => Trouble::left_out("cargo", error),
        })?;
    let limit = Instant::now() + FETCH_MAX;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if guide.is_over() || Instant::now() > limit {
            child.kill()?;
            break child.wait()?;
        }
        std::thread::sleep(LOOK);
    };
    guide.goes_on()?;
    if status.success() {
        return Ok(fs::read(out)?);
    }
    let said = fs::read_to_string(errors)?;
    let said = said.lines().rfind(|line| !line.trim().is_empty());
    Err(Trouble::LeftOut(format!(
        "cargo cannot fetch {PACKAGE} from its registry ({}): connect this machine to the network, \
         or give cargo a mirror",
        said.map_or("it takes too long", str::trim)
    )))
}
