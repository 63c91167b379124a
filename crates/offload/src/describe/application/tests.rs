//! Tests of applications: packages on disk, and what becomes of them.

use super::*;
use std::fs;

/// A directory with packages of builtin offcodes and a layout file.
struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    /// A package: the interface `demo:x/NAME@1.0.0`, the ports `in` and `out`, and more.
    fn package(&self, name: &str, more: &str) -> &Self {
        let at = self.0.path().join(name);
        fs::create_dir_all(&at).expect("made");
        let text = format!(
            "name = \"{name}\"\nversion = \"1.0.0\"\ninterfaces = [\"demo:x/{name}@1.0.0\"]\n\
             ports = [\"in\", \"out\"]\n[[body]]\nkind = \"builtin\"\nname = \"x\"\n{more}"
        );
        fs::write(at.join("offcode.toml"), text).expect("written");
        self
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("app.toml")
    }

    fn read(&self, text: &str) -> Result<Application, DescribeError> {
        fs::write(self.path(), format!("[app]\nname = \"a\"\n{text}")).expect("written");
        Application::read(&self.path())
    }

    fn fault(&self, text: &str) -> String {
        let message = match self.read(text) {
            Ok(application) => panic!("taken: {application:?}"),
            Err(error) => error.to_string(),
        };
        let real = self.0.path().canonicalize().expect("there");
        let message = message.replace(&format!("{}/", real.display()), "");
        message.replace(&format!("{}/", self.0.path().display()), "")
    }
}

/// An import of the interface of a package, and more words.
fn import(name: &str, more: &str) -> String {
    format!("[[import]]\nname = \"{name}\"\ninterface = \"demo:x/{name}@1.0.0\"\n{more}\n")
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("[[offcode]]\nname = \"{name}\"\n")).collect()
}

fn names(application: &Application) -> Vec<&str> {
    application.offcodes.iter().map(|offcode| offcode.name.as_str()).collect()
}

/// References as `from -> to`.
fn references(application: &Application) -> Vec<String> {
    let name = |index: usize| &application.offcodes[index].name;
    let shown = |each: &ApplicationReference| {
        format!("{} {} {}", name(each.from), each.kind.as_str(), name(each.to))
    };
    application.references.iter().map(shown).collect()
}

#[test]
fn what_an_offcode_requires_is_created_as_in_figure_1() {
    let site = Site::new();
    site.package("alpha", &import("beta", "offcode = \"beta\"\nreference = \"pull\""))
        .package("beta", &import("gamma", "offcode = \"../gamma\""))
        .package("gamma", "");
    let application = site.read(&listed(&["alpha"])).expect("valid");
    assert_eq!(names(&application), ["alpha", "beta", "gamma"]);
    assert_eq!(references(&application), ["alpha pull beta", "beta link gamma"]);
    assert_eq!(application.offcodes[0].origin, OffcodeOrigin::Listed { line: 3 });
    assert_eq!(application.offcodes[2].origin, OffcodeOrigin::Required { by: 1, import: 0 });
}

#[test]
fn what_is_listed_serves_before_anything_is_created() {
    let site = Site::new();
    site.package("alpha", &import("beta", "offcode = \"beta\"")).package("beta", "");
    let text = "[[offcode]]\nname = \"mine\"\npackage = \"beta\"\n";
    let application = site.read(&(listed(&["alpha"]) + text)).expect("valid");
    assert_eq!(references(&application), ["alpha link mine"]);
    assert!(std::ptr::eq(&raw const *application.offcodes[1].package, {
        let again = application.offcodes[1].package.clone();
        Arc::as_ptr(&again)
    }));
}

#[test]
fn what_is_listed_serves_by_its_packages_name() {
    let site = Site::new();
    site.package("alpha", &import("beta", "offcode = \"beta\"")).package("beta", "");
    fs::create_dir(site.0.path().join("far")).expect("made");
    let (from, to) = (site.0.path().join("beta"), site.0.path().join("far/away"));
    fs::rename(from, to).expect("moved");
    let text = "[[offcode]]\nname = \"mine\"\npackage = \"far/away\"\n";
    let application = site.read(&(listed(&["alpha"]) + text)).expect("valid");
    assert_eq!(references(&application), ["alpha link mine"]);
    let two = text.to_owned() + &text.replace("mine", "other");
    let message = site.fault(&(listed(&["alpha"]) + &two));
    assert!(message.contains("beta could be served by mine and other"), "{message}");
}

#[test]
fn two_that_require_a_package_share_one_offcode() {
    let site = Site::new();
    site.package("a", &import("c", "offcode = \"c\""))
        .package("b", &import("c", "offcode = \"c\""))
        .package("c", "");
    let application = site.read(&listed(&["a", "b"])).expect("valid");
    assert_eq!(references(&application), ["a link c", "b link c"]);
    assert_eq!(application.offcodes.len(), 3);
}

#[test]
fn imports_are_served_by_interface_or_as_the_file_says() {
    let site = Site::new();
    site.package("a", &import("b", "")).package("b", "");
    let application = site.read(&listed(&["a", "b"])).expect("valid");
    assert_eq!(references(&application), ["a link b"]);
    let two = listed(&["a", "b"]) + "[[offcode]]\nname = \"b2\"\npackage = \"b\"\n";
    assert_eq!(
        site.fault(&two),
        "a/offcode.toml:8: the import b could be served by b and b2: say by which, as [[import]] \
         from = \"a.b\" to = \"b\" in app.toml"
    );
    let text = two + "[[import]]\nfrom = \"a.b\"\nto = \"b2\"\n";
    assert_eq!(references(&site.read(&text).expect("valid")), ["a link b2"]);
}

#[test]
fn cycles_are_for_links_only() {
    let site = Site::new();
    site.package("a", &import("b", "reference = \"pull\"")).package("b", &import("a", ""));
    let application = site.read(&listed(&["a", "b"])).expect("a cycle with a link");
    assert_eq!(references(&application), ["a pull b", "b link a"]);
    site.package("b", &import("c", "reference = \"gang\""))
        .package("c", &import("a", "reference = \"gang-if\""));
    site.package("d", &import("c", "reference = \"pull\""));
    assert_eq!(
        site.fault(&listed(&["d", "a", "b", "c"])),
        "b/offcode.toml:8: offcodes require each other: b -> c -> a -> b; one of these references \
         must be a link"
    );
}

#[test]
fn priorities_are_inherited_until_a_link() {
    let site = Site::new();
    site.package("a", &import("b", "reference = \"pull\"\npriority = 5"))
        .package("b", &import("c", "reference = \"gang\""))
        .package("c", &(import("d", "") + &import("e", "reference = \"gang-if\"")))
        .package("d", "")
        .package("e", "[attributes]\nOFFLOAD_PRIORITY = 2\n");
    let all = listed(&["e", "d", "c", "b", "a"]);
    let application = site.read(&all).expect("valid");
    let of = |application: &Application, name: &str| {
        let index = application.index(&name.parse().expect("a name")).expect("there");
        let offcode = &application.offcodes[index];
        assert_eq!(offcode.attributes.offload_priority, Some(offcode.priority));
        offcode.priority
    };
    let found = ["a", "b", "c", "d", "e"].map(|name| of(&application, name));
    assert_eq!(found, [0, 5, 5, 0, 5]);
    // What the layout file says holds, and is handed on.
    let text = all.replace("name = \"c\"", "name = \"c\"\npriority = 1");
    let application = site.read(&text).expect("valid");
    let found = ["b", "c", "d", "e"].map(|name| of(&application, name));
    assert_eq!(found, [5, 1, 0, 1]);
    let index = application.index(&"e".parse().expect("a name")).expect("there");
    let source = application.offcodes[index].priority_source;
    assert!(matches!(source, PrioritySource::Inherited(_)), "{source:?}");
}

#[test]
fn of_several_priorities_the_highest_is_inherited() {
    let site = Site::new();
    site.package("a", &import("c", "priority = 3"))
        .package("b", &import("c", "priority = 7"))
        .package("c", "");
    let application = site.read(&listed(&["a", "b", "c"])).expect("valid");
    assert_eq!(application.offcodes[2].priority, 7);
    assert_eq!(application.offcodes[2].priority_source, PrioritySource::Reference(1));
}

#[test]
fn channels_and_constraints_are_resolved() {
    let site = Site::new();
    site.package("a", "").package("b", "");
    let text = listed(&["a", "b"])
        + "[[channel]]\nfrom = \"a.out\"\nto = [\"b.in\", \"app.page\"]\n\
           [[layout]]\ngang = [\"b\", \"a\"]\n";
    let application = site.read(&text).expect("valid");
    let channel = &application.channels[0];
    assert_eq!(channel.from, ApplicationEnd::Port { offcode: 0, port: 1 });
    assert_eq!(channel.to[0], ApplicationEnd::Port { offcode: 1, port: 0 });
    assert_eq!(channel.to[1], ApplicationEnd::App(Some("page".parse().expect("a name"))));
    assert_eq!(application.constraints[0].offcodes, [1, 0]);
}

#[test]
fn attributes_of_both_files_count() {
    let site = Site::new();
    site.package("a", "[attributes]\ngreeting = \"hello\"\nWATCHDOG_TIME = \"1s\"\n");
    let text = listed(&["a"]) + "[offcode.attributes]\ngreeting = \"hi\"\n";
    let application = site.read(&text).expect("valid");
    let attributes = &application.offcodes[0].attributes;
    assert_eq!(attributes.own.values().collect::<Vec<_>>(), ["hi"]);
    assert_eq!(attributes.watchdog_time, Some(std::time::Duration::from_secs(1)));
}

#[test]
fn faults_of_the_layout_file_have_their_line() {
    let site = Site::new();
    site.package("a", "");
    let channel = "[[channel]]\nfrom = \"a.out\"\nto = ";
    let table = [
        (
            listed(&["none"]),
            "app.toml:3: the offcode none has no package: none is no directory; write \"package\" \
             as its path relative to this file",
        ),
        (
            listed(&["a"]) + channel + "\"aa.in\"",
            "app.toml:5: there is no offcode aa; did you mean a?",
        ),
        (
            listed(&["a"]) + channel + "\"a.im\"",
            "app.toml:5: a has no port im; its ports are in, out",
        ),
        (
            listed(&["a"]) + channel + "\"a.x\"",
            "app.toml:5: a has no port x; its ports are in, out",
        ),
        (
            listed(&["a"]) + "[[layout]]\npull = [\"a\", \"a\"]\n",
            "app.toml:5: an offcode is there twice: a constraint is between different ones",
        ),
        (
            listed(&["a"]) + "[[import]]\nfrom = \"a.sum\"\nto = \"a\"\n",
            "app.toml:5: a has no import sum",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(site.fault(&text), expected, "{text}");
    }
}

#[test]
fn faults_of_imports_have_the_line_of_the_description() {
    let site = Site::new();
    site.package("a", "").package("b", &import("zz", "")).package("old", "");
    site.package("c", &import("gone", "offcode = \"gone\""));
    site.package("d", &import("gone", "offcode = \"a\""));
    site.package("e", &import("old", "").replace("1.0.0", "2.0.0"));
    let pinned = "guid = \"6ba7b812-9dad-11d1-80b4-00c04fd430c8\"";
    site.package("f", &import("a", pinned));
    let table = [
        (
            listed(&["b"]),
            "b/offcode.toml:8: the import zz needs the interface demo:x/zz@1.0.0, and no offcode \
             of the application offers it: list one in app.toml, or name its package by \
             \"offcode\" here",
        ),
        (
            listed(&["e", "old"]),
            "e/offcode.toml:8: the import old needs the interface demo:x/old@2.0.0, and no \
             offcode of the application offers it (old offers demo:x/old@1.0.0, which is another \
             version): list one in app.toml, or name its package by \"offcode\" here",
        ),
        (
            listed(&["c"]),
            "c/offcode.toml:8: the import gone needs the package \"gone\", which is not there \
             (looked for gone and gone): put it there, or name an offcode for it by [[import]] in \
             app.toml",
        ),
        (
            listed(&["d"]),
            "d/offcode.toml:8: the import gone needs the interface demo:x/gone@1.0.0, which a \
             does not offer (it offers demo:x/a@1.0.0): assign another offcode by [[import]] in \
             app.toml",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(site.fault(&text), expected, "{text}");
    }
    let message = site.fault(&listed(&["a", "f"]));
    assert!(message.contains("needs the offcode with the GUID 6ba7b812"), "{message}");
}

#[test]
fn a_name_that_is_taken_is_not_created() {
    let site = Site::new();
    site.package("a", &import("b", "offcode = \"../b\"")).package("b", "").package("c", "");
    let text = listed(&["a"]) + "[[offcode]]\nname = \"b\"\npackage = \"c\"\n";
    let message = site.fault(&text);
    assert!(message.contains("and the name b is taken"), "{message}");
}

#[test]
fn chains_are_followed_and_offcodes_bounded() {
    let site = Site::new();
    for number in 0..20 {
        let next = format!("p{}", number + 1);
        site.package(&format!("p{number}"), &import(&next, &format!("offcode = \"{next}\"")));
    }
    site.package("p20", "");
    let application = site.read(&listed(&["p0"])).expect("valid");
    assert_eq!((application.offcodes.len(), application.references.len()), (21, 20));
    let many: String =
        (1..1024).map(|n| format!("[[offcode]]\nname = \"n{n}\"\npackage = \"p20\"\n")).collect();
    let message = site.fault(&(many + &listed(&["p18"])));
    assert!(message.ends_with("would have more than 1024 offcodes"), "{message}");
}
