//! The service in its real place: a node's process, started, killed and ended as an operator or a
//! fault may. This program is the node and the service, too: it starts itself.

#[path = "support/modules.rs"]
#[expect(dead_code, reason = "another test uses the rest")]
mod modules;

use libtest_mimic::{Arguments, Trial};
use modules::{basics, word};
use outboard_active::service::{check_table, serve};
use outboard_active::{
    ActiveCall, ActiveClient, ActiveClientOptions, ModuleHash, RemoteRegion, WaitMode,
};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::{Host, HostList};
use outboard_cluster::keys::KeyPaths;
use outboard_cluster::node::{NodeConfig, ServiceSpec, Supervisor};
use outboard_secure::{ClusterKey, Credentials, Fabric, Identity, Revoked, ServiceName};
use outboard_verbs::Context;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// What makes this program a service, and a node.
const SERVICE: &str = "be-a-service";
const NODE: &str = "be-a-node";

const SERVICES: &[ServiceSpec] =
    &[ServiceSpec { name: "active", by_default: true, check: check_table, run: serve }];

/// Longer than any step takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [hidden, name] if hidden == SERVICE => outboard_cluster::node::serve(name, SERVICES),
        [hidden, directory] if hidden == NODE => match node(Path::new(directory)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        _ => {
            let trial = |name: &str, run: fn()| {
                let run = move || {
                    run();
                    Ok(())
                };
                Trial::test(name, run)
            };
            let trials = vec![
                trial("calls_are_executed_once_across_kills", calls_are_executed_once_across_kills),
                trial("a_node_that_ends_keeps_its_file", a_node_that_ends_keeps_its_file),
                trial("a_revoked_identity_is_shut_out", a_revoked_identity_is_shut_out),
            ];
            libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
        }
    }
}

fn node(directory: &Path) -> Result<(), Box<dyn Error>> {
    let config = NodeConfig::read(&directory.join("node.toml"), SERVICES)?;
    let places = KeyPaths::beneath(directory);
    let supervisor = Supervisor::new(config, places, SERVICES, vec![SERVICE.into()])?;
    println!("{}", supervisor.addresses()[0]);
    Ok(supervisor.run()?)
}

/// A node that runs, with its directory.
struct Node {
    child: Child,
    host: Host,
    directory: tempfile::TempDir,
}

impl Node {
    fn start(directory: tempfile::TempDir, table: &str) -> Self {
        let settings = format!("listen = [\"127.0.0.1:0\"]\n{table}");
        fs::write(directory.path().join("node.toml"), settings).expect("written");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(NODE).arg(directory.path()).stdout(Stdio::piped());
        command.env("XDG_CACHE_HOME", directory.path().join("cache"));
        let mut child = command.spawn().expect("a node");
        let mut line = String::new();
        let mut told = BufReader::new(child.stdout.take().expect("piped"));
        told.read_line(&mut line).expect("a line");
        let hosts: HostList = line.trim().parse().expect("a host");
        Self { child, host: hosts.hosts()[0].clone(), directory }
    }

    fn identity(&self) -> Arc<Credentials> {
        let key = ClusterKey::load_or_create(&self.directory.path().join("key")).expect("a key");
        let name: ServiceName = "active".parse().expect("a name");
        Arc::new(Credentials {
            identity: Identity::generate().expect("random numbers"),
            keys: [key.service(&name)].into_iter().collect(),
            fabric: Fabric::Untrusted,
            revoked: Revoked::default(),
        })
    }

    fn client(&self, own: &Arc<Credentials>) -> ActiveClient {
        let (dialer, host) = (Dialer::new(Arc::clone(own)), self.host.clone());
        let name: ServiceName = "active".parse().expect("a name");
        let dial = move |limit| {
            let dialled = dialer.dial(&host, &name, Instant::now() + limit);
            dialled.map_err(|error| error.to_string())
        };
        let options =
            ActiveClientOptions { wait: WaitMode::Adaptive, limit: SOON, in_flight: 1024 };
        let context = Context::open().expect("a context");
        ActiveClient::connect(&context, Box::new(dial), options).expect("connected")
    }

    /// The process of the service.
    fn service(&self) -> Option<Pid> {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
    }

    fn kill_service(&self) {
        if let Some(service) = self.service() {
            kill_process(service, Signal::KILL).expect("it is there");
        }
    }

    /// Ends the node in order; its directory.
    fn end(mut self) -> tempfile::TempDir {
        let node = Pid::from_child(&self.child);
        kill_process(node, Signal::TERM).expect("it is there");
        assert!(self.child.wait().expect("it ends").success());
        std::mem::replace(&mut self.directory, tempfile::tempdir().expect("a directory"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn ready(client: &mut ActiveClient) -> (RemoteRegion, ModuleHash) {
    let region = client.attach("kv").expect("attached");
    let module = client.load("basics", &basics(0)).expect("loaded").0;
    (region, module)
}

/// Short and long calls are pending whenever the service is killed; each is executed once.
fn calls_are_executed_once_across_kills() {
    const CALLS: usize = 4000;
    const KILLS: usize = 4;
    let directory = tempfile::tempdir().expect("a directory");
    // Long ones have a region of their own: others would always commit first.
    let table = "[active]\nexecutions = 1\ntime_ms = 20000\n\
                 [active.regions.kv]\nsize = \"1MiB\"\n[active.regions.long]\nsize = \"1MiB\"\n";
    let node = Node::start(directory, table);
    let mut client = node.client(&node.identity());
    let (region, module) = ready(&mut client);
    let count = ActiveCall::new(&region, module, "count", b"");
    let other = client.attach("long").expect("attached");
    let slow = ActiveCall::new(&other, module, "slow_count", b"");
    let (mut short, mut long) = (BTreeSet::new(), BTreeSet::new());
    let (mut begun, mut kills, mut longs) = (0, 0, Vec::new());
    while short.len() + long.len() < CALLS {
        while begun < CALLS && begun < short.len() + long.len() + 100 {
            let is_long = begun % 50 == 7;
            let ticket = client.submit(if is_long { &slow } else { &count }).expect("room");
            longs.extend(is_long.then_some(ticket));
            begun += 1;
        }
        if kills < KILLS && begun > (kills + 1) * CALLS / (KILLS + 2) {
            // On their way, executed, or answered.
            let some = client.poll().expect("this machine");
            assert!(some.is_none_or(|executed| {
                let to = if longs.contains(&executed.ticket) { &mut long } else { &mut short };
                to.insert(word(&executed.outcome))
            }));
            node.kill_service();
            kills += 1;
            continue;
        }
        let executed = client.next(SOON).expect("connected").expect("in time");
        let to = if longs.contains(&executed.ticket) { &mut long } else { &mut short };
        assert!(to.insert(word(&executed.outcome)), "twice: {executed:?}");
    }
    for (values, count) in [(&short, CALLS - longs.len()), (&long, longs.len())] {
        assert!(values.iter().copied().eq(0..count as u64), "some call was not executed");
    }
    assert_eq!(client.connections(), KILLS as u64 + 1);
    for (region, at, values) in [(&region, 0, &short), (&other, 8, &long)] {
        let word = region.read(&mut client, at, 8).expect("read");
        assert_eq!(word, (values.len() as u64).to_le_bytes());
    }
}

/// With executions under way, the node ends; the next one has the region as it was.
fn a_node_that_ends_keeps_its_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("regions").join("kv");
    let table = format!(
        "[active]\ntime_ms = 20000\n[active.regions.kv]\nsize = \"1MiB\"\npersist = {file:?}\n"
    );
    let node = Node::start(directory, &table);
    let mut client = node.client(&node.identity());
    let (region, module) = ready(&mut client);
    let count = ActiveCall::new(&region, module, "count", b"");
    for expected in 0..3 {
        assert_eq!(word(&client.execute(&count).expect("an outcome")), expected);
    }
    client.submit(&ActiveCall::new(&region, module, "spin", b"")).expect("room");
    assert!(client.poll().expect("connected").is_none());
    thread::sleep(Duration::from_millis(50));
    let directory = node.end();
    assert_eq!(fs::read(&file).expect("a file").len(), 1 << 20);
    let node = Node::start(directory, &table);
    let mut client = node.client(&node.identity());
    let (region, module) = ready(&mut client);
    let count = ActiveCall::new(&region, module, "count", b"");
    assert_eq!(word(&client.execute(&count).expect("an outcome")), 3);
    client.flush_region(&region).expect("flushed");
    assert_eq!(fs::read(&file).expect("a file")[0], 4);
}

fn a_revoked_identity_is_shut_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let table = "[active.regions.kv]\nsize = \"1MiB\"\n";
    let node = Node::start(directory, table);
    let [good, bad] = [node.identity(), node.identity()];
    let [mut kept, mut lost] = [node.client(&good), node.client(&bad)];
    let (region, module) = ready(&mut kept);
    let (others, _) = ready(&mut lost);
    let list = node.directory.path().join("revoked");
    fs::write(&list, format!("{}\n", bad.identity.node())).expect("written");
    let deadline = Instant::now() + SOON;
    lost.options_mut().limit = Duration::from_millis(300);
    let get = ActiveCall::new(&others, module, "get", b"");
    while lost.execute(&get).is_ok() {
        assert!(Instant::now() < deadline, "it goes on");
        thread::sleep(Duration::from_millis(100));
    }
    let get = ActiveCall::new(&region, module, "get", b"");
    assert_eq!(word(&kept.execute(&get).expect("an outcome")), 0);
    assert_eq!(kept.connections(), 1);
}
