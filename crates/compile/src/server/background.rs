//! What threads do for one client, so that the service's loop does not: look into the store,
//! check contents that were read, and work on parts of compilers.
//!
//! Small contents are checked at once, which takes less time than waking a thread. A store on a
//! disk that does not answer in time counts as one that lacks the content, until it answers: the
//! content is read from the client.

use super::adopt::{PartDone, PartWork};
use outboard_cluster::waker::Waker;
use outboard_cluster::workers::Workers;
use outboard_export::Contents;
use outboard_store::{ContentHash, ContentKind, Store};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Threads that ask the disk, and those that only compute.
const DISK_THREADS: usize = 4;
const CHECK_THREADS: usize = 2;
/// Longest contents, in bytes, that the loop checks itself: that takes a tenth of a millisecond.
const AT_ONCE_MAX: u64 = 128 << 10;
/// How long the store may take to find a content.
const FIND_MAX: Duration = Duration::from_secs(2);

/// The threads of a service, which all of its clients share. Clones have the same.
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    disk: Workers,
    checks: Workers,
    /// Of the service's loop.
    pub(crate) waker: Waker,
}

impl Threads {
    pub(crate) fn new(waker: Waker) -> Self {
        let disk = Workers::new("outboard-disk", DISK_THREADS);
        Self { disk, checks: Workers::new("outboard-check", CHECK_THREADS), waker }
    }
}

/// What is done.
#[derive(Debug)]
pub(crate) enum FinishedWork {
    /// The store was asked for the contents of a request.
    Found { ask: u32, bytes: Option<Arc<[u8]>> },
    /// The contents of a request were checked.
    Checked { ask: u32, bytes: Option<Arc<[u8]>> },
    /// Work on a part of a compiler.
    Part(PartDone),
}

/// A thread's answer.
#[derive(Debug)]
enum Reply {
    Found { number: u64, bytes: Option<Arc<[u8]>> },
    Finished(FinishedWork),
}

/// A question to the store.
#[derive(Debug)]
struct Find {
    /// The request; none once it has been answered without the store.
    ask: Option<u32>,
    since: Instant,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Background {
    /// Where contents stay that were read.
    store: Option<Arc<Store>>,
    threads: Threads,
    reply: mpsc::Sender<Reply>,
    replies: mpsc::Receiver<Reply>,
    /// Questions that the store has not answered.
    finds: HashMap<u64, Find>,
    next: u64,
    /// What was done without a thread.
    done: VecDeque<FinishedWork>,
}

impl Background {
    pub(crate) fn new(store: Option<Arc<Store>>, threads: Threads) -> Self {
        let (reply, replies) = mpsc::channel();
        let (finds, done) = (HashMap::new(), VecDeque::new());
        Self { store, threads, reply, replies, finds, next: 0, done }
    }

    /// Looks for the contents of a request.
    pub(crate) fn find(&mut self, ask: u32, hash: ContentHash, now: Instant) {
        let held = self.store.as_ref().and_then(|store| store.held(&hash));
        if held.is_some() || !self.ask_store(ask, hash, now) {
            self.done.push_back(FinishedWork::Found { ask, bytes: held });
        }
    }

    /// False if the store is not asked.
    fn ask_store(&mut self, ask: u32, hash: ContentHash, now: Instant) -> bool {
        let Some(store) = self.store.clone().filter(|_| !self.is_hung()) else { return false };
        self.next += 1;
        let (number, answer) = (self.next, self.answer());
        let look = move || answer(Reply::Found { number, bytes: store.get(&hash) });
        let is_asked = self.threads.disk.run(look);
        if is_asked {
            self.finds.insert(number, Find { ask: Some(ask), since: now });
        }
        is_asked
    }

    /// The store has not answered in time, and has not answered since.
    fn is_hung(&self) -> bool {
        self.finds.values().any(|find| find.ask.is_none())
    }

    /// Checks the contents that were read for a request, and keeps them.
    pub(crate) fn check(&mut self, ask: u32, contents: Contents, bytes: Vec<u8>) {
        let store = self.store.clone();
        if contents.len.max(contents.packed) <= AT_ONCE_MAX {
            let bytes = opened(contents, bytes);
            keep(store, contents, bytes.clone());
            return self.done.push_back(FinishedWork::Checked { ask, bytes });
        }
        let answer = self.answer();
        let check = move || {
            let bytes = opened(contents, bytes);
            answer(Reply::Finished(FinishedWork::Checked { ask, bytes: bytes.clone() }));
            keep(store, contents, bytes);
        };
        if !self.threads.checks.run(check) {
            self.done.push_back(FinishedWork::Checked { ask, bytes: None });
        }
    }

    /// Works on a part of a compiler.
    pub(crate) fn work(&mut self, work: PartWork) {
        let failed = work.failed();
        let Some(store) = self.store.clone() else {
            return self.done.push_back(FinishedWork::Part(failed));
        };
        let (answer, disk) = (self.answer(), self.threads.disk.clone());
        let task = move || answer(Reply::Finished(FinishedWork::Part(work.run(&store, &disk))));
        if !self.threads.disk.run(task) {
            self.done.push_back(FinishedWork::Part(failed));
        }
    }

    /// Sends a reply to the loop, and wakes it.
    fn answer(&self) -> impl Fn(Reply) + Send + 'static {
        let (reply, waker) = (self.reply.clone(), self.threads.waker.clone());
        move |finished| {
            // The client may have gone since.
            let _sent = reply.send(finished);
            waker.wake();
        }
    }

    /// What is done next.
    pub(crate) fn poll(&mut self) -> Option<FinishedWork> {
        while self.done.is_empty() {
            match self.replies.try_recv().ok()? {
                Reply::Finished(finished) => return Some(finished),
                Reply::Found { number, bytes } => {
                    let ask = self.finds.remove(&number).and_then(|find| find.ask);
                    self.done.extend(ask.map(|ask| FinishedWork::Found { ask, bytes }));
                }
            }
        }
        self.done.pop_front()
    }

    /// Answers for the store where it takes too long.
    pub(crate) fn expire(&mut self, now: Instant) {
        for find in self.finds.values_mut() {
            if now.saturating_duration_since(find.since) > FIND_MAX {
                let late = find.ask.take();
                self.done.extend(late.map(|ask| FinishedWork::Found { ask, bytes: None }));
            }
        }
    }
}

fn opened(contents: Contents, bytes: Vec<u8>) -> Option<Arc<[u8]>> {
    contents.open(bytes).map(Into::into)
}

/// Keeps contents that are right, if there is a place for them.
fn keep(store: Option<Arc<Store>>, contents: Contents, bytes: Option<Arc<[u8]>>) {
    if let Some((store, bytes)) = store.zip(bytes) {
        // If the disk is full nothing is lost: the bytes are in memory.
        let _stored = store.put_soon(&contents.hash, bytes, ContentKind::Data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_testkit::hung::{Hung, may_hang};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    /// Waits for what threads do.
    fn finished(background: &mut Background) -> FinishedWork {
        loop {
            background.threads.waker.clear();
            if let Some(finished) = background.poll() {
                return finished;
            }
            let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
            let fd = PollFd::new(&background.threads.waker, PollFlags::IN);
            assert_eq!(poll(&mut [fd], Some(&limit)), Ok(1), "no answer");
        }
    }

    fn background(store: Store) -> Background {
        let waker = Waker::new().expect("a waker");
        Background::new(Some(Arc::new(store)), Threads::new(waker))
    }

    /// What is found, which must be an answer to this request.
    fn found(finished: Option<FinishedWork>, asked: u32) -> Option<Arc<[u8]>> {
        match finished {
            Some(FinishedWork::Found { ask, bytes }) if ask == asked => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_store_that_hangs_is_waited_for_by_nobody_and_asked_again_when_it_answers() {
        if !may_hang() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path().join("store");
        let bytes: Arc<[u8]> = b"int a;"[..].into();
        let hash = *blake3::hash(&bytes).as_bytes();
        let store = Store::open(&at, 1 << 20).expect("a store");
        store.put(&hash, Arc::clone(&bytes), ContentKind::Data).expect("stored");
        // Another process, whose memory has nothing.
        let mut background = background(Store::open(&at, 1 << 20).expect("a store"));
        let (begin, hung) = (Instant::now(), Hung::over(at).expect("mounted"));
        background.find(1, hash, begin);
        background.expire(begin + FIND_MAX);
        assert!(background.poll().is_none(), "it has time");
        background.expire(begin + FIND_MAX + Duration::from_secs(1));
        assert_eq!(found(background.poll(), 1), None);
        background.find(2, hash, begin);
        assert_eq!(found(background.poll(), 2), None, "it is not asked again");
        assert!(begin.elapsed() < FIND_MAX, "nothing was waited for");
        drop(hung);
        // The late answer belongs to no request.
        while background.is_hung() {
            assert!(background.poll().is_none());
            std::thread::sleep(Duration::from_millis(5));
        }
        background.find(3, hash, begin);
        assert_eq!(found(Some(finished(&mut background)), 3), Some(bytes));
    }

    #[test]
    fn long_contents_are_checked_by_a_thread_and_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut background = background(Store::open(directory.path(), 1 << 20).expect("a store"));
        for len in [6, usize::try_from(AT_ONCE_MAX).expect("small") + 1] {
            let bytes = vec![7; len];
            let (hash, len) = (*blake3::hash(&bytes).as_bytes(), bytes.len() as u64);
            let contents = Contents { dev: 0, ino: 0, version: 0, hash, at: 0, len, packed: len };
            background.check(1, contents, bytes.clone());
            let FinishedWork::Checked { ask: 1, bytes: Some(checked) } = finished(&mut background)
            else {
                panic!("it has the announced hash")
            };
            assert_eq!(*checked, bytes);
            background.check(2, contents, vec![8; bytes.len()]);
            let checked = finished(&mut background);
            assert!(
                matches!(checked, FinishedWork::Checked { ask: 2, bytes: None }),
                "{checked:?}"
            );
            let is_kept = |store: &Store| store.held(&hash).is_some();
            while !background.store.as_deref().is_some_and(is_kept) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
