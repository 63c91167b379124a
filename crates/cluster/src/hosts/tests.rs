//! Tables of lists, errors with their positions, and round trips of random lists through text.

use super::*;
use proptest::prelude::*;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

#[track_caller]
fn list(text: &str) -> String {
    text.parse::<HostList>().map(|list| list.to_string()).unwrap_or_else(|error| error.to_string())
}

#[test]
fn lists_expand_in_order() {
    for (text, expanded) in [
        ("n1", "n1"),
        ("n[01-03]/4,big:7411/32", "n01/4,n02/4,n03/4,big:7411/32"),
        ("r[1-2]n[01-02]", "r1n01,r1n02,r2n01,r2n02"),
        ("n[1,3,5-7]", "n1,n3,n5,n6,n7"),
        ("n[3,1-2]x:80", "n3x:80,n1x:80,n2x:80"),
        ("n[8-11]", "n8,n9,n10,n11"),
        ("n[08-11]", "n08,n09,n10,n11"),
        ("n[098-101]", "n098,n099,n100,n101"),
        ("n[98-101]", "n98,n99,n100,n101"),
        ("n[099-100,7]", "n099,n100,n7"),
        ("n[08-101]", &(8..=101).map(|n| format!("n{n:02}")).collect::<Vec<_>>().join(",")),
        ("n[0-2]", "n0,n1,n2"),
        ("n[00-02]", "n00,n01,n02"),
        ("[1-3]", "1,2,3"),
        ("[1-2]a[3-4]", "1a3,1a4,2a3,2a4"),
        ("n[1][2]", "n12"),
        ("n[007]", "n007"),
        ("10.0.0.[1-3]:7411", "10.0.0.1:7411,10.0.0.2:7411,10.0.0.3:7411"),
        ("[::1]", "[::1]"),
        ("[::1]:7411/2", "[::1]:7411/2"),
        ("[2001:DB8:0::1]/3,n[1-2]", "[2001:db8::1]/3,n1,n2"),
        ("[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.1]:1"),
        ("a_b-c.example.org:65535/65535", "a_b-c.example.org:65535/65535"),
        ("n1/004", "n1/4"),
        ("b,a,c", "b,a,c"),
    ] {
        assert_eq!(list(text), expanded, "{text}");
    }
}

#[test]
fn commas_blanks_lines_and_comments_stand_between_hosts() {
    let text = "# the old ones\n\n  n[1-2] , n3\tn4 # and\r\nn5#six\nbig,\nbigger # last";
    assert_eq!(list(text), "n1,n2,n3,n4,n5,big,bigger");
}

#[test]
fn a_host_named_again_has_more_slots() {
    for (text, merged) in [
        ("a/2,b/1,a/3", "a/5,b/1"),
        ("n1\nn1\nn1\nn2\n", "n1,n2"),
        ("n[1-2]/4,n[2-3]/2", "n1/4,n2/6,n3/2"),
        ("a:1/2,a:2/2,a/2", "a:1/2,a:2/2,a/2"),
        ("[::1]/1,[0::1]/1", "[::1]/2"),
    ] {
        assert_eq!(list(text), merged, "{text}");
    }
}

/// A text, line, column and excerpt of its fault, and the fault.
type Row<'a> = (&'a str, (usize, usize, &'a str), Problem);

#[track_caller]
fn assert_fault((text, place, problem): Row<'_>) {
    match HostList::parse(text, "here") {
        Err(HostsError::Text { source_name, line, column, excerpt, problem: found }) => {
            assert_eq!((line, column, &*excerpt), place, "{text:?}");
            assert_eq!((found, &*source_name), (problem, "here"), "{text:?}");
        }
        other => panic!("{text:?} gives {other:?}"),
    }
}

#[test]
fn errors_in_names_point_at_their_place() {
    for row in [
        (",a", (1, 1, ","), Problem::NoHost),
        ("a,,b", (1, 3, ","), Problem::NoHost),
        ("a, b,\n# no more\n", (1, 5, ","), Problem::NoHost),
        (":7411", (1, 1, ":7411"), Problem::NoName),
        ("a,/4", (1, 3, "/4"), Problem::NoName),
        ("a\nb\n  ü1", (3, 3, "ü"), Problem::Character),
        ("n1!", (1, 3, "!"), Problem::Character),
        ("a -b", (1, 3, "-b"), Problem::Dash),
        ("n[1-3", (1, 2, "[1-3"), Problem::Bracket),
        ("n[1-3\nm]", (1, 2, "[1-3"), Problem::Bracket),
        ("n[1[2]]", (1, 2, "[1"), Problem::Bracket),
        ("n1-3]", (1, 5, "]"), Problem::Bracket),
        ("n[]", (1, 3, ""), Problem::Group),
        ("n[1,,2]", (1, 5, ""), Problem::Group),
        ("n[1-]", (1, 3, "1-"), Problem::Group),
        ("n[-1]", (1, 3, "-1"), Problem::Group),
        ("n[1-2-3]", (1, 3, "1-2-3"), Problem::Group),
        ("n[1, 2]", (1, 5, " 2"), Problem::Group),
        ("n[+1]", (1, 3, "+1"), Problem::Group),
        ("n[a]", (1, 3, "a"), Problem::Group),
        ("n[1:2]", (1, 3, "1:2"), Problem::Group),
        ("n[1234567890123456789]", (1, 3, "1234567890123456789"), Problem::Group),
        ("a,n[1,14-01]", (1, 7, "14-01"), Problem::Backwards),
        ("n[1-014]", (1, 3, "1-014"), Problem::Padding),
        ("n[01-010]", (1, 3, "01-010"), Problem::Padding),
        ("n[1-999999999]", (1, 1, "n[1-999999999]"), Problem::TooMany),
        ("n[0-999999999999999999]", (1, 1, "n[0-999999999999999999]"), Problem::TooMany),
        ("a[1-300]b[1-300]", (1, 1, "a[1-300]b[1-300]"), Problem::TooMany),
        ("n[1-40000],n[1-40000]/1", (1, 12, "n[1-40000]"), Problem::TooMany),
        ("n[1-70000]", (1, 1, "n[1-70000]"), Problem::TooMany),
    ] {
        assert_fault(row);
    }
}

#[test]
fn errors_in_addresses_ports_and_slots_point_at_their_place() {
    for row in [
        ("[::1", (1, 1, "[::1"), Problem::Bracket),
        ("[::g]", (1, 1, "[::g]"), Problem::Address),
        ("[fe80::1%eth0]:1", (1, 1, "[fe80::1%eth0]"), Problem::Address),
        ("[::1]x", (1, 1, "[::1]x"), Problem::Address),
        ("[1:2]", (1, 1, "[1:2]"), Problem::Address),
        ("a ::1/2", (1, 3, "::1"), Problem::Bare),
        ("2001:db8::1", (1, 1, "2001:db8::1"), Problem::Bare),
        ("n1:", (1, 3, ":"), Problem::Port),
        ("n1:0", (1, 3, ":0"), Problem::Port),
        ("n1:65536/2", (1, 3, ":65536"), Problem::Port),
        ("n1:+80", (1, 3, ":+80"), Problem::Port),
        ("n1:80:90", (1, 3, ":80:90"), Problem::Port),
        ("n1:[1-2]", (1, 3, ":"), Problem::Character),
        ("n1/", (1, 3, "/"), Problem::Slots),
        ("n1/0", (1, 3, "/0"), Problem::Slots),
        ("n1/65536", (1, 3, "/65536"), Problem::Slots),
        ("n1/4:80", (1, 3, "/4:80"), Problem::Slots),
        ("n1/65535 n2 n1/1", (1, 13, "n1/1"), Problem::Slots),
        ("n1/4\nn[1-2]", (2, 1, "n[1-2]"), Problem::SlotsOnce),
        ("n1,n1/4", (1, 4, "n1/4"), Problem::SlotsOnce),
    ] {
        assert_fault(row);
    }
}

#[test]
fn names_have_an_end() {
    let longest = "x".repeat(253);
    assert_eq!(list(&longest), longest);
    for text in ["x".repeat(254), format!("{}[09-10]", &longest[1..]), "[1]".repeat(254)] {
        match text.parse::<HostList>() {
            Err(HostsError::Text { problem: Problem::LongName, excerpt, .. }) => {
                assert_eq!(excerpt.chars().count(), 41, "cut short: {excerpt}");
            }
            other => panic!("{text:?} gives {other:?}"),
        }
    }
}

#[test]
fn a_list_may_have_65536_hosts() {
    let list: HostList = "n[1-60000],m[00001-05536]".parse().expect("just as many");
    assert_eq!(list.hosts().len(), HOSTS_MAX);
    assert!("n[1-60000],m[00001-05536],x".parse::<HostList>().is_err());
}

#[test]
fn an_error_is_one_line_that_says_what_to_do() {
    assert_eq!(
        list("n[01-14]/4,\nbig:port"),
        "host list, line 2, column 4, at \":port\": a port is a number from 1 to 65535"
    );
    assert!(list("n\u{1b}[1]").starts_with("host list, line 1, column 2, at \"\\u{1b}\": a host"));
    for empty in ["", " \n", "# none\n"] {
        let expected = "host list names no host: write one or more, like n[01-14]/4,big:7411/32";
        assert_eq!(list(empty), expected);
    }
}

fn variables(set: &[(&str, &str)]) -> Result<Option<HostList>, HostsError> {
    HostList::from_environment(|name| {
        let found = set.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| OsString::from(value))
    })
}

#[test]
fn peoples_variable_goes_before_the_schedulers() {
    let shown = |set| variables(set).map(|list| list.map(|list| list.to_string()));
    let slurm = ("SLURM_JOB_NODELIST", "n[01-02]");
    for (set, expected) in [
        (&[][..], None),
        (&[("OUTBOARD_HOSTS", " ")], None),
        (&[slurm], Some("n01,n02")),
        (&[("OUTBOARD_HOSTS", "a/1"), slurm], Some("a/1")),
        (&[("OUTBOARD_HOSTS", ""), slurm], Some("n01,n02")),
    ] {
        assert_eq!(shown(set).expect("lists").as_deref(), expected, "{set:?}");
    }
    let error = variables(&[("OUTBOARD_HOSTS", "a/0"), slurm]).expect_err("no slots");
    assert!(error.to_string().starts_with("OUTBOARD_HOSTS, line 1, column 2"), "{error}");
    let binary = HostList::from_environment(|_| Some(OsString::from_vec(vec![0xff])));
    assert!(matches!(binary, Err(HostsError::NotText { .. })), "{binary:?}");
}

#[test]
fn a_file_is_a_list() {
    let path = std::env::temp_dir().join(format!("outboard-hosts-{}", std::process::id()));
    fs::write(&path, "# rack 1\nn[01-02]/4 # old\nbig:7411/32\n").expect("a file");
    let read = HostList::read(&path).map(|list| list.to_string());
    fs::write(&path, "n1\nn[2").expect("a file");
    let wrong = HostList::read(&path).expect_err("a bracket is open").to_string();
    fs::write(&path, [0xff, 0xfe]).expect("a file");
    let binary = HostList::read(&path);
    fs::remove_file(&path).expect("it is ours");
    assert_eq!(read.expect("a list"), "n01/4,n02/4,big:7411/32");
    assert!(wrong.starts_with(&format!("{}, line 2, column 2", path.display())), "{wrong}");
    assert!(matches!(binary, Err(HostsError::NotText { .. })), "{binary:?}");
    let missing = HostList::read(&path);
    assert!(matches!(missing, Err(HostsError::File { .. })), "{missing:?}");
    let endless = HostList::read(Path::new("/dev/zero"));
    assert!(matches!(endless, Err(HostsError::TooLong { .. })), "{endless:?}");
}

fn any_name() -> impl Strategy<Value = String> {
    let group = prop_oneof![
        "\\[[0-9]{1,3}\\]",
        (0u32..50, 0u32..6, 0usize..4).prop_map(|(low, more, digits)| {
            format!("[{low:0digits$}-{:0digits$}]", low + more)
        }),
    ];
    let piece = prop_oneof![3 => "[a-z0-9_.]{1,4}", 1 => group];
    let name = prop::collection::vec(piece, 1..5).prop_map(|pieces| pieces.concat());
    let address = any::<u128>().prop_map(|bits| format!("[{}]", std::net::Ipv6Addr::from(bits)));
    prop_oneof![4 => name, 1 => address]
}

prop_compose! {
    fn any_entry()(
        name in any_name(),
        port in prop::option::of(1u16..),
        slots in prop::option::of(1u32..100),
    ) -> String {
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let slots = slots.map(|slots| format!("/{slots}")).unwrap_or_default();
        format!("{name}{port}{slots}")
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_list_reads_back_from_its_text(entries in prop::collection::vec(any_entry(), 1..6)) {
        match entries.join(",").parse::<HostList>() {
            Ok(list) => {
                let again = list.to_string().parse::<HostList>();
                prop_assert_eq!(again.expect("it was a list"), list);
            }
            // Two random entries may name one host, with slots and without.
            Err(HostsError::Text { problem: Problem::SlotsOnce, .. }) => {}
            Err(error) => prop_assert!(false, "{:?}: {}", entries, error),
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[n0-9\\[\\],:/# \n-]{0,30}|\\PC{0,30}") {
        match text.parse::<HostList>() {
            Ok(list) => prop_assert!(!list.hosts().is_empty()),
            Err(HostsError::Text { line, column, .. }) => {
                let line = text.split('\n').nth(line - 1).expect("a line of the text");
                prop_assert!(column <= line.chars().count() + 1);
            }
            Err(HostsError::Empty { .. }) => {}
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}
