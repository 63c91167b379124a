//! Finds the real compiler: the first program of the called name in `PATH` that is neither this
//! program nor a wrapper that would call it again.
//!
//! Resolves names and runs nothing.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Wrappers that are called through links with compilers' names, and search `PATH` for the real
/// compiler themselves: they could find this program again.
const STAND_INS: &[&str] =
    &["outboard-cc", "ccache", "sccache", "distcc", "icecc", "icecream", "fastbuild"];
/// The compiler of a call that names none, as with distcc.
const DEFAULT: &str = "cc";
/// Extensions of sources and objects: a word that has one is no compiler's name.
const FILE_ENDINGS: &[&str] = &[
    "c", "i", "cc", "cp", "cxx", "cpp", "CPP", "c++", "C", "ii", "m", "mm", "M", "S", "sx", "s",
    "o", "a", "so",
];
/// Where the C library looks for programs if there is no `PATH` (confstr(3), `_CS_PATH`).
pub const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// Links that are followed from a compiler's name, at most.
const LINKS_MAX: usize = 16;

/// A call of the wrapper, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrapperCall {
    /// The compiler's name or path, as called.
    pub name: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl WrapperCall {
    /// Parses `argv`, which begins with the name by which the wrapper was called. If that is a
    /// link's name, it names the compiler; otherwise see [`WrapperCall::of_words`]. `None` if there
    /// is no word.
    #[must_use]
    pub fn of(argv: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut words = argv.into_iter();
        let own = words.next()?;
        if is_own_name(&own) {
            return Self::of_words(words);
        }
        Some(Self { name: base(&own).to_owned(), arguments: words.collect() })
    }

    /// The first word names the compiler; if it is an option or a file, the compiler is `cc`. This
    /// program's own name is passed over: a build that sets both a launcher and a compiler names it
    /// twice. `None` if there is no word.
    #[must_use]
    pub fn of_words(words: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut words = words.into_iter().skip_while(|word| is_own_name(word)).peekable();
        let first = words.peek()?;
        let name = if is_argument(first) { DEFAULT.into() } else { words.next()? };
        Some(Self { name, arguments: words.collect() })
    }
}

/// Where this process's programs are: `PATH`, or [`DEFAULT_PATH`] without that variable.
#[must_use]
pub fn search_path() -> OsString {
    env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into())
}

/// A search for the real compiler.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// The variable `PATH`.
    pub path: &'a OsStr,
    /// This program's file, by any of its names.
    pub own: &'a Path,
    /// The real compiler that has called this wrapper: it is passed over, too.
    pub caller: Option<&'a OsStr>,
}

impl Search<'_> {
    /// The real compiler behind `name`. A path stays as it is unless it leads to this program.
    #[must_use]
    pub fn find(&self, name: &OsStr) -> Option<PathBuf> {
        let given = Path::new(name);
        if name.as_bytes().contains(&b'/') && !self.leads_here(given) {
            return Some(given.to_owned());
        }
        let name = given.file_name()?;
        // Called by its own name, a wrapper does not look for a compiler of that name.
        let is_wanted = |file: &PathBuf| is_stand_in(name) || !leads_to_stand_in(file);
        self.programs(name).find(|file| !self.leads_here(file) && is_wanted(file))
    }

    /// The name by which the real compiler is run: as called, if it finds itself in `PATH` by that
    /// name, or else its path. Compilers look for their parts beside the program of their name.
    #[must_use]
    pub fn called<'a>(&self, name: &'a OsStr, compiler: &'a Path) -> &'a OsStr {
        let is_name = !name.as_bytes().contains(&b'/');
        let is_it = is_name && self.programs(name).next().is_some_and(|file| file == compiler);
        if is_it { name } else { compiler.as_os_str() }
    }

    /// The programs of a name in `PATH`.
    fn programs(&self, base: &OsStr) -> impl Iterator<Item = PathBuf> {
        let directories = self.path.as_bytes().split(|byte| *byte == b':');
        // An empty entry is the current directory.
        directories
            .map(|dir| Path::new(OsStr::from_bytes(if dir.is_empty() { b"." } else { dir })))
            .map(move |dir| dir.join(base))
            .filter(|file| is_program(file))
    }

    fn leads_here(&self, file: &Path) -> bool {
        if self.caller == Some(file.as_os_str()) {
            return true;
        }
        match (fs::metadata(file), fs::metadata(self.own)) {
            (Ok(file), Ok(own)) => (file.dev(), file.ino()) == (own.dev(), own.ino()),
            _ => false,
        }
    }
}

/// Whether the wrapper was called by its own name, and not by a link's.
pub(crate) fn is_own_name(called: &OsStr) -> bool {
    base(called) == "outboard-cc"
}

fn base(called: &OsStr) -> &OsStr {
    Path::new(called).file_name().unwrap_or(called)
}

fn is_argument(word: &OsStr) -> bool {
    let extension = Path::new(word).extension();
    matches!(word.as_bytes(), [b'-' | b'@', ..])
        || FILE_ENDINGS.iter().any(|ending| extension == Some(OsStr::new(ending)))
}

fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
}

fn leads_to_stand_in(file: &Path) -> bool {
    let mut file = file.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&file) else { break };
        file = file.parent().unwrap_or(&file).join(target);
    }
    file.file_name().is_some_and(is_stand_in)
}

fn is_stand_in(name: &OsStr) -> bool {
    STAND_INS.iter().any(|stand_in| name == *stand_in)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_compiler_is_the_first_word_or_the_name_of_the_link() {
        let call = |name: &str, rest: &str| {
            Some(WrapperCall { name: name.into(), arguments: words(rest) })
        };
        assert_eq!(WrapperCall::of(words("outboard-cc gcc -c x.c")), call("gcc", "-c x.c"));
        assert_eq!(WrapperCall::of(words("/a/outboard-cc /b/gcc -c")), call("/b/gcc", "-c"));
        assert_eq!(WrapperCall::of(words("/links/g++ -c x.cc")), call("g++", "-c x.cc"));
        assert_eq!(WrapperCall::of(words("outboard-cc")), None);
        assert_eq!(WrapperCall::of(words("outboard-cc -E x.c")), call("cc", "-E x.c"));
        assert_eq!(WrapperCall::of(words("/a/outboard-cc x.c -c")), call("cc", "x.c -c"));
        assert_eq!(WrapperCall::of(words("outboard-cc @words")), call("cc", "@words"));
        assert_eq!(WrapperCall::of(words("outboard-cc g++-12.2 x.cc")), call("g++-12.2", "x.cc"));
        assert_eq!(
            WrapperCall::of(words("outboard-cc outboard-cc gcc -c x.c")),
            call("gcc", "-c x.c")
        );
        assert_eq!(
            WrapperCall::of(words("outboard-cc /a/outboard-cc -c x.c")),
            call("cc", "-c x.c")
        );
        assert_eq!(WrapperCall::of(words("outboard-cc outboard-cc")), None);
        assert_eq!(WrapperCall::of([]), None);
    }

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir();
            let dir = dir.join(format!("outboard-real-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir(&dir).unwrap();
            Self(dir)
        }

        fn program(&self, name: &str) -> PathBuf {
            let file = self.0.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, name).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            file
        }

        fn link(&self, name: &str, target: &str) -> PathBuf {
            let file = self.0.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            symlink(target, &file).unwrap();
            file
        }

        fn find(&self, name: &OsStr, caller: Option<&OsStr>) -> Option<PathBuf> {
            let dirs = ["links", "cache", "plain", "last"].map(|dir| self.0.join(dir));
            let path = std::env::join_paths(dirs).unwrap();
            Search { path: &path, own: &self.0.join("bin/outboard-cc"), caller }.find(name)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_first_of_the_name_that_is_no_wrapper_is_found() {
        let tree = Tree::new("next");
        tree.program("bin/outboard-cc");
        tree.program("bin/ccache");
        let link = tree.link("links/gcc", "../bin/outboard-cc");
        tree.link("cache/gcc", "../bin/ccache");
        let real = tree.program("last/gcc");
        assert_eq!(tree.find(OsStr::new("gcc"), None), Some(real.clone()));
        assert_eq!(tree.find(link.as_os_str(), None), Some(real.clone()));
        assert_eq!(tree.find(real.as_os_str(), None), Some(real.clone()));
        let script = tree.program("plain/gcc");
        assert_eq!(tree.find(OsStr::new("gcc"), None), Some(script.clone()));
        assert_eq!(tree.find(OsStr::new("gcc"), Some(script.as_os_str())), Some(real));
        assert_eq!(tree.find(OsStr::new("g++"), None), None);
    }

    #[test]
    fn another_wrapper_that_is_called_by_its_own_name_is_found() {
        let tree = Tree::new("ccache");
        tree.program("bin/outboard-cc");
        tree.link("links/ccache", "../bin/outboard-cc");
        let ccache = tree.program("plain/ccache");
        assert_eq!(tree.find(OsStr::new("ccache"), None), Some(ccache));
    }

    #[test]
    fn a_compiler_is_called_by_a_name_that_finds_it() {
        let tree = Tree::new("called");
        let called = |name: &str, compiler: &Path| {
            let path = std::env::join_paths(["links", "last"].map(|dir| tree.0.join(dir)));
            let search = Search { path: &path.unwrap(), own: &tree.0.join("own"), caller: None };
            search.called(OsStr::new(name), compiler).to_owned()
        };
        let real = tree.program("last/gcc");
        assert_eq!(called("gcc", &real), "gcc");
        assert_eq!(called("/bin/gcc", &real), real);
        tree.link("links/gcc", "../bin/outboard-cc");
        assert_eq!(called("gcc", &real), "gcc", "a link that leads nowhere");
        tree.program("bin/outboard-cc");
        assert_eq!(called("gcc", &real), real, "it would look for its parts beside the wrapper");
    }

    #[test]
    fn a_file_that_cannot_be_executed_is_no_compiler() {
        let tree = Tree::new("run");
        tree.program("bin/outboard-cc");
        let file = tree.program("plain/gcc");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        fs::create_dir_all(tree.0.join("cache/gcc")).unwrap();
        assert_eq!(tree.find(OsStr::new("gcc"), None), None);
    }

    #[test]
    fn links_in_a_circle_end() {
        let tree = Tree::new("circle");
        tree.link("a", "b");
        tree.link("b", "a");
        assert!(!leads_to_stand_in(&tree.0.join("a")));
    }
}
