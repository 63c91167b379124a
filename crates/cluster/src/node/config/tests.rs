//! Configurations that are right, and faults with their lines.

use super::*;
use outboard_secure::ServiceName;
use std::process::ExitCode;

fn check(table: ServiceTable<'_>) -> Result<Needs, TableError> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Own {
        x: Vec<u32>,
        place: Option<PathBuf>,
    }
    let own: Own = table.read()?;
    if own.x.len() > 2 {
        return Err(TableError::new("x has at most two numbers"));
    }
    if own.x == [0] {
        return Err(TableError::incomplete("x has only a 0"));
    }
    Ok(Needs { directories: own.place.into_iter().collect(), ..Needs::default() })
}

fn spec(name: &'static str, by_default: bool) -> ServiceSpec {
    ServiceSpec { name, by_default, check, run: |_| ExitCode::SUCCESS }
}

fn known() -> Vec<ServiceSpec> {
    vec![spec("a", true), spec("b", false)]
}

fn parse(text: &str) -> NodeConfig {
    file::parse(text, &known()).expect("a configuration")
}

#[test]
fn flags_go_before_the_file() {
    let file = parse("slots = 2\nserve = [\"b\", \"a\", \"b\"]\n[a]\nx = [1]\nplace = \"/p\"\n");
    let flags = NodeConfig { slots: Some(3), ..NodeConfig::default() };
    let config = file.overridden_by(flags);
    let needs = config.check(&known()).expect("right");
    assert_eq!(needs["a"].directories, [PathBuf::from("/p")]);
    assert_eq!(needs["b"], Needs::default());
    assert_eq!((config.slots, config.served(&known())), (Some(3), vec!["a".into(), "b".into()]));
    assert_eq!(config.table("a"), serde_json::json!({ "x": [1], "place": "/p" }));
    assert_eq!(config.table("b"), serde_json::json!({}));
    assert_eq!(config.addresses(), ["127.0.0.1:7410".parse().expect("an address")]);
}

#[test]
fn nothing_is_served_but_what_is_named_or_a_default() {
    assert_eq!(parse("").served(&known()), ["a"]);
    assert_eq!(parse("serve = []").served(&known()), [""; 0]);
    assert_eq!(parse("serve = [\"b\"]").served(&known()), ["b"]);
}

#[test]
fn what_a_file_leaves_out_flags_may_add_before_the_service_is_served() {
    let file = parse("[b]\nx = [0]");
    assert!(file.check(&known()).is_ok(), "it is not served");
    let served = NodeConfig { serve: Some(vec!["b".into()]), ..file };
    let refused = served.check(&known()).expect_err("incomplete").to_string();
    assert_eq!(refused, "the table [b]: x has only a 0");
    let flags = parse("[b]\nx = [1]");
    assert!(served.overridden_by(flags).check(&known()).is_ok());
}

#[test]
fn a_service_has_slots_of_its_own() {
    let config = parse("slots = 4\n[a]\nslots = 2\nx = [1]\n");
    assert_eq!((config.slots_of("a"), config.slots_of("b")), (2, 4));
    assert_eq!(config.table("a"), serde_json::json!({ "x": [1] }));
}

#[test]
fn faults_have_lines() {
    let directory = std::env::temp_dir().join(format!("outboard-config-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join("node.toml");
    for (text, line, what) in [
        ("\nslot = 2", 2, "\"slot\" is neither"),
        ("slots = 1\n\na = 2", 3, "\"a\" is neither"),
        ("[c]\nx = 1", 1, "\"c\" is neither"),
        ("# one\nserve = [\"c\"]", 2, "no service \"c\""),
        ("slots = 2\nslots = 3", 2, "duplicate key"),
        ("listen = 3", 1, "invalid type"),
        ("listen = [\"127.0.0.1:1\",\n\"here\"]", 2, "invalid socket address"),
        ("slots = 0", 1, "1 to 1024 slots"),
        ("sessions = 0", 1, "lets no identity in"),
        ("user = \"root\"", 1, "user \"root\""),
        ("\n[a]\nx = [1]\ny = 2", 4, "the table [a]: unknown field `y`"),
        ("[a]\nx = [1]\n\nslots = 0", 1, "slots: a service has"),
        ("[a]\nx = [\"one\"]", 2, "the table [a]: invalid type"),
        ("slots = 1\n[a]\nx = [1, 2, 3]", 2, "x has at most two numbers"),
        ("\n[tenant.12]\nslots = 1", 2, "32 hexadecimal digits"),
        ("[tenant.2f9d1c0a4b7e8d6655aa0c1b2d3e4f50]\nslot = 1", 2, "unknown field `slot`"),
        ("slots = 1\n[reach.a]\nb = \"n[2-1]\"", 2, "[reach.a] b: "),
        ("[reach.c]\nb = \"*\"", 1, "no service \"c\""),
    ] {
        std::fs::write(&path, text).expect("written");
        let error = NodeConfig::read(&path, &known()).expect_err(text).to_string();
        let place = format!("node.toml, line {line}: ");
        assert!(error.contains(&place) && error.contains(what), "{text:?}: {error}");
    }
    std::fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn a_file_without_a_length_is_read_up_to_the_limit_only() {
    let path = std::env::temp_dir().join(format!("outboard-config-pipe-{}", std::process::id()));
    let write_through_a_pipe = |text: String| {
        let _left = std::fs::remove_file(&path);
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success());
        let pipe = path.clone();
        // The reader may leave before the end.
        let writer = std::thread::spawn(move || drop(std::fs::write(pipe, text)));
        let read = NodeConfig::read(&path, &known());
        writer.join().expect("it ends");
        read
    };
    let short = write_through_a_pipe("slots = 3".into()).expect("a configuration");
    assert_eq!(short.slots, Some(3));
    let long = write_through_a_pipe("# more and more\n".repeat(1 << 17)).expect_err("too long");
    assert!(long.to_string().contains("too large"), "{long}");
    std::fs::remove_file(&path).expect("it is there");
}

#[test]
fn tenants_may_use_less() {
    let one: NodeId = "2f9d1c0a4b7e8d6655aa0c1b2d3e4f50".parse().expect("a node");
    let text = format!("[tenant.{one}]\nserve = [\"a\"]\nsessions = 2\nslots = 9\n");
    let config = parse(&text);
    let tenants = config.tenants().expect("right");
    let grants = policy::Grants { tenants, sessions: config.sessions_or_own() };
    assert_eq!(grants.of(one, "a", 4), Some(Grant { sessions: 2, slots: 4 }));
    assert_eq!(grants.of(one, "b", 4), None);
    let other = NodeId::of(&[1; 32]);
    assert_eq!(grants.of(other, "b", 4), Some(Grant { sessions: SESSIONS, slots: 4 }));
}

#[test]
fn a_service_reaches_what_its_operator_names() {
    let config = parse("[reach.a]\nb = \"n[1-2],m:7\"\nelse = \"*\"\n");
    let reach = config.reachable().expect("right");
    let at = |text: &str| {
        let hosts: crate::hosts::HostList = text.parse().expect("a host");
        hosts.hosts()[0].clone()
    };
    let [b, any]: [ServiceName; 2] = ["b", "else"].map(|name| name.parse().expect("a name"));
    assert!(reach.allows("a", &b, &at("n2")) && reach.allows("a", &b, &at("n1:80")));
    assert!(reach.allows("a", &b, &at("m:7")) && !reach.allows("a", &b, &at("m:8")));
    assert!(!reach.allows("a", &b, &at("n3")) && !reach.allows("b", &b, &at("n1")));
    assert!(reach.allows("a", &any, &at("anything")));
}
