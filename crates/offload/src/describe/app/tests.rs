//! Tests of layout files.

use super::*;
use std::time::Duration;

const WHOLE: &str = r#"
[app]
name = "packets"

[[offcode]]
name = "filter"
package = "../filter"
on = "nic:eth1"
priority = 4
when-lost = "move"
when-loaded = "move"
[offcode.attributes]
WATCHDOG_TIME = "1s"
greeting = "hello"

[[offcode]]
name = "counter"
on = "core:1"

[[offcode]]
name = "page"

[[channel]]
from = "filter.out"
to = "counter.in"
reliable = false
copy = "zero"
depth = 128
message-max = "2KiB"

[[channel]]
from = "counter.out"
to = ["page.in", "app.copy"]

[[channel]]
from = "app"
to = "filter.in"

[[import]]
from = "counter.sum"
to = "checksum"

[[layout]]
pull = ["filter", "counter"]
[[layout]]
gang-if = ["counter", "page"]

[device]
cores = [1, 2]
nodes = ["hostA:7411"]
nics = ["eth1"]
"#;

fn with(more: &str) -> String {
    format!("[app]\nname = \"a\"\n{more}")
}

fn fault(text: &str) -> String {
    match AppFile::parse(text) {
        Ok(file) => panic!("taken: {file:?}"),
        Err(fault) => fault.to_string(),
    }
}

#[test]
fn every_word_is_read() {
    let file = AppFile::parse(WHOLE).expect("valid");
    assert_eq!(file.name.as_str(), "packets");
    let filter = &file.offcodes[0];
    assert_eq!((filter.package.as_str(), filter.priority, filter.line), ("../filter", Some(4), 5));
    assert_eq!(filter.on, Some(DevicePin::Nic("eth1".parse().expect("a name"))));
    assert_eq!((filter.when_lost, filter.when_loaded), (WhenLost::Move, WhenLoaded::Move));
    assert_eq!(filter.attributes.watchdog_time, Some(Duration::from_secs(1)));
    assert_eq!(filter.attributes.own.len(), 1);
    let counter = &file.offcodes[1];
    assert_eq!(
        (counter.package.as_str(), counter.on.clone()),
        ("counter", Some(DevicePin::Core(1)))
    );
    assert_eq!((counter.when_lost, counter.when_loaded), (WhenLost::End, WhenLoaded::Stay));
    let settings = ChannelSettings {
        reliable: false,
        copy: CopyMode::Zero,
        depth: 128,
        message_bytes_max: 2048,
    };
    assert_eq!(file.channels[0].settings, settings);
    assert_eq!(file.channels[1].settings, ChannelSettings::default());
    let ends: Vec<String> = file.channels[1].to.iter().map(ToString::to_string).collect();
    assert_eq!(ends, ["page.in", "app.copy"]);
    assert!(file.channels[1].is_multicast() && !file.channels[0].is_multicast());
    assert_eq!(file.channels[2].from, ChannelEnd::App(None));
    assert_eq!((file.imports[0].import.as_str(), file.imports[0].to.as_str()), ("sum", "checksum"));
    let kinds: Vec<ReferenceKind> = file.constraints.iter().map(|each| each.kind).collect();
    assert_eq!(kinds, [ReferenceKind::Pull, ReferenceKind::GangIf]);
    assert_eq!(file.devices.cores, [1, 2]);
}

#[test]
fn pins_name_devices_of_the_file() {
    let devices = "[device]\ncores = [1]\nnodes = [\"hostA:7411\"]\nnics = [\"eth1\"]\n";
    for pin in ["host", "core", "core:1", "node", "node:hostA", "node:hostA:7411", "nic:eth1"] {
        let text = with(&format!("[[offcode]]\nname = \"b\"\non = \"{pin}\"\n{devices}"));
        let file = AppFile::parse(&text).expect("valid");
        assert_eq!(file.offcodes[0].on.as_ref().map(ToString::to_string).as_deref(), Some(pin));
    }
    let table = [
        ("core:2", "core:2 is no device of the file: add it to cores in [device]"),
        ("node:hostB", "node:hostB is no device of the file: add it to nodes in [device]"),
        ("host:1", "there is one host: write \"host\" alone"),
        ("core:x", "\"x\" is no processor's number: write such as core:1"),
        ("gpu", "\"gpu\" is none of host, core, node, nic"),
    ];
    for (pin, expected) in table {
        let text = with(&format!("[[offcode]]\nname = \"b\"\non = \"{pin}\"\n{devices}"));
        assert_eq!(fault(&text), format!("line 5: {expected}"));
    }
}

/// Texts and the first fault of each.
fn check(table: &[(String, &str)]) {
    for (text, expected) in table {
        assert_eq!(fault(text), *expected, "{text}");
    }
}

#[test]
fn faults_of_channels_have_lines_and_advice() {
    let channel = |words: &str| with(&format!("[[channel]]\n{words}\n"));
    check(&[
        (channel("from='b.x'"), "line 3: [[channel]] lacks the key \"to\": one end, or a list"),
        (
            channel("from='b'\nto='c.x'"),
            "line 4: \"b\" has no dot: write OFFCODE.PORT, or \"app\" for the application",
        ),
        (channel("from='b.x'\nto=['c.y','b.x']"), "line 5: b.x is twice an end of this channel"),
        (
            channel("from='b.x'\nto='c.y'\ndepth=0"),
            "line 6: \"depth\" is 0: write a whole number from 1 to 65536",
        ),
        (
            channel("from='b.x'\nto='c.y'\nmessage-max='1G'"),
            "line 6: \"message-max\" must be from 1 byte to 16MiB",
        ),
        (
            channel("from='b.x'\nto='c.y'\n[[channel]]\nfrom='b.x'\nto='d.y'"),
            "line 6: b.x sends into the channel of line 3 already: use another port, or give that \
             channel a list of receivers",
        ),
    ]);
}

#[test]
fn faults_have_lines_and_advice() {
    check(&[
        ("".to_owned(), "line 1: the file lacks the table [app] with the application's name"),
        ("[app]\n".into(), "line 1: [app] lacks the key \"name\""),
        (with("[[ofcode]]\n"), "line 3: the file has no key \"ofcode\"; did you mean offcode?"),
        (
            with("[[offcode]]\nname='b'\n[[offcode]]\nname='b'\n"),
            "line 5: the offcode b is there since line 3",
        ),
        (
            with("[[offcode]]\nname='app'\n"),
            "line 4: \"app\" is the application itself: give the offcode another name",
        ),
        (
            with("[[offcode]]\nname='b'\nwhen_lost='end'\n"),
            "line 5: [[offcode]] has no key \"when_lost\"; did you mean when-lost?",
        ),
        (
            with("[[layout]]\n"),
            "line 3: [[layout]] has no constraint: write pull, gang, gang-if or link = [\"a\", \
             \"b\"]",
        ),
        (
            with("[[layout]]\npull=['b','c']\ngang=['b','c']\n"),
            "line 3: [[layout]] has two constraints: write a table for each",
        ),
        (
            with("[[layout]]\ngang-if=['b','c','d']\n"),
            "line 3: \"gang-if\" is between two offcodes, not 3",
        ),
        (
            with("[[import]]\nfrom='a.b'\nto='c'\n[[import]]\nfrom='a.b'\nto='d'\n"),
            "line 6: a.b is assigned since line 3",
        ),
        (with("[device]\ncores=[1, 1]\n"), "line 3: [device] has 1 twice"),
        (with("[device]\nnodes=['b', 'b']\n"), "line 3: [device] has b twice"),
        (with("[[layout]]\npull='b'\n"), "line 3: \"pull\" is between two or more offcodes, not 1"),
    ]);
}

#[test]
fn files_are_bounded() {
    let many = "[[offcode]]\nname = 'b'\n".repeat(OFFCODES_MAX + 1);
    assert_eq!(fault(&with(&many)), "line 3: 1025 of \"offcode\": at most 1024 may be");
    let many = "[[channel]]\n".repeat(CHANNELS_MAX + 1);
    assert_eq!(fault(&with(&many)), "line 3: 4097 of \"channel\": at most 4096 may be");
    let long = format!("#{}", "x".repeat(APP_FILE_LEN_MAX));
    assert_eq!(fault(&with(&long)), "line 1: it has more than 1048576 bytes");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    /// Pieces of a layout file in any order, and any text between them.
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
        let _ = AppFile::parse(&text);
    }

    /// A layout file with one byte changed.
    #[test]
    fn no_change_makes_the_parser_panic(at in 0..WHOLE.len(), byte in 0_u8..128) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = AppFile::parse(&String::from_utf8_lossy(&bytes));
    }
}
