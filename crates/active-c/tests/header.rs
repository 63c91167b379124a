//! The header and the library's Rust code agree: constants, structures, functions. Needs a compiler
//! for C: `cargo xtask test active-c` runs it.

use outboard_active::protocol::{INLINE_MAX, NAME_MAX};
use outboard_active_c::abi::{
    ADAPTIVE, AUTO, BLOCK, CCall, CHash, COptions, COutcome, HASH_TEXT, LOCAL, REMOTE, SPIN,
};
use outboard_active_c::status::CStatus;
use std::collections::BTreeMap;
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

const HEADER: &str = include_str!("../include/outboard_active.h");

/// What Rust calls a value, by what C calls it: expressions of C.
type Values = BTreeMap<String, usize>;

fn constants() -> Values {
    let number = |value: u32| value as usize;
    let mut all: Values = [
        ("REMOTE", number(REMOTE)),
        ("LOCAL", number(LOCAL)),
        ("AUTO", number(AUTO)),
        ("ADAPTIVE", number(ADAPTIVE)),
        ("BLOCK", number(BLOCK)),
        ("SPIN", number(SPIN)),
        ("INLINE_MAX", INLINE_MAX),
        ("NAME_MAX", NAME_MAX),
        ("HASH_SIZE", size_of::<CHash>()),
        ("HASH_TEXT", HASH_TEXT),
    ]
    .map(|(name, value)| (format!("OUTBOARD_ACTIVE_{name}"), value))
    .into();
    for status in CStatus::ALL {
        let name = status.word().to_str().expect("text");
        let value = usize::try_from(i32::from(*status)).expect("not negative");
        all.insert(format!("OUTBOARD_ACTIVE_{name}"), value);
    }
    all
}

/// Sizes of a structure and of its fields, where these are, and how many there are.
macro_rules! layout {
    ($all:ident, $type:ty, $name:literal, $($field:ident $(as $word:literal)?),*) => {
        $all.insert(concat!("sizeof(", $name, ")").to_owned(), size_of::<$type>());
        $(
            #[allow(unused_mut, unused_assignments, reason = "most fields are called alike")]
            let mut word = stringify!($field);
            $(word = $word;)?
            let place = format!("offsetof({}, {word})", $name);
            $all.insert(place, offset_of!($type, $field));
        )*
    };
}

fn layouts() -> Values {
    let mut all = Values::new();
    layout!(all, CHash, "outboard_active_hash", bytes);
    layout!(
        all,
        COptions,
        "outboard_active_options",
        size,
        key,
        timeout_ms,
        in_flight,
        wait,
        reserved
    );
    layout!(
        all,
        CCall,
        "outboard_active_call",
        size,
        module,
        entry,
        args,
        args_size,
        region,
        place as "where",
        limit_us,
        buffer,
        buffer_offset,
        buffer_size
    );
    layout!(
        all,
        COutcome,
        "outboard_active_outcome",
        ticket,
        user,
        result_size,
        status,
        module_code,
        place as "where",
        reserved
    );
    all
}

/// What a compiler makes of these expressions.
fn compiled(expressions: impl Iterator<Item = String>) -> Values {
    let directory = tempfile::tempdir().expect("a directory");
    let (source, binary) = (directory.path().join("values.c"), directory.path().join("values"));
    let lines = expressions
        .map(|it| format!("    printf(\"%s=%lu\\n\", \"{it}\", (unsigned long)({it}));\n"));
    let lines: String = lines.collect();
    let head = "#include <outboard_active.h>\n#include <stdio.h>\nint main(void)\n{\n";
    fs::write(&source, format!("{head}{lines}    return 0;\n}}\n")).expect("written");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"]).arg(include);
    let output = cc.arg(&source).arg("-o").arg(&binary).output().expect("a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&binary).output().expect("started");
    let text = String::from_utf8(output.stdout).expect("text");
    let values = text.lines().filter_map(|line| line.split_once('='));
    values.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

#[test]
fn values_and_places_are_the_same_in_c() {
    let mut all = constants();
    all.extend(layouts());
    assert_eq!(compiled(all.keys().cloned()), all);
}

/// The names of the header's constants: the words before `=`.
#[test]
fn the_header_has_no_other_constants() {
    let lines = HEADER.lines().filter_map(|line| line.trim().split_once(" = "));
    let names = lines.map(|(name, _)| name).filter(|name| name.starts_with("OUTBOARD_ACTIVE_"));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    assert_eq!(names, constants().into_keys().collect::<Vec<_>>());
}

/// The names of the structures' fields: the words before `;`.
#[test]
fn the_header_has_no_other_fields() {
    let places = layouts();
    let mut fields = 0;
    for name in ["hash", "options", "call", "outcome"] {
        let open = format!("typedef struct outboard_active_{name} {{");
        let (_, rest) = HEADER.split_once(&open).expect("defined");
        let (body, _) = rest.split_once("\n}").expect("ends");
        for (declared, _) in body.lines().filter_map(|line| line.split_once(';')) {
            let word = declared.rsplit([' ', '*']).next().expect("a word");
            let word = word.split('[').next().expect("a word");
            let place = format!("offsetof(outboard_active_{name}, {word})");
            assert!(places.contains_key(&place), "Rust has no {place}");
            fields += 1;
        }
    }
    let places = places.keys().filter(|name| name.starts_with("offsetof")).count();
    assert_eq!(fields, places);
}

/// One test program uses every function as it should be, another one as it should not.
#[test]
fn the_test_programs_call_every_function() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let map = fs::read_to_string(directory.join("liboutboard_active.map")).expect("the table");
    let names = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let names: Vec<&str> = names.filter(|name| name.starts_with("outboard_active_")).collect();
    assert!(names.len() > 20, "{names:?}");
    // These cannot be called wrongly.
    let harmless = ["outboard_active_message", "outboard_active_status_name"];
    for (program, spared) in [("basics", &[][..]), ("nonsense", &harmless[..])] {
        let source = directory.join(format!("tests/c/{program}.c"));
        let shared = fs::read_to_string(directory.join("tests/c/check.h")).expect("the header");
        let text = fs::read_to_string(source).expect("the program") + &shared;
        let calls = |name: &&&str| text.contains(&format!("{name}("));
        let missing: Vec<_> = names.iter().filter(|name| !calls(name)).collect();
        let missing: Vec<_> = missing.iter().filter(|name| !spared.contains(**name)).collect();
        assert!(missing.is_empty(), "{program}.c does not call {missing:?}");
    }
}
