//! Receivers that are started by a command that runs here, as `ssh` would.

use super::*;
use crate::schedule::ScheduleKind;
use crate::sign::ChunkLen;
use crate::source::{CastRequest, cast};
use crate::tree::CastSource;
use std::fs;
use std::path::Path;

/// A command in place of ssh: it gets a host and a line.
fn way(script: &str, hosts: &str) -> LaunchWay {
    let words = ["sh", "-c", script].map(str::to_owned).to_vec();
    LaunchWay::Command { words, hosts: hosts.parse().expect("hosts") }
}

fn request(way: LaunchWay) -> LaunchRequest {
    LaunchRequest {
        way,
        program: "outboard".into(),
        destination: "/tmp".into(),
        missing: MissingDestination::Refuse,
        limit: Duration::from_secs(20),
        log: None,
    }
}

fn why(script: &str) -> String {
    LaunchedReceivers::start(&request(way(script, "n1"))).expect_err("it fails").to_string()
}

#[test]
fn what_starts_no_receiver_says_why() {
    assert!(why("echo 'Permission denied (publickey).' >&2; exit 255").contains("publickey"));
    assert!(why("exit 0").contains("without a word"));
    let line = Announcement {
        node: None,
        state: super::super::announcement::AnnouncedState::Failed { why: "no room".into() },
    };
    assert!(why(&format!("echo '{}'; cat >/dev/null", line.line().trim_end())).contains("no room"));
    let mut late = request(way("exec sleep 60", "n1"));
    late.limit = Duration::from_millis(300);
    let error = LaunchedReceivers::start(&late).expect_err("it is late").to_string();
    assert!(error.contains("did not start within"), "{error}");
    let mut none = request(way("true", "n1"));
    none.way = LaunchWay::Command {
        words: vec!["/does/not/exist".into()],
        hosts: "n1".parse().expect("a host"),
    };
    assert!(LaunchedReceivers::start(&none).expect_err("none").to_string().contains("not/exist"));
}

#[test]
fn the_node_that_srun_could_not_reach_is_understood() {
    // Slurm 22.05.
    let line = "srun: error: Task launch for StepId=2.0 failed on node n3: Communication \
                connection failure";
    assert_eq!(failed_node(line), Some("n3"));
    assert_eq!(failed_node("srun: error: n2: task 1: Killed"), None);
}

#[test]
fn a_source_takes_no_other_process_for_a_receiver_of_its_own() {
    let credentials_of = |key: &ClusterKey| {
        credentials(key.service(&SERVICE.parse().expect("a name"))).expect("random numbers")
    };
    let key = ClusterKey::generate().expect("random numbers");
    let (own, there) = (credentials_of(&key), credentials_of(&key));
    let here = "127.0.0.1:0".parse().expect("an address");
    let mut listener =
        outboard_cluster::node::SessionListener::bind(here, Arc::clone(&there)).expect("a port");
    let address = listener.address().expect("bound");
    let dial = |identity: NodeId| {
        let receiver = LaunchedReceiver { node: "n1".into(), address, identity };
        let hosts: HostList = address.to_string().parse().expect("a host");
        let launched = LaunchedReceivers {
            children: Vec::new(),
            credentials: Arc::clone(&own),
            receivers: vec![receiver],
            hosts: hosts.clone(),
            failed: Vec::new(),
        };
        let dial = launched.dial();
        std::thread::spawn(move || dial(&hosts.hosts()[0], Duration::from_secs(10)).map(drop))
    };
    for (identity, is_taken) in [(there.identity.node(), true), (own.identity.node(), false)] {
        let dialling = dial(identity);
        while !dialling.is_finished() {
            drop(listener.turn(Instant::now()).expect("a turn"));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(dialling.join().expect("no panic").is_ok(), is_taken);
    }
}

/// The receiver's end in a thread of this process, with pipes for its standard streams.
#[test]
fn a_receiver_serves_one_cast_of_its_own_source_and_ends() {
    let [source, destination] = [0, 1].map(|_| tempfile::tempdir().expect("a directory"));
    fs::write(source.path().join("file"), b"contents").expect("written");
    let key = ClusterKey::generate().expect("random numbers");
    let key = key.service(&SERVICE.parse().expect("a name"));
    let own = credentials(key.clone()).expect("random numbers");
    let there = destination.path().join("made");
    let cast_once = |dialler: &Arc<Credentials>| {
        let terms = InvitationTerms::new(own.identity.node(), &there, MissingDestination::Make);
        let (input, mut writer) = std::io::pipe().expect("a pipe");
        let text = Invitation::text(&key, &terms);
        std::io::Write::write_all(&mut writer, text.as_bytes()).expect("it fits");
        let (mut reader, mut output) = std::io::pipe().expect("a pipe");
        let receiving = std::thread::spawn(move || {
            let variable =
                |name: &str| (name == "SLURM_LAUNCH_NODE_IPADDR").then(|| "127.0.0.1".into());
            let input = std::os::fd::AsFd::as_fd(&input);
            super::super::receive(input, &mut output, variable)
        });
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(&mut reader), &mut line)
            .expect("a line");
        let (address, _) = Announcement::parse(&line).expect("a line").receiver().expect("well");
        let outcome = cast(cast_request(source.path(), &there, (address, dialler)));
        let results = outcome.expect("a cast").nodes;
        // The one that was not let in leaves it waiting; else it ends though its input is open.
        let open = results[0].result.is_ok().then_some(writer);
        receiving.join().expect("no panic").expect("it ends well");
        drop(open);
        results[0].result.clone()
    };
    let other = credentials(key.clone()).expect("random numbers");
    let refused = cast_once(&other).expect_err("another source");
    assert!(!refused.is_empty());
    assert!(!there.join("file").exists());
    assert_eq!(cast_once(&own), Ok(1));
    assert_eq!(fs::read(there.join("file")).expect("published"), b"contents");
}

fn cast_request(
    source: &Path,
    destination: &Path,
    (address, own): (SocketAddr, &Arc<Credentials>),
) -> CastRequest {
    let sources = vec![CastSource::new(&source.join("file")).expect("a name")];
    let nodes = address.to_string().parse().expect("a host");
    CastRequest {
        chunk_len: Some(ChunkLen::new(64 << 10).expect("a power of two")),
        kind: Some(ScheduleKind::Star),
        ..CastRequest::new(sources, destination.into(), nodes, dial_with(own))
    }
}
