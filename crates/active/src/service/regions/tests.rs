//! Regions across processes and across nodes: what is kept, what is read from files.

use super::*;
use std::fs;

/// A supervisor's memory, by name.
#[derive(Default)]
struct Keeper(BTreeMap<String, OwnedFd>);

impl Keeper {
    fn copies(&self) -> BTreeMap<String, OwnedFd> {
        let copy =
            |(name, fd): (&String, &OwnedFd)| (name.clone(), fd.try_clone().expect("a descriptor"));
        self.0.iter().map(copy).collect()
    }
}

impl RegionKeeper for Keeper {
    fn keep(&mut self, name: &str, memory: OwnedFd) -> Result<(), RequestError> {
        self.0.insert(name.to_owned(), memory);
        Ok(())
    }

    fn discard(&mut self, name: &str) -> Result<(), RequestError> {
        self.0.remove(name).map(drop).ok_or(RequestError::Silent)
    }
}

fn opened(setup: &RegionSetup, keeper: &mut Keeper) -> ServedRegion {
    let opened = open_regions(vec![setup.clone()], keeper.copies(), keeper);
    opened.expect("a region").remove(0)
}

fn word(region: &ServedRegion) -> u64 {
    region.region.memory().load_u64(4096).expect("inside")
}

fn set(region: &ServedRegion, value: u64) {
    region.region.memory().store_u64(4096, value).expect("inside");
}

#[test]
fn the_next_process_finds_its_regions_and_their_journals() {
    let (setup, keeper) = (RegionSetup::new("kv", 1 << 16), &mut Keeper::default());
    let first = opened(&setup, keeper);
    set(&first, 7);
    let second = opened(&setup, keeper);
    assert_eq!((word(&second), second.incarnation), (7, first.incarnation));
    // The process ended between keeping the one and the other.
    keeper.0.retain(|name, _| name.starts_with("memory/"));
    let third = opened(&setup, keeper);
    assert_eq!(word(&third), 7);
    assert_ne!(third.incarnation, first.incarnation, "nothing is known of what was asked before");
    assert_eq!(keeper.0.len(), 2);
}

#[test]
fn what_is_not_served_any_more_is_discarded() {
    let keeper = &mut Keeper::default();
    opened(&RegionSetup::new("old", 1 << 16), keeper);
    opened(&RegionSetup::new("new", 1 << 16), keeper);
    let names: Vec<&String> = keeper.0.keys().collect();
    assert!(names.iter().all(|name| name.contains("/new")) && names.len() == 2, "{names:?}");
}

#[test]
fn a_file_is_read_where_nothing_was_kept_and_written_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kv");
    let setup = RegionSetup { persist: Some(path.clone()), ..RegionSetup::new("kv", 8 << 20) };
    let first = opened(&setup, &mut Keeper::default());
    assert_eq!(word(&first), 0, "there is no file yet");
    set(&first, 7);
    first.region.memory().store_u64((5 << 20) + 8, 8).expect("inside");
    let file = first.file.as_ref().expect("it has one");
    file.write(&first.region).expect("written");
    set(&first, 9);
    let metadata = fs::metadata(&path).expect("a file");
    assert_eq!(metadata.len(), 8 << 20);
    assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) * 512 < 1 << 20, "it has holes");
    let keeper = &mut Keeper::default();
    let taken = open_regions(vec![setup.clone()], keeper.copies(), keeper);
    let taken = taken.map(drop).expect_err("the first one has it").to_string();
    assert!(taken.contains("another region's"), "{taken}");
    drop(first);
    let second = opened(&setup, keeper);
    assert_eq!(word(&second), 7, "as of the flush");
    assert_eq!(second.region.memory().load_u64((5 << 20) + 8), Ok(8));
    // What the supervisor kept is newer than the file.
    set(&second, 10);
    drop(second);
    assert_eq!(word(&opened(&setup, keeper)), 10);
    let names = fs::read_dir(directory.path()).expect("a list");
    let mut names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["kv", "kv.lock"], "nothing hidden stays");
}

#[test]
fn a_file_that_cannot_be_the_regions_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kv");
    fs::write(&path, vec![1; (1 << 16) + 1]).expect("written");
    let setup = RegionSetup { persist: Some(path), ..RegionSetup::new("kv", 1 << 16) };
    let error = open_regions(vec![setup.clone()], BTreeMap::new(), &mut Keeper::default());
    let error = error.expect_err("too long").to_string();
    assert!(error.contains("region kv") && error.contains("65537 bytes"), "{error}");
    let within = directory.path().join("within");
    fs::create_dir(&within).expect("a directory");
    let setup = RegionSetup { persist: Some(within.join("kv")), ..setup };
    let keeper = &mut Keeper::default();
    drop(opened(&setup, keeper));
    fs::remove_dir_all(&within).expect("removed");
    // Its memory is there: it is served, and says why it cannot be flushed.
    let region = opened(&setup, keeper);
    let error = region.file.as_ref().expect("it has one").write(&region.region);
    assert!(error.expect_err("no directory").to_string().contains("within/kv"));
    let error = open_regions(vec![setup], BTreeMap::new(), &mut Keeper::default());
    assert!(error.expect_err("no directory").to_string().contains("within/kv"));
}
