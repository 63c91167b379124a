//! Tests of the description of an offcode.

use super::*;

const WHOLE: &str = r#"
name = "counter"
version = "1.0.0"
interfaces = ["demo:packets/counter@1.0.0"]
ports = ["in", "out"]

[[body]]
kind = "wasm"
file = "counter.wasm"
libraries = ["sum.wasm"]
link = "host"

[[body]]
kind = "bpf"
file = "count.o"
program = "count_packets"

[[body]]
kind = "builtin"
name = "lines"

[needs]
memory = "2MiB"
clock = true
device = ["core", "node"]
cpu = 200

[[import]]
name = "sum"
interface = "demo:packets/checksum@1.0.0"
offcode = "checksum"
reference = "pull"
priority = 5

[attributes]
OBSOLETE_TIME = "10s"
WATCHDOG_TIME = "200ms"
OFFLOAD_PRIORITY = 3
greeting = "hello"
"#;

/// The smallest description, and more of it.
fn with(more: &str) -> String {
    format!("name = \"a\"\nversion = \"1.0.0\"\n[[body]]\nkind = \"builtin\"\nname = \"x\"\n{more}")
}

/// The first fault of a text, as `line N: …`.
fn fault(text: &str) -> String {
    match OffcodeFile::parse(text) {
        Ok(file) => panic!("taken: {file:?}"),
        Err(fault) => fault.to_string(),
    }
}

#[test]
fn every_word_is_read() {
    let file = OffcodeFile::parse(WHOLE).expect("valid");
    assert_eq!((file.name.as_str(), file.version.as_str()), ("counter", "1.0.0"));
    assert_eq!(file.interfaces[0].as_str(), "demo:packets/counter@1.0.0");
    assert_eq!(file.ports.iter().map(PortName::as_str).collect::<Vec<_>>(), ["in", "out"]);
    assert_eq!(file.paths[0].as_str(), "wit");
    let wasm = OffcodeBody::Wasm {
        file: "counter.wasm".parse().expect("a path"),
        libraries: vec!["sum.wasm".parse().expect("a path")],
        link: LinkPlace::Host,
    };
    assert_eq!(file.bodies[0], wasm);
    assert_eq!(
        file.bodies.iter().map(OffcodeBody::kind).collect::<Vec<_>>()[1..],
        ["bpf", "builtin"]
    );
    let needs = OffcodeNeeds {
        memory_bytes: 2 << 20,
        clock: true,
        timers: false,
        devices: Some([DeviceKind::Core, DeviceKind::Node].into()),
        cpu_permille: 200,
    };
    assert_eq!(file.needs, needs);
    let import = &file.imports[0];
    assert_eq!((import.name.as_str(), import.offcode.as_deref()), ("sum", Some("checksum")));
    assert_eq!(
        (import.reference, import.priority, import.line),
        (ReferenceKind::Pull, Some(5), 28)
    );
    let attributes = &file.attributes;
    assert_eq!(attributes.obsolete_time, Some(Duration::from_secs(10)));
    assert_eq!(attributes.watchdog_time, Some(Duration::from_millis(200)));
    assert_eq!(attributes.offload_priority, Some(3));
    assert_eq!(attributes.own.values().collect::<Vec<_>>(), ["hello"]);
}

#[test]
fn what_is_left_out_has_defaults() {
    let file = OffcodeFile::parse(&with("")).expect("valid");
    assert_eq!(file.needs, OffcodeNeeds::default());
    assert_eq!(file.device_kinds(), [DeviceKind::Host, DeviceKind::Core].into());
    assert_eq!(file.attributes, AttributeSet::default());
    assert!(file.imports.is_empty() && file.ports.is_empty());
}

#[test]
fn devices_are_those_of_bodies_and_needs() {
    let file = OffcodeFile::parse(WHOLE).expect("valid");
    assert_eq!(file.device_kinds(), [DeviceKind::Core, DeviceKind::Node].into());
    assert_eq!(file.body(DeviceKind::Core).map(OffcodeBody::kind), Some("wasm"));
    assert_eq!(file.body(DeviceKind::Nic), None);
}

#[test]
fn guids_are_derived_unless_pinned() {
    let of = |text: &str| OffcodeFile::parse(text).expect("valid").guid;
    let derived = of(&with(""));
    assert_eq!(derived.get_version_num(), 5);
    assert_eq!(derived, of(&with("[needs]\nclock = true\n")));
    assert_ne!(derived, of(&with("").replace("1.0.0", "1.0.1")));
    let pinned = "6ba7b812-9dad-11d1-80b4-00c04fd430c8";
    assert_eq!(of(&format!("guid = \"{pinned}\"\n{}", with(""))).to_string(), pinned);
    // Peers compare GUIDs: this one must never change.
    assert_eq!(derived.to_string(), "bc19e47b-7c93-5d47-bd5e-9866be9eeed2");
}

/// Texts and the first fault of each.
fn check(table: &[(String, &str)]) {
    for (text, expected) in table {
        assert_eq!(fault(text), *expected, "{text}");
    }
}

#[test]
fn faults_of_needs_have_lines_and_advice() {
    check(&[
        (
            with("[needs]\nmemry = 1\n"),
            "line 7: [needs] has no key \"memry\"; did you mean memory?",
        ),
        (with("[neds]\n"), "line 6: the file has no key \"neds\"; did you mean needs?"),
        (
            with("[needs]\nzzz = 1\n"),
            "line 7: [needs] has no key \"zzz\"; its keys are memory, clock, timers, device, cpu",
        ),
        (
            with("[needs]\nmemory = \"1 potato\"\n"),
            "line 7: \"memory\" is \"1 potato\": write a number of bytes such as \"1MiB\", \"64K\" \
             or 4096",
        ),
        (
            with("[needs]\nmemory = \"5G\"\n"),
            "line 7: \"memory\" is more than 4GiB, which no body can address",
        ),
        (with("[needs]\nclock = 1\n"), "line 7: \"clock\" is 1: write true or false"),
        (
            with("[needs]\ncpu = 1001\n"),
            "line 7: \"cpu\" is 1001: write a whole number from 0 to 1000",
        ),
        (
            with("[needs]\ndevice = [\"hots\"]\n"),
            "line 7: \"hots\" is none of host, core, node, nic; did you mean host?",
        ),
        (
            with("[needs]\ndevice = \"nic\"\n"),
            "line 6: \"device\" has \"nic\", where no body of the offcode runs (it has builtin): \
             add a body, or take the word away",
        ),
    ]);
}

#[test]
fn faults_of_imports_and_attributes_have_lines_and_advice() {
    check(&[
        (
            with("[attributes]\nWATCHDOG_TIM = \"1s\"\n"),
            "line 7: the attribute WATCHDOG_TIM is not known; did you mean WATCHDOG_TIME?",
        ),
        (
            with("[attributes]\nOBSOLETE_TIME = \"10\"\n"),
            "line 7: \"10\" is no time: write such as 500ms, 10s or 2min",
        ),
        (with("[attributes]\na = 1\n"), "line 7: \"a\" is 1: write text in quotes"),
        (
            with("[[import]]\nname = \"a\"\ninterface = \"b\"\n"),
            "line 8: \"b\" is no name of an interface: write \
             NAMESPACE:PACKAGE/INTERFACE@VERSION, such as demo:packets/counter@1.0.0",
        ),
        (with("[[import]]\nname = \"a\"\n"), "line 6: [[import]] lacks the key \"interface\""),
        (
            with(
                "[[import]]\nname='a'\ninterface='a:b/c'\n\
                 [[import]]\nname='a'\ninterface='a:b/c'\n",
            ),
            "line 9: the import a is there since line 6",
        ),
    ]);
}

#[test]
fn faults_of_the_rest_have_lines_and_advice() {
    check(&[
        (with("file = \"x.wasm\"\n"), "line 6: a body of the kind builtin has no key \"file\""),
        (
            with("[[body]]\nkind = \"builtin\"\nname = \"y\"\n"),
            "line 6: the offcode has two bodies of the kind builtin",
        ),
        (
            format!("ports = [\"in\", \"in\"]\n{}", with("")),
            "line 1: the port \"in\" is there twice",
        ),
        (
            "name = \"a\"\nversion = \"1\"\n".into(),
            "line 2: \"1\" is no version: write three numbers, such as 1.0.0",
        ),
        (
            "name = \"a\"\nversion = \"1.0.0\"\n".into(),
            "line 1: the offcode has no body: add a table [[body]] with its kind",
        ),
        (
            with("[body2]\n").replace("builtin", "wsm"),
            "line 6: the file has no key \"body2\"; did you mean body?",
        ),
        (
            with("").replace("builtin", "wsm"),
            "line 4: \"wsm\" is none of wasm, bpf, builtin; did you mean wasm?",
        ),
        (
            with("").replace("[[body]]", "[body]"),
            "line 3: \"body\" is of the kind table: write tables that each begin with [[body]]",
        ),
        (
            format!("guid = \"12\"\n{}", with("")),
            "line 1: \"12\" is no GUID: write a UUID such as \
             6ba7b812-9dad-11d1-80b4-00c04fd430c8, or leave it out",
        ),
    ]);
    assert!(fault("name = \n").starts_with("line 1: "));
    assert!(fault("a = 1\nb = [\n").starts_with("line "));
}

#[test]
fn descriptions_are_bounded() {
    let ports: Vec<String> = (0..65).map(|port| format!("\"p{port}\"")).collect();
    let text = format!("ports = [{}]\n{}", ports.join(", "), with(""));
    assert_eq!(fault(&text), "line 1: 65 of \"ports\": at most 64 may be");
    let text = with(&format!("[attributes]\na = \"{}\"\n", "x".repeat(4097)));
    assert_eq!(fault(&text), "line 7: the attribute a has more than 4096 bytes");
    let many: String = (0..65).map(|number| format!("a{number} = \"\"\n")).collect();
    assert!(
        fault(&with(&format!("[attributes]\n{many}"))).ends_with("at most 64 attributes may be")
    );
    let comment = format!("#{}\n{}", "x".repeat(OFFCODE_FILE_LEN_MAX), with(""));
    assert_eq!(fault(&comment), "line 1: it has more than 262144 bytes");
}

#[test]
fn attributes_of_a_layout_file_come_over_the_descriptions() {
    let base = OffcodeFile::parse(WHOLE).expect("valid").attributes;
    let own = AttributeSet {
        watchdog_time: Some(Duration::from_secs(1)),
        own: [("other".parse().expect("a name"), "x".to_owned())].into(),
        ..AttributeSet::default()
    };
    let both = own.over(&base);
    assert_eq!(both.watchdog_time, Some(Duration::from_secs(1)));
    assert_eq!((both.obsolete_time, both.offload_priority), (base.obsolete_time, Some(3)));
    assert_eq!(both.own.values().collect::<Vec<_>>(), ["hello", "x"]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    /// Pieces of a description in any order, and any text between them.
    #[test]
    fn no_text_makes_the_parser_panic(
        pieces in proptest::collection::vec(0..WHOLE.len(), 0..8),
        noise in "[\\[\\]a-z=\"'\\n.#0-9é{},]{0,60}",
    ) {
        let mut text = String::new();
        for at in pieces {
            let end = (at + 60).min(WHOLE.len());
            text.push_str(&WHOLE[at..end]);
            text.push_str(&noise);
        }
        let _ = OffcodeFile::parse(&text);
    }

    /// A description with one byte changed.
    #[test]
    fn no_change_makes_the_parser_panic(at in 0..WHOLE.len(), byte in 0_u8..128) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = OffcodeFile::parse(&String::from_utf8_lossy(&bytes));
    }
}
