//! The directories that are exported for a job: its project, and those that its command line names.
//!
//! A project is the nearest directory above that is under version control; without one, the highest
//! directory that can be reached by going up through directories that each have a build file. If
//! the compiler uses a file elsewhere, the job runs locally.

use crate::args::{DirectoryRole, Job};
use outboard_unix::names::without_dots;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Names at the top of a tree that is under version control.
const TOPS: &[&str] = &[".git", ".hg", ".svn", ".bzr", "_darcs", ".jj"];

/// Names of build files.
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

/// Directories whose projects are remembered, at most: a build asks for the same ones repeatedly.
const KNOWN_MAX: usize = 4096;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct JobRoots {
    projects: HashMap<PathBuf, PathBuf>,
}

impl JobRoots {
    /// The directories to export for `job`, as absolute paths without `.` and `..`.
    pub(crate) fn of(&mut self, job: &Job) -> Vec<PathBuf> {
        let source = without_dots(&job.absolute(&job.source));
        let mut roots = vec![self.project(&without_dots(&job.cwd))];
        let mut add = |root: PathBuf| {
            if !roots.iter().any(|known| root.starts_with(known)) {
                roots.push(root);
            }
        };
        if let Some(directory) = source.parent() {
            add(self.project(directory));
        }
        let headers = |role| !matches!(role, DirectoryRole::Shown | DirectoryRole::Libraries);
        for directory in job.directories.iter().filter(|at| headers(at.role)) {
            add(without_dots(&job.absolute(&directory.path)));
        }
        for file in &job.files {
            add(without_dots(&job.absolute(file))
                .parent()
                .map_or_else(PathBuf::new, Path::to_path_buf));
        }
        roots.retain(|root| root.parent().is_some());
        roots
    }

    /// The project of a directory. Looks at the file system the first time.
    pub(crate) fn project(&mut self, directory: &Path) -> PathBuf {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Language, NamedDirectory};
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
            let role = DirectoryRole::Include;
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
                    .map(|at| NamedDirectory { path: at.into(), role })
                    .collect(),
                files: Vec::new(),
            }
        }

        fn roots(&self, job: &Job) -> Vec<String> {
            let roots = JobRoots::default().of(job).into_iter();
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
    fn a_directory_without_either_is_its_own_project() {
        let tree = Tree::new("bare", &["work/src/a.c", "out/x"]);
        let job = tree.job("out", "../work/src/a.c", &["/usr/include"]);
        assert_eq!(tree.roots(&job), ["out", "work/src", "/usr/include"]);
    }

    #[test]
    fn the_root_directory_is_no_project() {
        let tree = Tree::new("slash", &["a.c"]);
        let job = tree.job("", "a.c", &["/"]);
        assert_eq!(tree.roots(&job), [""]);
    }
}
