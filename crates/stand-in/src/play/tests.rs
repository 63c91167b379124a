//! Replays of records, each in a directory of its own.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use super::*;

/// A stand-in's directory and a project beside it, removed when dropped.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str, factor: &str) -> Self {
        let scene =
            env::temp_dir().join(format!("outboard-stand-in-{}-{name}", std::process::id()));
        fs::create_dir_all(scene.join("place/record")).unwrap();
        fs::write(scene.join("place/factor"), factor).unwrap();
        fs::write(scene.join("place/lock"), "").unwrap();
        fs::write(scene.join("a.c"), "int a;").unwrap();
        Self(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn record(&self, key: &str, record: &Record) {
        let key = self.path(key).to_str().unwrap().replace('/', "%");
        fs::write(self.path("place/record").join(key), record.emit()).unwrap();
    }

    fn command(&self, source: &str) -> Command {
        let words = ["-c".into(), self.path(source).into(), "-o".into(), self.path("a.o").into()];
        Command::parse(&words.map(|word: OsString| word)).unwrap()
    }

    fn play(&self, source: &str) -> Result<(), Fault> {
        play(&ReplayDir::at(&self.path("place")), &self.command(source))
    }

    fn lookup(&self, kind: Kind, name: &str) -> Lookup {
        Lookup { kind, path: self.path(name) }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn output(ending: &str, content: &[u8]) -> Output {
    Output { ending: ending.into(), content: content.to_vec() }
}

#[test]
fn looks_up_waits_and_writes() {
    let scene = Scene::new("all", "0.5\n");
    let lookups = vec![
        scene.lookup(Kind::AccessAbsent, "a.c.gch"),
        scene.lookup(Kind::StatAbsent, "a.c/below"),
        scene.lookup(Kind::OpenAbsent, "none.h"),
        scene.lookup(Kind::LinkAbsent, "none.h"),
        scene.lookup(Kind::Read { size: 6 }, "a.c"),
    ];
    let outputs = vec![output("o", b"object"), output("d", b"dependencies")];
    let cpu = Duration::from_millis(40);
    scene.record("a.c", &Record { cpu, lookups, outputs, ..Record::default() });
    let began = Instant::now();
    scene.play("a.c").unwrap();
    assert!(began.elapsed() >= cpu / 2);
    assert_eq!(fs::read(scene.path("a.o")).unwrap(), b"object");
    assert_eq!(fs::read(scene.path("a.d")).unwrap(), b"dependencies");
}

#[test]
fn a_file_system_that_differs_is_reported() {
    let scene = Scene::new("other", "0");
    let wrong = [
        (Kind::AccessAbsent, "a.c"),
        (Kind::StatAbsent, "a.c"),
        (Kind::OpenAbsent, "a.c"),
        (Kind::LinkAbsent, "a.c"),
        (Kind::Read { size: 7 }, "a.c"),
        (Kind::Read { size: 0 }, "none"),
    ];
    for (kind, name) in wrong {
        let lookups = vec![scene.lookup(kind, name)];
        scene.record("a.c", &Record { lookups, ..Record::default() });
        let error = scene.play("a.c").expect_err("the look-up differs").to_string();
        assert!(error.contains(name), "{kind:?}: {error}");
    }
}

#[test]
fn preprocessed_text_is_known_by_its_first_line_and_looks_nothing_up() {
    let scene = Scene::new("preprocessed", "0");
    let lookups = vec![scene.lookup(Kind::Read { size: 1 }, "none")];
    let outputs = vec![output("o", b"object")];
    scene.record("a.c", &Record { lookups, outputs, ..Record::default() });
    let text = format!("# 0 \"{}\"\nint a;\n", scene.path("a.c").display());
    fs::write(scene.path("1.i"), text).unwrap();
    scene.play("1.i").unwrap();
    assert_eq!(fs::read(scene.path("a.o")).unwrap(), b"object");
}

#[test]
fn two_do_not_compute_at_once() {
    let scene = Scene::new("one", "1");
    let place = ReplayDir::at(&scene.path("place"));
    let record = Record { cpu: Duration::from_millis(60), ..Record::default() };
    let began = Instant::now();
    thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(|| compute(&place, &record).unwrap())));
    });
    assert!(began.elapsed() >= 2 * record.cpu);
}

#[test]
fn a_command_without_a_record_is_an_error() {
    let scene = Scene::new("unknown", "0");
    let error = scene.play("a.c").expect_err("there is no record").to_string();
    assert!(error.contains("no record of") && error.contains("a.c"), "{error}");
}
