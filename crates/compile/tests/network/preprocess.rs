//! Sources that are preprocessed locally: their outputs, and where these differ from those of one
//! local compilation.

use crate::builds::{directory, write};
use crate::support::{Lab, locally, trial};
use libtest_mimic::Trial;
use std::fs;
use std::path::Path;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("preprocessed_sources_make_the_same_files", same_files),
        trial("columns_and_quotations_are_lost_in_preprocessed_sources", differences),
        trial("preprocessed_and_pulled_jobs_share_a_slot", both_ways),
        trial("a_large_preprocessed_source_makes_a_large_object", large),
        trial("a_preprocessed_job_sees_no_file_of_the_clients", alone),
    ]
}

const SOURCE: &str = "#include <stdio.h>\n#include <assert.h>\n#include \"a.h\"\n\
    int f(int n) { assert(n > 0); return ADD(n, FOO) + __LINE__; }\n\
    int main(void) { int unused; return printf(\"%d %s\", ADD(f(3), 4), __FILE__); }\n";

fn project() -> tempfile::TempDir {
    let project = directory();
    let at = project.path();
    write(&at.join("include/a.h"), "#define ADD(x, y) ((x) + \\\n    (y))\n");
    write(&at.join("src/a.c"), SOURCE);
    write(&at.join("src/b.cc"), "#include <vector>\nstd::vector<int> v(FOO);\n");
    write(&at.join("src/c.c"), "int c;\nint get(void) { return c; }\n");
    fs::create_dir_all(at.join("src/.deps")).expect("a directory");
    project
}

/// Makes the outputs locally, and again remotely. Returns the names of those that differ, and what
/// the compilers printed.
fn differing(
    lab: &mut Lab,
    cwd: &Path,
    line: &str,
    outputs: &[&str],
) -> (Vec<String>, [String; 2]) {
    let words: Vec<_> = line.split(' ').collect();
    let said = locally(cwd, &words);
    let expected: Vec<_> = outputs.iter().map(|at| fs::read(cwd.join(at)).expect(at)).collect();
    outputs.iter().for_each(|at| fs::remove_file(cwd.join(at)).expect(at));
    let finished = lab.run_preprocessed(cwd, &words);
    let remote = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert_eq!(finished.status, 0, "{line}: {remote}");
    let made = outputs.iter().map(|at| fs::read(cwd.join(at)).expect(at));
    let pairs = outputs.iter().zip(expected.into_iter().zip(made));
    let differ =
        pairs.filter(|(_, (local, remote))| local != remote).map(|(at, _)| (*at).to_owned());
    (differ.collect(), [said, remote])
}

fn same_files() {
    let project = project();
    let at = project.path();
    let mut lab = Lab::new(1, 1);
    let lines: &[(&str, &[&str])] = &[
        ("gcc -DFOO=3 -Iinclude -c src/a.c", &["a.o"]),
        ("gcc -O2 -DFOO=3 -Iinclude -MD -MP -c src/a.c -o src/a.o", &["src/a.o", "src/a.d"]),
        (
            "gcc -O2 -DFOO=3 -Iinclude -MMD -MF src/.deps/a.Tpo -MT x -c src/../src/a.c -o a.o",
            &["a.o", "src/.deps/a.Tpo"],
        ),
        ("gcc -Wp,-MD,src/.a.d -DFOO=3 -Iinclude -c src/a.c", &["a.o", "src/.a.d"]),
        ("gcc -O2 -DFOO=3 -Iinclude -fstack-usage -c src/a.c -o a.o", &["a.o", "a.su"]),
        ("gcc -O2 -DFOO=3 -Iinclude -S src/a.c", &["a.s"]),
        ("g++ -O2 -DFOO=3 -MD -c src/b.cc", &["b.o", "b.d"]),
        // Debug information without columns behind a macro.
        ("gcc -O2 -g -c src/c.c", &["c.o"]),
    ];
    for (line, outputs) in lines {
        let (differ, _) = differing(&mut lab, at, line, outputs);
        assert_eq!(differ, [""; 0], "{line}");
    }
}

fn differences() {
    let project = project();
    let at = project.path();
    let mut lab = Lab::new(1, 1);
    // Columns behind a macro, in line tables (and where calls were inlined).
    let debug = "gcc -O2 -g -gsplit-dwarf -DFOO=3 -Iinclude -MD -c src/a.c -o a.o";
    let (differ, _) = differing(&mut lab, at, debug, &["a.o", "a.dwo", "a.d"]);
    assert_eq!(differ, ["a.o"]);
    let coverage = "gcc --coverage -frandom-seed=1 -DFOO=3 -Iinclude -MD -c src/a.c -o a.o";
    let (differ, _) = differing(&mut lab, at, coverage, &["a.gcno", "a.d"]);
    assert_eq!(differ, ["a.gcno"]);
    // Warnings are the same, without the quoted source line.
    let warnings = "gcc -O2 -Wall -DFOO=3 -Iinclude -c src/a.c -o a.o";
    let (differ, [local, remote]) = differing(&mut lab, at, warnings, &["a.o"]);
    assert_eq!(differ, [""; 0]);
    let warning = "src/a.c:5:22: warning: unused variable 'unused' [-Wunused-variable]\n";
    assert!(local.contains(warning) && local.contains('^'), "{local}");
    assert!(remote.contains(warning) && !remote.contains('^'), "{remote}");
}

fn both_ways() {
    let project = project();
    let at = project.path();
    let mut lab = Lab::new(1, 1);
    for value in 1..4 {
        let line = format!("gcc -DFOO={value} -Iinclude -c src/a.c -o a.o");
        let (differ, _) = differing(&mut lab, at, &line, &["a.o"]);
        assert_eq!(differ, [""; 0], "{value}");
        let expected = {
            locally(at, &["gcc", "-DFOO=9", "-Iinclude", "-c", "src/a.c", "-o", "a.o"]);
            fs::read(at.join("a.o")).expect("an object")
        };
        lab.run(at, &["gcc", "-DFOO=9", "-Iinclude", "-c", "src/a.c", "-o", "a.o"]);
        assert!(fs::read(at.join("a.o")).expect("an object") == expected, "{value}");
        let (differ, _) = differing(&mut lab, at, "gcc -c src/c.c", &["c.o"]);
        assert_eq!(differ, [""; 0], "{value}");
    }
}

fn large() {
    let project = directory();
    let at = project.path();
    let numbers: String = (0..400_000).map(|number| format!("{number},\n")).collect();
    write(&at.join("numbers.h"), &numbers);
    write(&at.join("a.c"), "const int numbers[] = {\n#include \"numbers.h\"\n};\n");
    let mut lab = Lab::new(2, 1);
    for _ in 0..2 {
        let (differ, _) = differing(&mut lab, at, "gcc -c a.c", &["a.o"]);
        assert_eq!(differ, [""; 0]);
    }
}

fn alone() {
    let project = directory();
    let at = project.path();
    write(&at.join("secret"), "not for servers");
    write(&at.join("a.c"), "__asm__(\".incbin \\\"secret\\\"\");\n");
    let mut lab = Lab::new(1, 1);
    let finished = lab.run_preprocessed(at, &["gcc", "-c", "a.c"]);
    assert_ne!(finished.status, 0);
    assert!(String::from_utf8_lossy(&finished.stderr).contains("secret"));
    assert!(!at.join("a.o").exists());
}
