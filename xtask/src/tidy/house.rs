//! The house rules' numbers and tables, all in one place.
//!
//! The tables of exceptions are ratchets: an entry must be exact, so it can only shrink or go.

/// Which crates a crate may name; an arrow points down only.
pub(super) const ARROWS: &[(&str, &[&str])] = &[
    ("outboard-wire", &[]),
    ("outboard-mem", &[]),
    ("outboard-unix", &[]),
    ("outboard-testkit", &[]),
    ("outboard-secure", &["outboard-unix"]),
    ("outboard-export", &["outboard-mem", "outboard-unix"]),
    ("outboard-iwarp", &["outboard-wire", "outboard-mem"]),
    ("outboard-verbs", &["outboard-iwarp", "outboard-secure", "outboard-wire", "outboard-mem"]),
    ("outboard-cluster", &["outboard-verbs", "outboard-secure", "outboard-unix"]),
    ("outboard-ibverbs", &["outboard-verbs"]),
    ("outboard-perf", &["outboard-verbs", "outboard-iwarp", "outboard-wire", "outboard-mem"]),
    ("outboard-cc", &["outboard-unix"]),
    (
        "outboard-compile",
        &[
            "outboard-cc",
            "outboard-cluster",
            "outboard-export",
            "outboard-secure",
            "outboard-store",
            "outboard-unix",
            "outboard-verbs",
        ],
    ),
    (
        "outboard",
        &[
            "outboard-cluster",
            "outboard-perf",
            "outboard-verbs",
            "outboard-iwarp",
            "outboard-secure",
            "outboard-cc",
            "outboard-compile",
            "outboard-cast",
            "outboard-active",
            "outboard-fs",
            "outboard-offcode",
            "outboard-offload",
            "outboard-unix",
            "outboard-wire",
            "outboard-mem",
        ],
    ),
    (
        "outboard-sim",
        &[
            "outboard-export",
            "outboard-iwarp",
            "outboard-mem",
            "outboard-offcode",
            "outboard-secure",
            "outboard-wire",
        ],
    ),
    ("outboard-cast", &["outboard-cluster", "outboard-secure", "outboard-unix", "outboard-verbs"]),
    ("outboard-interface", &[]),
    ("outboard-offcode", &["outboard-mem"]),
    (
        "outboard-active",
        &[
            "outboard-cluster",
            "outboard-mem",
            "outboard-offcode",
            "outboard-secure",
            "outboard-unix",
            "outboard-verbs",
        ],
    ),
    (
        "outboard-active-apps",
        &[
            "outboard-active",
            "outboard-cluster",
            "outboard-offcode",
            "outboard-secure",
            "outboard-verbs",
        ],
    ),
    (
        "outboard-active-c",
        &["outboard-active", "outboard-cluster", "outboard-secure", "outboard-verbs"],
    ),
    (
        "outboard-fs",
        &[
            "outboard-active",
            "outboard-cluster",
            "outboard-mem",
            "outboard-offcode",
            "outboard-secure",
            "outboard-unix",
            "outboard-verbs",
        ],
    ),
    ("outboard-layout", &[]),
    ("outboard-store", &["outboard-unix"]),
    (
        "outboard-offload",
        &[
            "outboard-cluster",
            "outboard-interface",
            "outboard-layout",
            "outboard-mem",
            "outboard-nic",
            "outboard-offcode",
            "outboard-secure",
            "outboard-unix",
            "outboard-verbs",
        ],
    ),
    ("outboard-nic", &["outboard-mem"]),
    ("outboard-stand-in", &[]),
    ("xtask", &["outboard-stand-in"]),
];

/// Crates for development: every crate's tests may name them, nothing that ships may.
pub(super) const DEV_CRATES: &[&str] = &["outboard-testkit", "outboard-sim"];

/// Crates of pure values: they are given bytes and the time, and obtain neither themselves.
pub(super) const PURE_CRATES: &[&str] = &["wire", "iwarp", "mem", "secure", "layout"];

/// Words that the code (not the tests) of a pure crate must not contain, and why.
pub(super) const IMPURE: &[(&str, &str)] = &[
    ("std::net", "opens sockets: the engine in verbs does that"),
    ("thread::spawn", "starts threads: the engine in verbs does that"),
    ("Instant::now", "reads the clock: take the time as an argument"),
    ("SystemTime::now", "reads the clock: take the time as an argument"),
];

/// Crates whose types may be called like others': the C library's objects are called like the
/// values of verbs for which they stand, and what is for development never meets a user.
pub(super) const NAMES_APART: &[&str] = &["ibverbs", "sim", "stand-in"];

/// Words that no code may contain, and why.
pub(super) const UNFINISHED: &[(&str, &str)] = &[
    ("todo!", "finish it or leave it out"),
    ("unimplemented!", "finish it or leave it out"),
    ("dbg!", "remove it before committing"),
    ("#[ignore", "register a suite in xtask/src/test/suites.rs that says what the test needs"),
];

/// Marks of unfinished work, in comments too. Spelt apart, so that this file passes.
pub(super) const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Top-level directories for the files of users and of build servers: a path into one of them
/// exists on one machine only.
pub(super) const HOMES: &[&str] =
    &["home", "root", "Users", "build", "builds", "work", "workspace", "mnt", "media", "srv"];

/// Columns in a line of Rust.
pub(super) const LINE_COLUMNS: usize = 100;

/// Lines in a file, and in a file of tests.
pub(super) const FILE_LINES: usize = 600;
/// Lines in a file of tests.
pub(super) const TEST_FILE_LINES: usize = 900;

/// Lines in a function, from its `fn` to its closing brace.
pub(super) const FUNCTION_LINES: usize = 60;
/// Lines of a function that not even an exception may exceed.
pub(super) const FUNCTION_LINES_CAP: usize = 100;

/// Functions longer than [`FUNCTION_LINES`]: file, name, exact lines.
pub(super) const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[];

/// Functions with so many lines between their braces and the last one's, comments not counted, or
/// more, must not stand twice.
pub(super) const TWIN_LINES: usize = 6;
/// Functions that stand in another place too: file, name.
pub(super) const TWINS: &[(&str, &str)] = &[];

/// Where `unsafe` may stand at all: memory, system calls that no crate has, the sandbox's
/// processes, and the border to C.
pub(super) const UNSAFE_PLACES: &[&str] = &[
    "crates/mem/",
    "crates/verbs/src/engine/sockio.rs",
    "crates/ibverbs/",
    "crates/active-c/",
    "crates/outboard-cc/src/start.rs",
    "crates/compile/src/sandbox/child/raw.rs",
    "crates/offcode/src/engine/wasmtime/space.rs",
    "crates/offcode/src/low_priority.rs",
    "modules/rust/outboard-guest/src/",
];

/// Where every function that C calls is `unsafe`, so that a count says nothing.
pub(super) const UNCOUNTED: &[&str] = &["crates/ibverbs/", "crates/active-c/"];

/// Generated files, to which the rules do not apply.
pub(super) const GENERATED: &[&str] = &[
    "crates/ibverbs/src/abi/bindings.rs",
    "crates/interface/tests/golden/guest.rs",
    "crates/interface/tests/golden/host.rs",
];

/// How often the word `unsafe` stands in each file: a change of the number requires a change here,
/// to be reviewed.
pub(super) const UNSAFE_COUNTS: &[(&str, usize)] = &[
    ("crates/compile/src/sandbox/child/raw.rs", 16),
    ("crates/mem/benches/mem.rs", 1),
    ("crates/mem/benches/ring.rs", 1),
    ("crates/mem/src/file.rs", 10),
    ("crates/mem/src/mapping.rs", 13),
    ("crates/mem/src/racy.rs", 10),
    ("crates/mem/src/racy/aarch64.rs", 11),
    ("crates/mem/src/racy/bytewise.rs", 14),
    ("crates/mem/src/racy/fault.rs", 7),
    ("crates/mem/src/racy/fault/tests.rs", 6),
    ("crates/mem/src/racy/tests.rs", 7),
    ("crates/mem/src/racy/x86_64.rs", 15),
    ("crates/mem/src/ring/protocol/tests.rs", 4),
    ("crates/mem/src/ring/words.rs", 6),
    ("crates/mem/src/sg/tests.rs", 3),
    ("crates/mem/src/shared/gate/sleep.rs", 2),
    ("crates/mem/src/shared.rs", 15),
    ("crates/mem/src/reservation.rs", 12),
    ("crates/mem/src/reservation/tests.rs", 3),
    ("crates/mem/src/shared/backed.rs", 4),
    ("crates/mem/src/shared/gate/tests.rs", 4),
    ("crates/mem/src/shared/lazy.rs", 5),
    ("crates/mem/src/shared/lazy/tests.rs", 2),
    ("crates/mem/src/shared/tests.rs", 4),
    ("crates/mem/src/slot.rs", 5),
    ("crates/mem/src/slot/tests.rs", 5),
    ("crates/mem/src/stag.rs", 3),
    ("crates/mem/src/xdp.rs", 7),
    ("crates/mem/tests/backed.rs", 13),
    ("crates/mem/tests/faults.rs", 8),
    ("crates/mem/tests/lazy.rs", 3),
    ("crates/offcode/src/engine/wasmtime/space.rs", 2),
    ("crates/offcode/src/low_priority.rs", 1),
    ("crates/outboard-cc/src/start.rs", 2),
    ("modules/rust/outboard-guest/src/call.rs", 5),
    ("modules/rust/outboard-guest/src/region.rs", 12),
    ("crates/verbs/src/engine/sockio.rs", 16),
];

/// Crates whose root file may lack `#![forbid(unsafe_code)]`.
pub(super) const UNSAFE_CRATES: &[&str] =
    &["active-c", "compile", "mem", "verbs", "ibverbs", "offcode", "outboard-cc"];
