//! What crosses the links between switches, counted in bytes as they pass.

use super::*;
use outboard_cast::schedule::Topology;
use outboard_cast::source::{NodeTopology, this_machine};
use std::collections::BTreeMap;

/// What nodes are called, in the list's order: the letter is the switch that each is below.
const NAMES: [&str; 8] = ["b1", "a1", "c1", "c2", "b2", "a2", "b3", "c3"];

/// Nodes' switches, and bytes that have gone from one switch to another.
#[derive(Default)]
struct Meter {
    switches: Mutex<BTreeMap<SocketAddr, char>>,
    crossed: Mutex<BTreeMap<(char, char), u64>>,
}

impl Meter {
    fn switch_of(&self, node: SocketAddr) -> char {
        self.switches.lock().expect("no panic")[&node]
    }

    /// Passes bytes on and counts them.
    fn pump(&self, mut from: TcpStream, mut to: TcpStream, way: (char, char)) {
        let mut bytes = [0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            *self.crossed.lock().expect("no panic").entry(way).or_default() += count as u64;
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // The other end is told that nothing more comes.
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    /// Connects a node below one switch to a node below another.
    fn crossing(
        self: &Arc<Self>,
        (from, to): (char, char),
        address: SocketAddr,
    ) -> std::io::Result<TcpStream> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (inner, _) = listener.accept()?;
        let far = TcpStream::connect(address)?;
        for socket in [&near, &inner, &far] {
            socket.set_nodelay(true)?;
        }
        let (inner_too, far_too) = (inner.try_clone()?, far.try_clone()?);
        let [there, back] = [Arc::clone(self), Arc::clone(self)];
        thread::spawn(move || there.pump(inner, far, (from, to)));
        thread::spawn(move || back.pump(far_too, inner_too, (to, from)));
        Ok(near)
    }

    /// The dialling of a node below a switch.
    fn dial(self: &Arc<Self>, key: &ClusterKey, switch: char) -> DialNode {
        let (own, meter) = (credentials(key), Arc::clone(self));
        Arc::new(move |host: &Host, _: Duration| {
            let address: SocketAddr = host.to_string().parse().map_err(|e| format!("{e}"))?;
            let there = meter.switch_of(address);
            let socket = match there == switch {
                true => TcpStream::connect(address),
                false => meter.crossing((switch, there), address),
            };
            let socket = socket.map_err(|error| error.to_string())?;
            let cast = "cast".parse().expect("a name");
            let handshake = Handshake::initiator(Arc::clone(&own), &cast);
            let handshake = handshake.map_err(|error| error.to_string())?;
            shake_hands(socket, handshake).ok_or_else(|| "no session".to_owned())
        })
    }

    /// Bytes that have come to the nodes below a switch from other switches.
    fn into(&self, switch: char) -> u64 {
        let crossed = self.crossed.lock().expect("no panic");
        crossed.iter().filter(|((_, to), _)| *to == switch).map(|(_, bytes)| bytes).sum()
    }
}

fn first(name: &str) -> char {
    name.chars().next().expect("a letter")
}

/// Casts to nodes below three switches, the first of which is the source's too.
fn cast_across(kind: ScheduleKind, topology: Option<NodeTopology>) -> (Arc<Meter>, u64) {
    let meter = Arc::new(Meter::default());
    let mut lab = Lab::new(0);
    for name in NAMES {
        let root = tempfile::tempdir().expect("a directory");
        let dial = meter.dial(&lab.key, first(name));
        let node = Node::start_dialling(&lab.key, root, (Arc::default(), dial));
        meter.switches.lock().expect("no panic").insert(node.address, first(name));
        lab.nodes.push(node);
    }
    lab.fill(6_000_000);
    let dial = meter.dial(&lab.key, 'a');
    let request = lab.request(kind, Path::new(ROOT));
    let outcome = cast(CastRequest { topology, dial, ..request }).expect("a cast");
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..NAMES.len()).for_each(|node| lab.check(node));
    (meter, outcome.stream_len)
}

#[test]
fn each_byte_comes_to_each_switch_once() {
    let here = this_machine();
    let text = format!(
        "SwitchName=a Nodes={here},a1,a2\nSwitchName=b Nodes=b1,b2,b3\n\
         SwitchName=c Nodes=c1,c2,c3\nSwitchName=top Switches=a,b,c\n"
    );
    let expand = |list: &str| Some(list.split(',').map(str::to_owned).collect());
    let topology = Topology::parse(&text, expand).expect("a topology");
    let names = NAMES.map(str::to_owned).into();
    let (meter, len) =
        cast_across(ScheduleKind::Switches, Some(NodeTopology { topology, names }));
    for switch in ['b', 'c'] {
        let came = meter.into(switch);
        assert!(came >= len && came < len + len / 8, "{came} of {len} came to {switch}");
    }
    // Nothing but messages goes back.
    assert!(meter.into('a') < len / 8, "{}", meter.into('a'));
}

#[test]
fn without_a_topology_chunks_cross_again_and_again() {
    let (meter, len) = cast_across(ScheduleKind::BinomialPipeline, None);
    let all: u64 = ['a', 'b', 'c'].into_iter().map(|switch| meter.into(switch)).sum();
    assert!(all > 4 * len, "{all} of {len}");
}
