//! Command lines that builds use, and random words.

use super::table::{OPTIONS, Shape};
use super::*;
use proptest::prelude::*;
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

fn call(line: &str) -> CompilerCall {
    let argv: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    CompilerCall {
        compiler: PathBuf::from(&argv[0]),
        argv,
        cwd: "/src".into(),
        ..CompilerCall::default()
    }
}

fn plan(line: &str) -> Result<Job, Reason> {
    match classify(call(line)) {
        Classification::Remote(job) => Ok(*job),
        Classification::Local(reason) => Err(reason),
    }
}

fn remote(line: &str) -> Job {
    plan(line).unwrap_or_else(|reason| panic!("{line}: {reason}"))
}

fn local(call: CompilerCall) -> Reason {
    match classify(call) {
        Classification::Local(reason) => reason,
        Classification::Remote(job) => panic!("{job:?}"),
    }
}

#[test]
fn command_lines_go_where_their_table_says() {
    let mut wrong = Vec::new();
    let lines = include_str!("lines.txt").lines().filter(|line| !line.starts_with('#'));
    for line in lines {
        let (expected, line) = line.split_once(" | ").unwrap();
        let found = match plan(line) {
            Ok(job) => {
                let paths = job.outputs.iter().map(|output| output.path().to_str().unwrap());
                format!("remote {}", paths.collect::<Vec<_>>().join(" "))
            }
            Err(reason) => format!("local {}", reason.cause.text()),
        };
        if found != expected {
            wrong.push(format!("{expected} but {found} | {line}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_job_has_its_words_as_they_are_and_what_they_name() {
    let line = "gcc -std=c11 -I../inc -isystem sys -iquote q -idirafter after --sysroot=/root \
                -include a.h -imacros b.h -MMD -o out/a.o -c dir/a.c";
    let job = remote(line);
    assert_eq!(job.argv, call(line).argv);
    assert_eq!((job.source.as_path(), job.language), (Path::new("dir/a.c"), Language::C));
    assert_eq!(job.compiler, Path::new("/src/gcc"));
    assert_eq!(
        job.outputs,
        [Output::Object("out/a.o".into()), Output::Dependencies("out/a.d".into())]
    );
    let directories: Vec<_> =
        job.directories.iter().map(|dir| (dir.path.to_str().unwrap(), dir.role)).collect();
    let expected = [
        ("../inc", DirectoryRole::Include),
        ("sys", DirectoryRole::System),
        ("q", DirectoryRole::Quote),
        ("after", DirectoryRole::After),
        ("/root", DirectoryRole::Root),
    ];
    assert_eq!(directories, expected);
    assert_eq!(job.files, [Path::new("a.h"), Path::new("b.h")]);
    assert_eq!(job.absolute(job.object()), Path::new("/src/out/a.o"));
    assert_eq!(job.name(), "a.c");
}

#[test]
fn a_reason_names_the_word_at_fault() {
    assert_eq!(plan("gcc -c a.c -march=native").unwrap_err().word, "-march=native");
    assert_eq!(plan("gcc -c a.c -fnew").unwrap_err().to_string(), "has an unknown option: -fnew");
    let long = format!("gcc -c a.c -f{}", "é".repeat(200));
    assert!(plan(&long).unwrap_err().word.len() <= 400);
}

#[test]
fn compilers_are_told_by_their_names() {
    for name in ["gcc", "g++-12", "x86_64-linux-gnu-gcc-12", "clang++", "clang-15", "cc"] {
        assert!(is_compiler(name.as_ref()), "{name}");
    }
    for name in ["gccgo", "gcc-ar", "gcov", "ccache", "clang-format", "xgcc", "12", ""] {
        assert!(!is_compiler(name.as_ref()), "{name}");
    }
}

#[test]
fn languages_follow_name_option_and_driver() {
    let language = |line: &str| remote(line).language;
    assert_eq!(language("g++ -c a.c"), Language::Cxx);
    assert_eq!(language("gcc -c a.i"), Language::PreprocessedC);
    assert_eq!(language("g++ -c a.i"), Language::PreprocessedCxx);
    assert_eq!(language("gcc -c a.C"), Language::Cxx);
    assert_eq!(language("g++ -c a.S"), Language::AssemblyWithMacros);
    assert_eq!(language("gcc -x assembler -c a.c"), Language::Assembly);
    assert_eq!(language("gcc -x c++ -x none -c a.c"), Language::C);
}

#[test]
fn colour_is_asked_for_when_the_compiler_would_use_it_here() {
    let with = |line: &str, env: &[(&str, &str)]| {
        let env = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let Classification::Remote(job) =
            classify(CompilerCall { terminal: true, env, ..call(line) })
        else {
            panic!("{line}")
        };
        job.argv.iter().any(|word| word == "-fdiagnostics-color=always")
    };
    assert!(with("gcc -c a.c", &[("TERM", "xterm")]));
    assert!(!with("gcc -c a.c", &[("TERM", "dumb")]));
    assert!(!with("gcc -c a.c", &[("GCC_COLORS", "")]));
    assert!(!with("gcc -c a.c -fdiagnostics-color=never", &[]));
    assert!(!with("gcc -c a.c -fno-diagnostics-color", &[]));
    assert!(!with("gcc -c a.c -frecord-gcc-switches", &[]));
    assert!(!remote("gcc -c a.c").argv.iter().any(|word| word == "-fdiagnostics-color=always"));
}

#[test]
fn variables_go_along_stay_or_keep_the_job() {
    let with = |name: &str, value: &str| {
        classify(CompilerCall { env: vec![(name.into(), value.into())], ..call("gcc -c a.c") })
    };
    for name in ["LANG", "LC_ALL", "SOURCE_DATE_EPOCH", "GCC_COLORS"] {
        let Classification::Remote(job) = with(name, "x") else { panic!("{name}") };
        assert_eq!(job.env.len(), 1, "{name}");
    }
    for name in ["LIBRARY_PATH", "CLANG_MODULE_CACHE_PATH", "HOME"] {
        let Classification::Remote(job) = with(name, "x") else { panic!("{name}") };
        assert_eq!(job.env.len(), 0, "{name}");
    }
    for name in [
        "COMPILER_PATH",
        "GCC_EXEC_PREFIX",
        "DEPENDENCIES_OUTPUT",
        "COLLECT_GCC",
        "LD_PRELOAD",
        "LD_AUDIT",
        "CC_PRINT_HEADERS",
        "CC_PRINT_HEADERS_FILE",
        "CC_LOG_DIAGNOSTICS",
        "CC_LOG_DIAGNOSTICS_FILE",
        "TZDIR",
    ] {
        let Classification::Local(reason) = with(name, "x") else { panic!("{name}") };
        assert_eq!((reason.cause, &*reason.word), (Cause::Environment, name));
    }
    let Classification::Remote(job) = with("CPATH", "/a::b") else { panic!() };
    let paths: Vec<_> = job.directories.iter().map(|dir| dir.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["/a", ".", "b"]);
    for (name, roles) in [
        ("LD_LIBRARY_PATH", vec![DirectoryRole::Libraries; 3]),
        ("OUTBOARD_CC_SHOW", vec![DirectoryRole::Shown; 2]),
    ] {
        let Classification::Remote(job) = with(name, "/a::b") else { panic!("{name}") };
        assert_eq!(job.directories.iter().map(|at| at.role).collect::<Vec<_>>(), roles);
        assert_eq!(job.env.len(), 0, "{name}");
    }
}

#[test]
fn response_files_count_as_their_words() {
    let dir = std::env::temp_dir().join(format!("outboard-args-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("words"), "-I\"a b\" -MD -o x.o -c a.c").unwrap();
    let job = match classify(CompilerCall { cwd: dir.clone(), ..call("gcc @words") }) {
        Classification::Remote(job) => job,
        Classification::Local(reason) => panic!("{reason}"),
    };
    assert_eq!(job.argv, ["gcc", "@words"]);
    assert_eq!(job.files, [Path::new("words")]);
    assert_eq!(job.directories[0].path, Path::new("a b"));
    std::fs::write(dir.join("words"), "-c a.c -march=native").unwrap();
    let reason = local(CompilerCall { cwd: dir.clone(), ..call("gcc @words") });
    assert_eq!(reason.cause, Cause::Native);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_call_is_called_by_what_it_makes() {
    let name = |line: &str| call(line).name();
    assert_eq!(name("gcc -O2 -c src/a.c -o a.o"), "a.c");
    assert_eq!(name("gcc -c a.c -o b.o -Wall"), "a.c");
    assert_eq!(name("gcc -o bin/prog a.o b.o"), "prog");
    assert_eq!(name("/usr/bin/gcc --version"), "gcc");
}

#[test]
fn no_option_has_two_rows_and_every_row_is_found() {
    let mut names = HashSet::new();
    for opt in OPTIONS {
        assert!(names.insert((opt.name, opt.shape == Shape::Joined)), "{} stands twice", opt.name);
        let word = match opt.shape {
            Shape::Joined => format!("{}x", opt.name),
            _ => opt.name.to_owned(),
        };
        let found = table::find(word.as_bytes()).map(|found| found.name.len());
        assert!(found >= Some(opt.name.len()), "{word} does not find its row");
    }
}

#[test]
fn flags_are_known_with_and_without_no_and_value() {
    let known =
        ["-fPIC", "-fno-PIC", "-fsanitize=address", "-fno-sanitize=all", "-finline-limit-9"];
    assert!(known.into_iter().all(table::is_flag));
    let unknown =
        ["-f", "-fno-", "-fnot-a-flag", "-fPIC=x", "-fplugin=x", "-fdump-x", "-f#", "fPIC"];
    assert!(!unknown.into_iter().any(table::is_flag));
}

#[test]
fn pwd_goes_along_where_it_is_true() {
    let dir = std::env::temp_dir().join(format!("outboard-pwd-{}", std::process::id()));
    let (cwd, link) = (dir.join("cwd"), dir.join("link"));
    std::fs::create_dir_all(&cwd).unwrap();
    std::os::unix::fs::symlink("cwd", &link).unwrap();
    let goes = |pwd: &Path| {
        let env = vec![("PWD".into(), pwd.into())];
        let call = CompilerCall { cwd: cwd.clone(), env, ..call("gcc -c a.c") };
        let Classification::Remote(job) = classify(call) else { panic!("{}", pwd.display()) };
        job.env.len() == 1
    };
    assert!(goes(&cwd) && goes(&link));
    // Bazel's: what the compiler's own directory is called.
    assert!(goes(Path::new("/proc/self/cwd")));
    // `PWD` as `make -C` leaves it, and invalid values.
    assert!(!goes(&dir) && !goes(Path::new(".")) && !goes(Path::new("/no/such")));
    let env = vec![("PWD".into(), "/proc/1/cwd".into())];
    assert_eq!(local(CompilerCall { env, ..call("gcc -c a.c") }).word, "PWD");
    std::fs::remove_dir_all(dir).unwrap();
}

fn word() -> impl Strategy<Value = OsString> {
    let known = prop::sample::select(OPTIONS).prop_map(|opt| OsString::from(opt.name));
    let joined = (prop::sample::select(OPTIONS), prop::collection::vec(any::<u8>(), 0..6));
    let joined = joined
        .prop_map(|(opt, rest)| OsString::from_vec([opt.name.as_bytes(), &rest[..]].concat()));
    let bytes = prop::collection::vec(any::<u8>(), 0..12).prop_map(OsString::from_vec);
    let plain =
        prop::sample::select(vec!["a.c", "-c", "-o", "x.o", "-", "@", "--", "-f", "-W", ""]);
    prop_oneof![known, joined, bytes, plain.prop_map(OsString::from)]
}

proptest! {
    #[test]
    fn no_words_make_it_panic_and_remote_words_stay_as_they_are(
        argv in prop::collection::vec(word(), 0..12),
    ) {
        let compiler = "gcc".into();
        let call = CompilerCall { compiler, argv: argv.clone(), ..CompilerCall::default() };
        let _ = call.name();
        if let Classification::Remote(job) = classify(call) {
            prop_assert_eq!(job.argv, argv);
            prop_assert!(job.outputs.iter().all(|output| !output.path().starts_with("/dev")));
        }
    }
}

#[test]
fn programs_are_searched_where_the_job_runs() {
    let of = |path: &str, cwd: &str| {
        classify(CompilerCall { path: path.into(), cwd: cwd.into(), ..call("gcc -c a.c") })
    };
    let paths = [
        ("/usr/bin::/bin/", "/usr/bin:/p:/bin/"),
        ("bin:/bin", "/p/bin:/bin"),
        (":/bin", "/p:/bin"),
        ("/bin:..", "/bin:/p/.."),
        ("/usr/bin:/bin/", "/usr/bin:/bin/"),
    ];
    for (path, searched) in paths {
        let Classification::Remote(job) = of(path, "/p") else { panic!("{path}") };
        assert_eq!(job.path, searched);
    }
    // No value of `PATH` can name that directory.
    assert!(matches!(of("bin:/bin", "/a:b"), Classification::Local(_)));
    assert!(matches!(of("/bin", "/a:b"), Classification::Remote(_)));
}
