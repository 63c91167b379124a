//! Which directories a job needs to be shown: its project, and the directories that its command
//! line names.
//!
//! A project is the directory of the version control system above, or without one the highest
//! directory, going up without a gap, that has a build file in it. Everything else that a compiler
//! asks for sends the job home.

use crate::args::Job;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// What a version control system leaves at the top.
const TOPS: &[&str] = &[".git", ".hg", ".svn", ".bzr", "_darcs", ".jj"];

/// What build tools leave in directories.
const BUILD_FILES: &[&str] = &[
    "Makefile",
    "makefile",
    "GNUmakefile",
    "CMakeLists.txt",
    "configure",
    "meson.build",
    "build.ninja",
    "CMakeCache.txt",
    "BUILD",
    "BUILD.bazel",
    "SConstruct",
    "wscript",
    "Jamroot",
    "Kbuild",
];

/// Directories whose projects are known: a build asks for the same again and again.
const KNOWN_MAX: usize = 4096;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Roots {
    projects: HashMap<PathBuf, PathBuf>,
}

impl Roots {
    /// The directories that `job` needs to be shown, as absolute paths without `.` and `..`.
    pub(crate) fn of(&mut self, job: &Job) -> Vec<PathBuf> {
        let source = plain(&job.absolute(&job.source));
        let mut roots = vec![self.project(&plain(&job.cwd))];
        let mut add = |root: PathBuf| {
            if !roots.iter().any(|known| root.starts_with(known)) {
                roots.push(root);
            }
        };
        if let Some(directory) = source.parent() {
            add(self.project(directory));
        }
        for directory in &job.directories {
            add(plain(&job.absolute(&directory.path)));
        }
        for file in &job.files {
            add(plain(&job.absolute(file)).parent().map_or_else(PathBuf::new, Path::to_path_buf));
        }
        roots.retain(|root| root.parent().is_some());
        roots
    }

    fn project(&mut self, directory: &Path) -> PathBuf {
        if let Some(known) = self.projects.get(directory) {
            return known.clone();
        }
        let found = project_of(directory);
        if self.projects.len() >= KNOWN_MAX {
            self.projects.clear();
        }
        self.projects.insert(directory.to_path_buf(), found.clone());
        found
    }
}

fn project_of(directory: &Path) -> PathBuf {
    let holds = |at: &Path, names: &[&str]| names.iter().any(|name| at.join(name).exists());
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let inside = |at: &&Path| at.parent().is_some() && Some(*at) != home.as_deref();
    let above = || directory.ancestors().take_while(inside);
    if let Some(top) = above().find(|at| holds(at, TOPS)) {
        return top.to_path_buf();
    }
    let built = above().skip(1).take_while(|at| holds(at, BUILD_FILES)).last();
    built.unwrap_or(directory).to_path_buf()
}

/// `path` without `.` and `..`, as words: links are not looked at, the export does that.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Directory, Language, Role};
    use std::fs;

    /// A tree of files in a directory of its own, gone at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[&str]) -> Self {
            let at = std::env::temp_dir().join(format!("roots-{name}-{}", std::process::id()));
            for file in files {
                let path = at.join(file);
                fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
                fs::write(path, "").expect("a file");
            }
            Self(at)
        }

        fn job(&self, cwd: &str, source: &str, includes: &[&str]) -> Job {
            let role = Role::Include;
            Job {
                compiler: "/usr/bin/cc".into(),
                argv: Vec::new(),
                cwd: self.0.join(cwd),
                env: Vec::new(),
                path: "/usr/bin".into(),
                umask: 0o022,
                source: source.into(),
                language: Language::C,
                outputs: Vec::new(),
                directories: includes
                    .iter()
                    .map(|at| Directory { path: at.into(), role })
                    .collect(),
                files: Vec::new(),
            }
        }

        fn roots(&self, job: &Job) -> Vec<String> {
            let roots = Roots::default().of(job).into_iter();
            let short = |root: PathBuf| match root.strip_prefix(&self.0) {
                Ok(inside) => inside.display().to_string(),
                Err(_) => root.display().to_string(),
            };
            roots.map(short).collect()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_version_control_systems_directory_is_the_project() {
        let tree = Tree::new("vcs", &["p/.git/HEAD", "p/src/Makefile", "p/src/deep/a.c"]);
        let job = tree.job("p/src", "deep/a.c", &["../include"]);
        assert_eq!(tree.roots(&job), ["p"]);
    }

    #[test]
    fn without_one_it_is_the_highest_directory_with_build_files() {
        let files = ["q/Makefile", "q/src/Makefile", "q/src/a.c", "elsewhere/x.h"];
        let tree = Tree::new("make", &files);
        let job = tree.job("q/src", "a.c", &["../../elsewhere", "../deps/lua"]);
        assert_eq!(tree.roots(&job), ["q", "elsewhere"]);
    }

    #[test]
    fn a_directory_without_either_stands_for_itself() {
        let tree = Tree::new("bare", &["work/src/a.c", "out/x"]);
        let job = tree.job("out", "../work/src/a.c", &["/usr/include"]);
        assert_eq!(tree.roots(&job), ["out", "work/src", "/usr/include"]);
    }

    #[test]
    fn the_root_of_everything_is_nobodys_project() {
        let tree = Tree::new("slash", &["a.c"]);
        let job = tree.job("", "a.c", &["/"]);
        assert_eq!(tree.roots(&job), [""]);
    }
}
