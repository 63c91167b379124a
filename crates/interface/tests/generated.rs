//! Generated code against the encoder: golden vectors, hostile bytes, compilers.
//!
//! With `OUTBOARD_BLESS=1` the golden bytes are written anew, to be reviewed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs, io::Write};

use outboard_interface::{CallAnswer, Guid, Interface, Method};
use serde_json::{Value as Json, json};

mod guest {
    include!("golden/guest.rs");
}
mod host {
    include!("golden/host.rs");
}

use guest::sample::{Color, Empty, Point, Rights, ScalarSet, Shape};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn read(name: &str) -> String {
    let path = golden(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn is_blessing() -> bool {
    env::var_os("OUTBOARD_BLESS").is_some_and(|value| value == "1")
}

fn sample() -> &'static [Interface] {
    static SAMPLE: OnceLock<Vec<Interface>> = OnceLock::new();
    SAMPLE.get_or_init(|| Interface::parse_wit("sample.wit", &read("sample.wit")).unwrap())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Method indices and parameters of the golden vectors.
fn vectors() -> Vec<(usize, Vec<u8>)> {
    let vectors: Vec<Json> = serde_json::from_str(&read("vectors.json")).unwrap();
    let sample = &sample()[0];
    let encode = |vector: &Json| {
        let (index, method) = sample.method(vector["method"].as_str().unwrap()).unwrap();
        let values = method.parameters_from_json(vector["parameters"].as_array().unwrap());
        (index as usize, method.encode_parameters(&values.unwrap()).unwrap())
    };
    vectors.iter().map(encode).collect()
}

#[test]
fn the_encoder_makes_the_golden_bytes() {
    let mut file: Vec<Json> = serde_json::from_str(&read("vectors.json")).unwrap();
    let made = vectors();
    for (vector, (index, bytes)) in file.iter_mut().zip(&made) {
        if is_blessing() {
            vector["bytes"] = json!(hex(bytes));
        }
        assert_eq!(vector["bytes"], json!(hex(bytes)), "{}", vector["method"]);
        let method: &Method = &sample()[0].methods[*index];
        let values = method.decode_parameters(bytes).unwrap();
        assert_eq!(method.encode_parameters(&values).unwrap(), *bytes);
    }
    if is_blessing() {
        fs::write(golden("vectors.json"), serde_json::to_string_pretty(&file).unwrap()).unwrap();
    }
}

/// A guest that calls its import with whatever it is called with.
#[derive(Default)]
struct Echo {
    called: Vec<u8>,
}

/// Keeps what the guest does.
#[derive(Default)]
struct Recorder(Vec<String>);

impl guest::guest::Device for Recorder {
    fn call(&mut self, _import: i32, method: i32, parameters: &[u8], _deadline_ms: i32) -> i64 {
        self.0.push(format!("{method} {}", hex(parameters)));
        1
    }

    fn answer(&mut self, call: i64, results: &[u8]) -> i32 {
        self.0.push(format!("answer {call} {}", hex(results)));
        0
    }

    fn refuse(&mut self, _call: i64, _reason: &[u8]) -> i32 {
        self.0.push("refused".into());
        0
    }
}

use guest::guest::CallReply;
use guest::sample as guest_sample;

impl Echo {
    fn record(&mut self, call: impl FnOnce(&mut Recorder) -> i64) {
        let mut recorder = Recorder::default();
        assert_eq!(call(&mut recorder), 1);
        self.called = recorder.0.remove(0).into_bytes();
    }
}

impl guest_sample::Exports for Echo {
    fn scalars(&mut self, _call: i64, value: ScalarSet, point: Point) -> CallReply<ScalarSet> {
        self.record(|device| guest_sample::call_scalars(device, 0, &value, &point));
        CallReply::Now(value)
    }

    fn shapes(
        &mut self,
        _call: i64,
        shapes: Vec<Shape>,
        color: Color,
        rights: Rights,
    ) -> CallReply<Vec<Shape>> {
        self.record(|device| guest_sample::call_shapes(device, 0, &shapes, color, rights));
        CallReply::Now(shapes)
    }

    fn bytes(
        &mut self,
        _call: i64,
        data: Vec<u8>,
        text: String,
        texts: Vec<String>,
    ) -> CallReply<u32> {
        self.record(|device| guest_sample::call_bytes(device, 0, &data, &text, &texts));
        CallReply::Later
    }

    fn optional(
        &mut self,
        _call: i64,
        nested: Option<Option<u32>>,
        outcome: Result<Point, String>,
        plain: Result<(), ()>,
        nothing: Empty,
        pair: (u8, char),
    ) -> CallReply<Result<(), Color>> {
        self.record(|device| {
            guest_sample::call_optional(device, 0, &nested, &outcome, &plain, &nothing, &pair)
        });
        CallReply::Now(Err(Color::DarkBlue))
    }

    fn call(&mut self, _call: i64) -> CallReply<()> {
        self.record(|device| guest_sample::call_call(device, 0));
        CallReply::Refuse("no".into())
    }
}

/// What generated Rust makes of the bytes that it decodes, or nothing if it refuses them.
fn by_generated_rust(method: usize, bytes: &[u8]) -> Option<String> {
    let mut echo = Echo::default();
    let method = i32::try_from(method).unwrap();
    guest::sample::dispatch(&mut echo, method, 7, bytes).ok()?;
    let called = String::from_utf8(echo.called).unwrap();
    Some(called.split_once(' ').unwrap().1.to_owned())
}

/// What the encoder makes of them.
fn by_encoder(method: usize, bytes: &[u8]) -> Option<String> {
    let method = &sample()[0].methods[method];
    let values = method.decode_parameters(bytes).ok()?;
    Some(hex(&method.encode_parameters(&values).unwrap()))
}

/// The vectors, each also cut, with each byte changed, and longer.
fn vectors_and_hostile_ones() -> Vec<(usize, Vec<u8>)> {
    let mut all = Vec::new();
    for (method, bytes) in vectors() {
        for at in 0..bytes.len() {
            all.push((method, bytes[..at].to_vec()));
            for change in [0x01, 0x80, 0xff, bytes[at]] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                all.push((method, changed));
            }
        }
        all.push((method, [&bytes[..], &[0]].concat()));
        all.push((method, bytes));
    }
    all
}

#[test]
fn generated_rust_agrees_with_the_encoder() {
    let mut accepted = 0;
    for (method, bytes) in vectors_and_hostile_ones() {
        let expected = by_encoder(method, &bytes);
        accepted += usize::from(expected.is_some());
        assert_eq!(by_generated_rust(method, &bytes), expected, "{method} {}", hex(&bytes));
    }
    assert!(accepted > 20, "{accepted}");
}

fn scalars() -> ScalarSet {
    ScalarSet {
        bool: true,
        int: 200,
        type_: 300,
        d: 70_000,
        e: 1 << 40,
        f: 1.5,
        g: -0.25,
        h: 'ß',
        self_: "text".into(),
    }
}

#[test]
fn calls_of_generated_rust_have_the_golden_bytes() {
    let mut device = Recorder::default();
    let point = Point { x: -3, y: -300, z: 70_000, w: -(1 << 40) };
    guest_sample::call_scalars(&mut device, 0, &scalars(), &point);
    let shapes = [
        Shape::None,
        Shape::Circle(2.5),
        Shape::Polygon(vec![Point { x: 1, y: 2, z: 3, w: 4 }]),
        Shape::Named(("ä".into(), Color::DarkBlue)),
    ];
    let rights = Rights::READ | Rights::USE;
    guest_sample::call_shapes(&mut device, 0, &shapes, Color::Green, rights);
    let vectors = vectors();
    let expected = vectors[..2].iter().map(|(method, bytes)| format!("{method} {}", hex(bytes)));
    assert_eq!(device.0, expected.collect::<Vec<_>>());

    let call = host::sample::bytes(&[0, 1, 255], "", &["a".into(), "😀".into()]);
    assert_eq!((call.call.method, &call.call.parameters), (2, &vectors[2].1));
    assert_eq!(call.call.interface, Guid::of_name("outboard:sample/sample@1.2.0"));
    assert_eq!(call.results(&CallAnswer::Results(vec![9])), Ok(9));
    assert_eq!(host::mover::GUID, sample()[1].guid);
}

#[test]
fn replies_of_generated_rust_reach_the_device() {
    let (mut device, mut echo) = (Recorder::default(), Echo::default());
    for (method, bytes) in vectors() {
        let method = i32::try_from(method).unwrap();
        guest::oc_call(&mut device, &mut echo, 0, method, 5, &bytes);
    }
    guest::oc_call(&mut device, &mut echo, 0, 99, 5, &[]);
    guest::oc_call(&mut device, &mut echo, 1, 0, 5, &[]);
    guest::oc_call(&mut device, &mut echo, 0, 4, 5, &[1]);
    assert_eq!(device.0[2..4], ["answer 5 0102", "answer 5 0102"]);
    assert_eq!(device.0[4..], ["refused"; 4]);
    guest_sample::answer_bytes(&mut device, 6, &300);
    assert_eq!(device.0.last().unwrap(), "answer 6 ac02");
    assert_eq!(guest_sample::results_bytes(0, &[0xac, 0x02]), Ok(300));
    let fault = guest_sample::results_bytes(3, b"dead");
    assert_eq!(fault, Err(guest::guest::CallFault::Gone("dead".into())));
}

/// Says what is left out, and why, for whoever reads the test's output.
fn skip(what: &str) {
    eprintln!("skipped: {what}");
}

fn run(command: &mut Command) -> Option<std::process::Output> {
    command.output().ok()
}

/// Compiles the generated Rust without std, if the compiler is there.
fn compile_rust(rustc: &Path, options: &[&str]) -> Option<std::process::Output> {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("guest.rs");
    fs::write(&source, format!("#![no_std]\n{}", read("guest.rs"))).unwrap();
    let mut command = Command::new(rustc);
    command.args(["--crate-type", "lib", "--emit", "metadata"]).args(options);
    run(command.arg("--out-dir").arg(directory.path()).arg(&source))
}

#[test]
fn generated_rust_compiles_without_std() {
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let rustc = if rustc.exists() { rustc } else { "rustc".into() };
    for edition in ["2021", "2024"] {
        let output = compile_rust(&rustc, &["--edition", edition, "-D", "warnings"]);
        let Some(output) = output else { return skip("rustc cannot be run") };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn generated_rust_compiles_for_wasm32() {
    // Debian's is the one that guests are built with, and rustup's has the target seldom.
    let rustc = Path::new("/usr/bin/rustc");
    let options = ["--edition", "2021", "--target", "wasm32-unknown-unknown"];
    let Some(output) = compile_rust(rustc, &options) else {
        return skip("there is no rustc of Debian");
    };
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() && words.contains("can't find crate for `core`") {
        return skip("rustc has no wasm32-unknown-unknown");
    }
    assert!(output.status.success(), "{words}");
}

#[test]
fn generated_c_agrees_with_the_encoder() {
    let directory = tempfile::tempdir().unwrap();
    let binary = directory.path().join("check");
    if !compile_c(&binary) {
        return skip("there is no cc, so that the generated C is not compiled");
    }
    let inputs = vectors_and_hostile_ones();
    let lines: String =
        inputs.iter().map(|(method, bytes)| format!("{method} {}\n", hex(bytes))).collect();
    let answers = answers_of(&binary, lines);
    let vectors = vectors();
    assert_eq!(answers[0], format!("={}", hex(&vectors[0].1)));
    assert_eq!(answers[1], format!("={}", hex(&vectors[1].1)));
    assert_eq!(answers[2], "answer 0102");
    assert_eq!(answers.len(), 3 + inputs.len());
    for ((method, bytes), answer) in inputs.iter().zip(&answers[3..]) {
        let expected = by_encoder(*method, bytes);
        let expected = expected.map_or_else(|| "refused".to_owned(), |made| format!("={made}"));
        assert_eq!(*answer, expected, "{method} {}", hex(bytes));
    }
}

/// With sanitizers where the compiler has them.
fn compile_c(binary: &Path) -> bool {
    let compile = |more: &[&str]| {
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-Wall", "-Wextra"]).args(more);
        run(cc.arg("-o").arg(binary).arg(golden("check.c")))
    };
    let sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    if compile(&sanitizers).is_some_and(|output| output.status.success()) {
        return true;
    }
    skip("the compiler has no sanitizers");
    let Some(output) = compile(&[]) else { return false };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

fn answers_of(binary: &Path, lines: String) -> Vec<String> {
    let mut child = Command::new(binary)
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Both pipes may fill: the input is written beside the reading.
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", output.status);
    writer.join().unwrap().unwrap();
    answers.lines().map(str::to_owned).collect()
}

#[test]
fn generated_c_compiles_for_wasm32() {
    let directory = tempfile::tempdir().unwrap();
    let object = directory.path().join("guest.o");
    let output = run(Command::new("clang")
        .args(["--target=wasm32", "-std=c99", "-Wall", "-Wextra", "-O2", "-nostdlib", "-c"])
        .arg("-o")
        .arg(&object)
        .arg(golden("guest.c")));
    let Some(output) = output else { return skip("there is no clang") };
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if words.contains("No available targets") || words.contains("unable to create target") {
        return skip("this clang does not know wasm32");
    }
    assert!(output.status.success(), "{words}");
    // The linker refuses what a C library would have to define.
    let linked = run(Command::new("wasm-ld")
        .arg("--no-entry")
        .arg("-o")
        .arg(directory.path().join("guest.wasm"))
        .arg(&object));
    let Some(linked) = linked else { return skip("there is no wasm-ld") };
    assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
}
