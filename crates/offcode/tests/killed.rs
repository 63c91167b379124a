//! A process that commits is killed at any moment; the next one finds each commit whole or not at
//! all, and the answers of those that were made.

use outboard_offcode::ActiveRegion;
use outboard_offcode::host::Execution;
use outboard_offcode::journal::{Earlier, RequestId};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

const REGION_LEN: usize = 1 << 16;
const WRITE_MAX: usize = 1 << 16;
/// Words that each commit changes, far from each other: all are equal between commits.
const WORDS: u64 = 60;
const STRIDE: u64 = 1048;
const CHILD: &str = "OUTBOARD_TEST_COMMITS";

fn id(number: u64) -> RequestId {
    RequestId { client: [1; 16], number }
}

/// Commits number after number until it is killed. Its standard input is the region's memory, its
/// standard error the journal.
fn commit_for_ever() -> ! {
    let own = |fd: std::os::fd::BorrowedFd<'_>| -> OwnedFd {
        fd.try_clone_to_owned().expect("a descriptor")
    };
    let descriptors = (own(std::io::stdin().as_fd()), own(std::io::stderr().as_fd()));
    let region = ActiveRegion::kept("test", descriptors, WRITE_MAX).expect("kept");
    let mut execution = Execution::new(region.memory().clone(), WRITE_MAX);
    loop {
        execution.reset(true);
        let since = region.begin();
        let number = execution.load64(0).expect("inside") + 1;
        for word in 0..WORDS {
            execution.store64(word * STRIDE, number).expect("inside");
        }
        let answer = number.to_le_bytes();
        let mut writer = region.writer();
        writer.commit(&execution, since, Some((id(number), &answer)), None).expect("alone");
    }
}

#[test]
fn a_commit_is_whole_or_was_never_made() {
    if std::env::var_os(CHILD).is_some() {
        commit_for_ever();
    }
    let mut region = ActiveRegion::new("test", REGION_LEN, WRITE_MAX).expect("memory");
    let mut last = 0;
    for round in 0..60_u64 {
        let (memory, journal) = region.descriptors().expect("descriptors");
        drop(region);
        let this = std::env::current_exe().expect("this program");
        let mut child = Command::new(this)
            .args(["--exact", "a_commit_is_whole_or_was_never_made", "--nocapture", "-q"])
            .env(CHILD, "1")
            .stdin(Stdio::from(memory.try_clone().expect("a descriptor")))
            .stderr(Stdio::from(journal.try_clone().expect("a descriptor")))
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        std::thread::sleep(Duration::from_micros(8_000 + round * 397 % 5_000));
        child.kill().expect("killed");
        child.wait().expect("gone");
        region = ActiveRegion::kept("test", (memory, journal), WRITE_MAX).expect("kept");
        let word = |word: u64| {
            let at = usize::try_from(word * STRIDE).expect("small");
            region.memory().load_u64(at).expect("inside")
        };
        let number = word(0);
        assert!((0..WORDS).all(|index| word(index) == number), "half of commit {number}");
        assert_eq!(region.seq(), number);
        assert!(number >= last, "commit {last} was lost: {number}");
        last = number;
        if number > 0 {
            let answer = Earlier::Answered(number.to_le_bytes().to_vec());
            assert_eq!(region.find(id(number), 0), Ok(answer));
        }
        assert_eq!(region.find(id(number + 1), number), Ok(Earlier::NotExecuted));
    }
    assert!(last > 1000, "the processes committed {last} times only");
}
