//! `outboard fs map`: programs that read a file of the file system one-sided.

#[expect(dead_code, reason = "other tests use the rest")]
mod home;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "home/served.rs"]
mod served;

use home::Home;
use outboard_testkit::PATIENCE;
use outboard_verbs::{
    Access, Completion, ConnectParams, Context, Cq, Mr, Qp, QpConfig, Remote, SendOp, SendRequest,
    SgList, SharedRegion, Stag, Status,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use served::{Mounted, Served};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, symlink};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

/// `outboard fs map`, and what it says.
struct Map {
    process: Child,
    out: BufReader<ChildStdout>,
    said: Value,
}

fn line(out: &mut BufReader<ChildStdout>) -> Value {
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

impl Map {
    fn of(home: &Home, path: &str) -> Self {
        let mut command = home.command(&["fs", "map", path, "--json"]);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut out = BufReader::new(process.stdout.take().expect("piped"));
        let said = line(&mut out);
        Self { process, out, said }
    }

    fn token(&self) -> Vec<u8> {
        let token = self.said["token"].as_str().expect("a token");
        let byte = |at: usize| u8::from_str_radix(&token[at..at + 2], 16).expect("hexadecimal");
        (0..token.len()).step_by(2).map(byte).collect()
    }

    fn connect(&self, token: Vec<u8>) -> Result<Program, String> {
        let context = Context::open().expect("a context");
        let pd = context.alloc_pd();
        let cq = context.create_cq(8);
        let qp = pd.create_qp(QpConfig::new(&cq)).expect("a queue pair");
        let address = self.said["listen"].as_str().expect("an address").parse().expect("one");
        let params = ConnectParams { private_data: token, ..ConnectParams::default() };
        let told = qp.connect(address, &params).map_err(|error| format!("{error:?}"))?;
        let told = told.private_data;
        let word = |at: usize| u64::from_be_bytes(told[at..at + 8].try_into().expect("8 bytes"));
        let stag = Stag(u32::from_be_bytes(told[16..20].try_into().expect("4 bytes")));
        assert_eq!(word(0), self.said["address"].as_u64().expect("a number"));
        let own = SharedRegion::zeroed(1 << 20).expect("memory");
        let own = pd.register(own, Access::LOCAL_WRITE).expect("registered");
        Ok(Program { context, cq, qp, own, base: word(0), len: word(8), stag })
    }

    /// What it says when it is told to end.
    fn end(mut self) -> Value {
        let pid = Pid::from_raw(self.process.id().cast_signed()).expect("a process");
        kill_process(pid, Signal::TERM).expect("told");
        let said = line(&mut self.out);
        assert!(self.process.wait().expect("it ends").success(), "{said}");
        said
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.process.kill();
        let _ended = self.process.wait();
    }
}

/// A program that reads.
struct Program {
    context: Context,
    cq: Cq,
    qp: Qp,
    own: Mr,
    base: u64,
    len: u64,
    stag: Stag,
}

impl Program {
    fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Status> {
        let from = Remote { stag: self.stag, offset: self.base + offset };
        let to = SgList::from(vec![self.own.segment(0..len).expect("room")]);
        let read = SendRequest::new(1, SendOp::Read { from }, to);
        self.qp.post_send(read).expect("posted");
        let mut done: Vec<Completion> = Vec::new();
        self.cq.wait(&mut done, 1, Some(PATIENCE)).expect("done");
        match done[0].status {
            Status::Success => Ok(self.own.memory().snapshot(0..len).expect("bytes")),
            status => Err(status),
        }
    }
}

fn bytes(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn programs_read_what_is_in_the_file_and_the_server_sends_no_more() {
    let home = Home::new("fs-map-read");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    let (path, all) = (mounted.directory.join("table"), bytes(9_000_123));
    fs::write(&path, &all).expect("written");
    symlink("table", mounted.directory.join("link")).expect("made");
    File::options().read(true).open(&path).expect("there").sync_all().expect("synced");
    let map = Map::of(&home, &format!("{}:/link", served.address));
    let program = map.connect(map.token()).expect("connected");
    assert_eq!(program.len, 9_000_123);
    for (offset, len) in [(0, 1), (4095, 2), (3_000_000, 10), (9_000_100, 23), (5_000_000, 70_000)]
    {
        let at = usize::try_from(offset).expect("small");
        assert!(program.read(offset, len).expect("read") == all[at..at + len], "{offset} {len}");
    }
    // Behind the end there is nothing.
    assert_ne!(program.read(9_000_120, 9).err(), None);
    // A program that connects later sees the file as it is then; so does any that reads then.
    let file = File::options().write(true).open(&path).expect("there");
    file.write_all_at(b"NEW", 3_000_000).expect("written");
    drop(file);
    let later = map.connect(map.token()).expect("connected");
    assert_eq!(later.read(3_000_000, 3).expect("read"), b"NEW");
    assert_eq!(later.read(3_000_003, 7).expect("read"), all[3_000_003..3_000_010]);
    // Without its name it stays.
    fs::remove_file(&path).expect("removed");
    assert_eq!(later.read(8_000_000, 9).expect("read"), all[8_000_000..8_000_009]);
    drop((program, later));
    let said = map.end();
    let read = said["bytes_read"].as_u64().expect("a number");
    assert!((40_000..900_000).contains(&read), "{said}");
}

#[test]
fn a_program_without_the_token_reads_nothing() {
    let home = Home::new("fs-map-refuse");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    fs::write(mounted.directory.join("secret"), b"secret").expect("written");
    let place = mounted.directory.join("secret");
    let map = Map::of(&home, place.to_str().expect("text"));
    for token in [vec![], vec![0; 16], map.token()[..15].to_vec()] {
        let refused = map.connect(token).err().expect("refused");
        assert!(refused.contains("Rejected") || refused.contains("reject"), "{refused}");
    }
    assert_eq!(map.connect(map.token()).expect("connected").read(0, 6).expect("read"), b"secret");
    drop(map.end());
    for (name, why) in [("", "not a file"), ("/none", "No such file"), ("/empty", "is empty")] {
        fs::write(mounted.directory.join("empty"), b"").expect("written");
        let path = format!("{}:/{name}", served.address);
        let output = home.command(&["fs", "map", &path]).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
}

#[test]
fn a_page_that_does_not_come_ends_the_program_s_connection_and_not_the_others_hope() {
    let home = Home::new("fs-map-away");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let address = served.address.clone();
    let mounted = Mounted::of(&home, &served, "mnt", "");
    let path = mounted.directory.join("long");
    let file = File::create(&path).expect("made");
    file.write_all_at(b"far", 6 << 30).expect("written");
    file.sync_all().expect("synced");
    drop(file);
    let map = Map::of(&home, &format!("{address}:/long"));
    let program = map.connect(map.token()).expect("connected");
    assert_eq!(program.read(6 << 30, 3).expect("read"), b"far");
    served.kill_all();
    assert_eq!(program.read(6 << 30, 3).expect("kept"), b"far");
    assert_ne!(program.read(1 << 30, 3).err(), None, "nobody sends it");
    assert!(
        program.qp.ended().is_some()
            || program
                .context
                .wait_until(Some(Duration::from_secs(9)), || program.qp.ended().is_some())
    );
    let _served = Served::at(&home, &address, &["--size", "64MiB"]);
    let again = map.connect(map.token()).expect("connected");
    assert_eq!(again.read(1 << 30, 3).expect("read"), [0; 3]);
    assert_eq!(again.read(6 << 30, 3).expect("read"), b"far");
    drop(again);
    drop(map.end());
}
