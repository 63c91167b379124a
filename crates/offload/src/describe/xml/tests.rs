//! Tests of the paper's XML: figure 2 as it is printed, and worse.

use super::*;

/// Figure 2, letter by letter.
const FIGURE: &str = include_str!("figure2.xml");

fn fault(text: &str) -> String {
    match OffcodeFile::parse_xml(text) {
        Ok(found) => panic!("taken: {found:?}"),
        Err(fault) => fault.to_string(),
    }
}

#[test]
fn figure_2_is_read_as_it_stands() {
    let (file, _) = OffcodeFile::parse_xml(FIGURE).expect("figure 2");
    assert_eq!(file.name.as_str(), "hydra-net-utils-netapi");
    assert_eq!(file.guid.as_u128(), 6_060_842);
    assert_eq!(file.interfaces[0].as_str(), "hydra:net-utils/netapi@1.0.0");
    let body = OffcodeBody::Wasm {
        file: "lib/offcodes/NetLib.oc".parse().expect("a path"),
        libraries: vec!["lib/stubs/NetLibStub.oc".parse().expect("a path")],
        link: LinkPlace::Device,
    };
    assert_eq!(file.bodies, [body]);
    let import = OffcodeImport {
        name: "checksum".parse().expect("a name"),
        interface: "hydra:net-utils/checksum@1.0.0".parse().expect("a name"),
        offcode: Some("hydra-net-utils-checksum".into()),
        guid: Some(Uuid::from_u128(6_060_843)),
        reference: ReferenceKind::Pull,
        priority: Some(0),
        line: 21,
    };
    assert_eq!(file.imports, [import]);
}

#[test]
fn what_figure_2_leaves_open_is_said() {
    let (_, assumptions) = OffcodeFile::parse_xml(FIGURE).expect("figure 2");
    let shown: Vec<String> = assumptions.iter().map(ToString::to_string).collect();
    assert_eq!(shown, EXPECTED);
}

const EXPECTED: &[&str] = &[
    "line 1: the name Hydra.net.utils.NetAPI is written hydra-net-utils-netapi here",
    "line 1: there is no version: 1.0.0 is taken",
    "line 1: Hydra.net.utils.NetAPI names its interface, too: hydra:net-utils/netapi@1.0.0 \
     is taken",
    "line 2: the GUID 6060842 is a number: read as the UUID \
     00000000-0000-0000-0000-0000005c7b2a",
    "line 8: /lib/offcodes/NetLib.oc is taken from the package's directory",
    "line 8: lib/offcodes/NetLib.oc does not say what it is: taken for a WebAssembly module",
    "line 10: /lib/stubs/NetLibStub.oc is taken from the package's directory",
    "line 10: lib/stubs/NetLibStub.oc is a further file of the device: taken for a library",
    "line 13: the host's os \"Linux FC4\" plays no part: left out",
    "line 14: the host's ver \"2.6.10\" plays no part: left out",
    "line 15: /lib/proxy/NetLibProxy.so is native code of a host, which is never loaded: \
     left out, a generated proxy takes its place",
    "line 21: the name Hydra.net.utils.Checksum is written hydra-net-utils-checksum here",
    "line 21: the import has no name of its own: checksum is taken",
    "line 21: Hydra.net.utils.Checksum names its interface, too: \
     hydra:net-utils/checksum@1.0.0 is taken",
    "line 22: the attribute type has no quotes: read as Pull",
    "line 22: the attribute pri has no quotes: read as 0",
    "line 22: <reference> is not closed: taken for an empty element <reference/>",
    "line 24: the GUID 6060843 is a number: read as the UUID \
     00000000-0000-0000-0000-0000005c7b2b",
    "line 25: the path \"/lib/offcodes/checksum.oc\" is in quotes: taken without",
    "line 25: /lib/offcodes/checksum.oc is taken from the package's directory",
    "line 25: lib/offcodes/checksum.oc belongs to the package hydra-net-utils-checksum, \
     whose own description names it: left out",
    "line 31: the attribute id has no quotes: read as 0x0001",
    "line 31: the hardware \"Netgear GA-620T\" is not looked for: any device that runs a \
     body will do",
];

#[test]
fn well_formed_text_needs_no_more_than_its_contents() {
    let text = "<?xml version=\"1.0\"?><!DOCTYPE offcode>\n<offcode bindname='sum'>\n\
        <package><device><file>sum.wasm</file></device></package>\n\
        <sw-env><import><reference type=\"Gang\" pri=\"7\"/><bindname>a.b</bindname></import>\n\
        </sw-env></offcode>";
    let (file, assumptions) = OffcodeFile::parse_xml(text).expect("valid");
    assert_eq!(file.name.as_str(), "sum");
    assert_eq!(file.guid, OffcodeFile::derived_guid(&file.name, &file.version));
    assert_eq!(
        (file.imports[0].reference, file.imports[0].priority),
        (ReferenceKind::Gang, Some(7))
    );
    let shown: Vec<String> = assumptions.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "line 2: there is no version: 1.0.0 is taken",
            "line 2: sum names its interface, too: hydra:sum/sum@1.0.0 is taken",
            "line 4: the name a.b is written a-b here",
            "line 4: the import has no name of its own: b is taken",
            "line 4: a.b names its interface, too: a:b/b@1.0.0 is taken",
        ]
    );
}

#[test]
fn broken_text_is_read_as_far_as_it_goes() {
    let text = "é<é</x><offcode bindname=a & b></y><package><device><file>a &amp; b.wasm";
    let (file, assumptions) = OffcodeFile::parse_xml(text).expect("understood");
    let OffcodeBody::Wasm { file, .. } = &file.bodies[0] else { panic!("no module") };
    assert_eq!(file.as_str(), "a & b.wasm");
    let shown: Vec<&str> = assumptions.iter().map(|each| each.text.as_str()).collect();
    for expected in [
        "</x> closes nothing: ignored",
        "the attribute bindname has no quotes: read as a",
        "the attribute b has no value: read as empty",
        "</y> closes nothing: ignored",
        "<file> is not closed: taken as closed at the end",
    ] {
        assert!(shown.contains(&expected), "{expected:?} is not in {shown:#?}");
    }
}

#[test]
fn what_no_assumption_helps_against_is_refused() {
    let device = "<package><device><file>a.wasm</file></device></package>";
    let import = |words: &str| {
        format!("<offcode bindname='a'>{device}<sw-env><import>{words}</import></sw-env></offcode>")
    };
    let table = [
        (String::new(), "line 1: there is no element <offcode bindname=\"…\">"),
        ("<offcode/>".into(), "line 1: <offcode> has no bindname"),
        ("<offcode bindname='a'/>".into(), "line 1: there is no element <package>"),
        (
            "<offcode bindname='a'>\n<package/></offcode>".into(),
            "line 2: no <device> of the package has a <file>",
        ),
        (
            "<offcode bindname='a'><package><device>\n<file>../x</file>".into(),
            "line 2: \"../x\" is no path inside a package: write a path below the directory of the \
             description, without .. and not beginning with /",
        ),
        (import(""), "line 1: <import> has no bindname"),
        (
            import("<bindname>b</bindname><reference type=Push>"),
            "line 1: the reference's type \"Push\" is none of Link, Pull, Gang, Gang-If",
        ),
        (
            import("<bindname>b</bindname><reference type=Pull pri=high>"),
            "line 1: the priority \"high\" is no number from 0 to 255",
        ),
        (
            import("<bindname>b</bindname><GUID>x</GUID>"),
            "line 1: \"x\" is no GUID: write a number or a UUID",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(fault(&text), expected, "{text}");
    }
}

#[test]
fn descriptions_are_bounded() {
    assert!(fault(&"<a>".repeat(33)).contains("at most 32 elements inside each other"));
    assert!(fault(&"<a/>".repeat(4097)).contains("at most 4096 elements"));
    assert!(fault(&format!("<a {}>", "b=c ".repeat(33))).contains("at most 32 attributes"));
    assert!(fault(&" ".repeat(OFFCODE_FILE_LEN_MAX + 1)).contains("more than 262144 bytes"));
    let many = "</x>".repeat(1000);
    let markup = Markup::parse(&many, &[]).expect("understood");
    assert_eq!(markup.assumptions.len(), 256);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    /// Pieces of the figure in any order, and any text between them.
    #[test]
    fn no_text_makes_the_reader_panic(
        pieces in proptest::collection::vec(0..FIGURE.len(), 0..12),
        noise in "[<>/=a-z\"'& é!\\[\\]-]{0,40}",
    ) {
        let mut text = String::new();
        for at in pieces {
            let end = (at + 50).min(FIGURE.len());
            text.push_str(&String::from_utf8_lossy(&FIGURE.as_bytes()[at..end]));
            text.push_str(&noise);
        }
        let _ = OffcodeFile::parse_xml(&text);
        let _ = OffcodeFile::parse_xml(&format!("{FIGURE}{noise}"));
    }
}
