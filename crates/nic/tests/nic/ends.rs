//! What is left when a process, an interface or a body ends.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aya::maps::loaded_maps;
use aya::programs::loaded_programs;
use outboard_nic::templates::{COUNT, FILTER};
use outboard_nic::{AttachState, InterfaceEvent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lab::{HERE, Lab, inside, loaded, send_counted, until};

/// The namespace in which a process of its own attaches a body and waits for its end.
const CHILD: &str = "OUTBOARD_NIC_CHILD";

/// No test by itself: what the killed process does.
#[test]
fn the_process_that_is_killed() {
    let Ok(namespace) = std::env::var(CHILD) else { return };
    inside(&namespace, || {
        let wire = outboard_nic::NetInterface::named("wire0").unwrap();
        let attached = loaded(FILTER, &[]).attach(&wire).unwrap();
        let mut out = std::io::stdout();
        writeln!(out, "\nattached {}", attached.program()).unwrap();
        out.flush().unwrap();
        // Ends with the pipe at the latest: nothing is left if the test dies first.
        let _ = std::io::stdin().lines().next();
        drop(attached);
    });
}

fn attaching_child(lab: &Lab) -> (Child, u32) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["ends::the_process_that_is_killed", "--exact", "--nocapture"]);
    command.env(CHILD, lab.here_name()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let program = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("attached ")?.parse().ok())
        .expect("the child attaches");
    (child, program)
}

fn maps_of(program: u32) -> BTreeSet<u32> {
    let mut programs = loaded_programs().filter_map(Result::ok);
    let info = programs.find(|info| info.id() == program).unwrap();
    info.map_ids().unwrap().unwrap_or_default().into_iter().collect()
}

#[test]
fn a_killed_process_leaves_nothing() {
    let Some(lab) = Lab::new() else { return };
    let (mut child, program) = attaching_child(&lab);
    assert_eq!(lab.wire().xdp_program, Some(program));
    let maps = maps_of(program);
    assert_eq!(maps.len(), 5, "configuration, state, records, captures, counters");
    child.kill().unwrap();
    child.wait().unwrap();
    until("the interface's path is free", || lab.wire().xdp_program.is_none());
    until("the program is gone", || {
        !loaded_programs().filter_map(Result::ok).any(|info| info.id() == program)
    });
    until("its maps are gone", || {
        !loaded_maps().filter_map(Result::ok).any(|map| maps.contains(&map.id()))
    });
    // And packets pass again.
    let receiver = lab.receiver(7001);
    let socket = lab.socket(7000);
    socket.send_to(b"still there", (HERE, 7001)).unwrap();
    until("a packet arrives", || super::lab::drain(&receiver) == 1);
}

#[test]
fn a_removed_interface_is_told_at_once() {
    let Some(lab) = Lab::new() else { return };
    let mut attached = lab.here(|| loaded(COUNT, &[]).attach(&lab.wire()).unwrap());
    let mut watch = lab.here(|| attached.watch().unwrap());
    assert_eq!(watch.poll().unwrap(), Some(InterfaceEvent::Up));
    assert_eq!(watch.poll().unwrap(), None);
    let mut next = || {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(event) = watch.poll().unwrap() {
                return event;
            }
            assert!(Instant::now() < deadline, "no event");
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&second)).unwrap();
        }
    };
    lab.ip_here(&["link", "set", "wire0", "down"]);
    assert_eq!(next(), InterfaceEvent::Down);
    assert_eq!(attached.status().unwrap(), AttachState::Down);
    lab.ip_here(&["link", "set", "wire0", "up"]);
    assert_eq!(next(), InterfaceEvent::Up);
    // Others' ends are not its own.
    lab.ip_here(&["link", "add", "other0", "type", "bridge"]);
    lab.ip_here(&["link", "del", "other0"]);
    let before = Instant::now();
    lab.ip_here(&["link", "del", "wire0"]);
    assert_eq!(next(), InterfaceEvent::Removed);
    println!("told {} ms after `ip link del` began", before.elapsed().as_millis());
    assert_eq!(watch.poll().unwrap(), None);
    assert_eq!(attached.status().unwrap(), AttachState::Removed);
    // The body itself is still there to be read.
    assert_eq!(attached.detach().unwrap().counter("lost").unwrap(), Some(0));
}

#[test]
fn a_detached_body_goes_on_elsewhere_with_what_it_has() {
    let Some(lab) = Lab::new() else { return };
    let attached = lab.here(|| loaded(COUNT, &[]).attach(&lab.wire()).unwrap());
    let program = attached.program();
    let socket = lab.socket(7000);
    let send = || {
        socket.send_to(&[1; 10], (HERE, 7001)).unwrap();
    };
    send_counted(attached.body(), "udp.packets", 10, send);
    let body = attached.detach().unwrap();
    assert_eq!(lab.wire().xdp_program, None);
    let mut again = lab.here(|| body.attach(&lab.wire()).unwrap());
    assert_eq!((again.program(), again.status().unwrap()), (program, AttachState::Up));
    send_counted(again.body(), "udp.packets", 10, send);
    assert_eq!(again.body().counter("udp.packets").unwrap(), Some(20));
}

#[test]
fn many_times_over_nothing_grows() {
    let Some(lab) = Lab::new() else { return };
    let once = || lab.here(|| loaded(FILTER, &[]).attach(&lab.wire()).unwrap().program());
    let programs: BTreeSet<u32> = (0..50).map(|_| once()).collect();
    assert_eq!(programs.len(), 50);
    until("all programs are gone", || {
        !loaded_programs().filter_map(Result::ok).any(|info| programs.contains(&info.id()))
    });
}
