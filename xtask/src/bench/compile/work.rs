//! The compiled sources: Redis with its bundled libraries, and one C++ file with 200 headers.
//!
//! Every job is started in the project's root and names its source relative to it, so that two
//! sources of one name can be distinguished even where only the first line of preprocessed text is
//! known.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::sources::REDIS;

/// Directories of C that are compiled, and files in them that are left out because they are
/// included by other files, a separate program, or for other systems; also `rax.c`, which includes
/// a file named by a macro, because nocc cannot compile it.
const DIRECTORIES: &[(&str, &[&str])] = &[
    ("src", &["ae_epoll.c", "ae_evport.c", "ae_kqueue.c", "ae_select.c", "rax.c"]),
    ("deps/lua/src", &[]),
    ("deps/hiredis", &["ssl.c", "test.c"]),
    ("deps/linenoise", &["example.c"]),
];
/// The options of Redis's own makefile, without those for warnings.
const OPTIONS: &[&str] = &[
    "-std=gnu11",
    "-w",
    "-DREDIS_STATIC=",
    "-Ideps/hiredis",
    "-Ideps/linenoise",
    "-Ideps/lua/src",
    "-Ideps/hdr_histogram",
];
const LEVELS: [&str; 2] = ["-O2", "-O3"];

/// A header that a script of Redis generates, here without a date.
const RELEASE: &str = "#define REDIS_GIT_SHA1 \"00000000\"\n#define REDIS_GIT_DIRTY \"0\"\n\
                       #define REDIS_BUILD_ID \"benchmark\"\n";

/// The file with many headers, below the project's root.
const WIDE: &str = "wide/wide.cc";
/// The headers that it includes; they include the rest.
const WIDE_HEADERS: &[&str] =
    &["algorithm", "functional", "iostream", "map", "memory", "string", "unordered_map", "vector"];
const WIDE_BODY: &str = "
int main(int count, char **words) {
    std::map<std::string, std::vector<int>> places;
    for (int i = 0; i < count; i++) places[words[i]].push_back(i);
    std::unordered_map<int, std::unique_ptr<std::string>> names;
    std::function<void(int)> name = [&](int i) {
        names[i] = std::make_unique<std::string>(words[i]);
    };
    for (auto &[word, at] : places) {
        std::sort(at.begin(), at.end());
        std::for_each(at.begin(), at.end(), name);
        std::cout << word << ' ' << *names[at.front()] << '\\n';
    }
}
";

/// One compilation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// The compiler's name.
    pub(super) compiler: &'static str,
    /// Relative to the project's root.
    pub(super) source: String,
    /// Everything but source and object.
    options: Vec<&'static str>,
}

impl Job {
    /// The arguments after the compiler's name that make `object`.
    pub(super) fn words(&self, object: &str) -> Vec<String> {
        let mut words: Vec<String> = self.options.iter().map(|&option| option.to_owned()).collect();
        words.extend(["-c", &self.source, "-o", object].map(str::to_owned));
        words
    }

    /// The name of its record.
    pub(super) fn key(&self) -> Result<OsString> {
        let words: Vec<OsString> = self.words("a.o").into_iter().map(OsString::from).collect();
        let command = outboard_stand_in::command::Command::parse(&words);
        let command = command.with_context(|| format!("{words:?} compiles nothing"))?;
        Ok(command.key(Path::new(&self.source)))
    }
}

/// Puts the sources to be compiled into `root`.
pub(super) fn make_project(root: &Path) -> Result<()> {
    REDIS.copy_to(root)?;
    fs::write(root.join("src/release.h"), RELEASE)?;
    let wide = root.join(WIDE);
    fs::create_dir_all(wide.parent().unwrap_or(root))?;
    let headers: String = WIDE_HEADERS.iter().map(|name| format!("#include <{name}>\n")).collect();
    fs::write(wide, headers + WIDE_BODY)?;
    Ok(())
}

/// The version of Redis in the project.
pub(super) fn redis_version(root: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join("src/version.h"))?;
    let version = text.split('"').nth(1).context("src/version.h names no version")?;
    Ok(version.to_owned())
}

/// All of Redis, once with each level of optimisation.
pub(super) fn redis(root: &Path) -> Result<Vec<Job>> {
    let mut sources = Vec::new();
    for (directory, left_out) in DIRECTORIES {
        sources.extend(in_directory(root, directory, left_out)?);
    }
    let job = |level, source: &String| {
        let options = [level, "-g"].into_iter().chain(OPTIONS.iter().copied()).collect();
        Job { compiler: "gcc", source: source.clone(), options }
    };
    Ok(LEVELS.iter().flat_map(|level| sources.iter().map(|source| job(level, source))).collect())
}

/// The C++ file.
pub(super) fn wide() -> Job {
    Job { compiler: "g++", source: WIDE.to_owned(), options: vec!["-O2", "-g", "-std=gnu++17"] }
}

fn in_directory(root: &Path, directory: &str, left_out: &[&str]) -> Result<Vec<String>> {
    let path = root.join(directory);
    let entries = fs::read_dir(&path);
    let entries = entries.with_context(|| format!("cannot list {}", path.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let wanted = |name: &String| name.ends_with(".c") && !left_out.contains(&name.as_str());
    let mut sources: Vec<String> =
        names.filter(wanted).map(|name| format!("{directory}/{name}")).collect();
    sources.sort();
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_one_source_have_different_records() {
        let root = std::env::temp_dir().join(format!("outboard-work-{}", std::process::id()));
        for (directory, left_out) in DIRECTORIES {
            fs::create_dir_all(root.join(directory)).unwrap();
            for name in left_out.iter().chain(&["sds.c", "sds.h"]) {
                fs::write(root.join(directory).join(name), "").unwrap();
            }
        }
        let jobs = redis(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        let mut keys: Vec<OsString> = jobs.iter().map(|job| job.key().unwrap()).collect();
        assert_eq!(keys[0], "src%sds.c -O2 -g -std=gnu11");
        keys.sort();
        keys.dedup();
        assert_eq!((jobs.len(), keys.len()), (8, 8));
    }
}
