//! Texts that are read, and texts that are refused with words that help.

use super::*;

fn parse(body: &str) -> Result<Vec<Interface>, InterfaceError> {
    Interface::parse_wit("test.wit", &format!("package a:b@1.2.3;\n{body}"))
}

fn refusal(body: &str) -> String {
    parse(body).expect_err(body).to_string()
}

#[test]
fn several_interfaces_are_read_in_order() {
    let text = "interface one { record r { x: u8 } f: func(a: r, b: list<string>) -> option<u8>; }
        interface two { use one.{r as s}; g: func(); h: func(a: s) -> result<_, string>; }
        world w { import one; }";
    let read = parse(text).unwrap();
    let names: Vec<_> = read.iter().map(|interface| interface.name.to_string()).collect();
    assert_eq!(names, ["a:b/one@1.2.3", "a:b/two@1.2.3"]);
    assert_eq!(read[0].guid, crate::Guid::of_name("a:b/one@1.2.3"));
    let (index, h) = read[1].method("h").unwrap();
    assert_eq!((index, h.parameters[0].0.as_str()), (1, "a"));
    assert_eq!(h.parameters[0].1, read[0].methods[0].parameters[0].1);
    assert_eq!(h.result.as_ref().unwrap().to_string(), "result<_, string>");
    assert!(read[1].method("x").is_none());
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let table = [
        ("resource r; f: func(a: borrow<r>);", "resource"),
        ("resource r { constructor(); }", "resource"),
        ("f: func() -> stream<u8>;", "stream"),
        ("f: func() -> future<u8>;", "future"),
        ("f: async func();", "async"),
        ("f: func(a: error-context);", "error-context"),
    ];
    for (body, word) in table {
        let refusal = refusal(&format!("interface i {{ {body} }}"));
        assert!(refusal.contains(word), "{body}: {refusal}");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let flags: Vec<_> = (0..65).map(|index| format!("bit{index}")).collect();
    let doubled: String =
        (1..14).map(|n| format!("record r{n} {{ a: r{0}, b: r{0} }}\n", n - 1)).collect();
    let methods: String = (0..257).map(|n| format!("m{n}: func();\n")).collect();
    let deep = format!("type t = {}u8{};", "list<".repeat(40), ">".repeat(40));
    let table = [
        (format!("flags f {{ {} }}", flags.join(", ")), "65 flags"),
        (format!("record r0 {{ a: u8 }}\n{doubled}"), "nested deeper"),
        (methods, "257 methods"),
        (deep, "nested deeper"),
        ("record r {} f: func(a: list<r>);".into(), "take no bytes"),
        ("f: func(a: tuple<u8,u8,u8,u8,u8,u8,u8,u8,u8>);".into(), "9 items"),
        ("enum e { ab-cd, ab-CD }".into(), "two members"),
        ("a".repeat(WIT_LEN_MAX), "at most 65536"),
    ];
    for (body, words) in table {
        let refusal = refusal(&format!("interface i {{ {body} }}"));
        assert!(refusal.contains(words), "{words}: {refusal}");
    }
}

#[test]
fn long_chains_of_types_overflow_no_stack() {
    let chain: String = (1..3500).map(|n| format!("type t{n}=t{};", n - 1)).collect();
    let refusal = refusal(&format!("interface i {{ {chain} type t0=u8; }}"));
    assert!(refusal.contains("types"), "{refusal}");
}

#[test]
fn faults_of_texts_are_shown_where_they_are() {
    let refused = refusal("interface i { f: func(a: nothing); }");
    assert!(refused.contains("nothing") && refused.contains("test.wit:2"), "{refused}");
    let refused = Interface::parse_wit("x", "package a:b; interface i {}").unwrap_err();
    assert_eq!(refused, InterfaceError::NoVersion { package: "a:b".into() });
    assert!(refusal("interface i { use c:d/e.{f}; }").contains("c:d"));
    assert!(refusal("interface i { record r { x: option<r> } }").contains('r'));
}

#[test]
fn later_versions_serve_if_they_only_add() {
    let version = |version: &str, body: &str| {
        let text = format!("package a:b@{version}; interface i {{ {body} }}");
        Interface::parse_wit("x", &text).unwrap().remove(0)
    };
    let old = version("1.1.0", "f: func(a: u8);");
    assert_eq!(version("1.2.0", "f: func(a: u8); g: func();").serves(&old), Ok(()));
    let changed = version("1.2.0", "g: func(); f: func(a: u8);").serves(&old).unwrap_err();
    assert!(changed.to_string().contains("no equal method f"), "{changed}");
    assert!(version("2.0.0", "f: func(a: u8);").serves(&old).is_err());
    assert!(old.serves(&version("1.2.0", "f: func(a: u8);")).is_err());
}
