//! Layouts of applications as files describe them.

use super::*;
use crate::describe::Application;
use std::fs;
use tempfile::TempDir;

struct Site(TempDir);

impl Site {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn package(&self, name: &str, more: &str) -> &Self {
        let at = self.0.path().join(name);
        fs::create_dir_all(&at).expect("made");
        let text = format!(
            "name = \"{name}\"\nversion = \"1.0.0\"\ninterfaces = [\"demo:x/{name}@1.0.0\"]\n\
             ports = [\"in\", \"out\"]\n[[body]]\nkind = \"builtin\"\nname = \"relay\"\n{more}"
        );
        fs::write(at.join("offcode.toml"), text).expect("written");
        self
    }

    fn layout(&self, text: &str) -> Result<AppLayout, LayoutFault> {
        let path = self.0.path().join("app.toml");
        let devices = "[device]\ncores = [0]\n";
        fs::write(&path, format!("[app]\nname = \"a\"\n{devices}{text}")).expect("written");
        let application = Application::read(&path).expect("valid");
        let machine = Machine::with(&application.devices);
        AppLayout::of(application, machine, ChannelCosts::default(), &[])
    }
}

fn devices(layout: &AppLayout) -> Vec<(&str, &str)> {
    let device = |at: usize| layout.machine.devices[layout.device(at)].name.as_str();
    let offcodes = layout.application.offcodes.iter().enumerate();
    offcodes.map(|(at, offcode)| (offcode.name.as_str(), device(at))).collect()
}

const TWO: &str = "[[offcode]]\nname = \"alpha\"\npriority = 1\n[[offcode]]\nname = \"beta\"\n\
                   on = \"host\"\n";

#[test]
fn a_pull_in_the_place_of_a_link_places_anew_and_nothing_else_changes() {
    let site = Site::new();
    site.package("alpha", "").package("beta", "");
    let linked = format!("{TWO}[[layout]]\nlink = [\"alpha\", \"beta\"]\n");
    let pulled = format!("{TWO}[[layout]]\npull = [\"alpha\", \"beta\"]\n");
    let linked = site.layout(&linked).expect("possible");
    assert_eq!(devices(&linked), [("alpha", "core:0"), ("beta", "host")]);
    let pulled = site.layout(&pulled).expect("possible");
    assert_eq!(devices(&pulled), [("alpha", "host"), ("beta", "host")]);
    let mut plans = [linked, pulled].map(|layout| layout.runtime_plan(&[0, 1]).expect("a plan"));
    for plan in &mut plans {
        plan.offcodes.iter_mut().for_each(|offcode| offcode.device = 0);
    }
    let [one, other] = plans.map(|plan| format!("{plan:?}"));
    assert_eq!(one, other, "only the devices differ");
}

#[test]
fn a_conflict_names_what_cannot_hold_together() {
    let site = Site::new();
    site.package("alpha", "").package("beta", "");
    let text = "[[offcode]]\nname = \"alpha\"\non = \"core:0\"\n[[offcode]]\nname = \"beta\"\n\
                on = \"host\"\n[[layout]]\npull = [\"alpha\", \"beta\"]\n";
    let error = site.layout(text).expect_err("impossible").to_string();
    assert!(error.contains("alpha") && error.contains("beta"), "{error}");
    assert!(error.to_lowercase().contains("pull"), "{error}");
}

#[test]
fn an_import_calls_the_interface_of_whoever_serves_it_and_servers_start_first() {
    let site = Site::new();
    let import =
        "[[import]]\nname = \"b\"\ninterface = \"demo:x/beta@1.0.0\"\noffcode = \"beta\"\n";
    site.package("alpha", import).package("beta", "");
    let layout = site.layout("[[offcode]]\nname = \"alpha\"\n").expect("possible");
    let plan = layout.runtime_plan(&[0, 1]).expect("a plan");
    let names: Vec<&str> = plan.offcodes.iter().map(|offcode| offcode.name.as_str()).collect();
    assert_eq!(names, ["beta", "alpha"]);
    let (interface, server) = &plan.offcodes[1].imports[0];
    assert_eq!(server.as_deref(), Some("beta"));
    assert_eq!(*interface, plan.offcodes[0].interfaces[0]);
    assert_eq!(plan.offcodes[0].parent.as_deref(), Some("alpha"));
}

#[test]
fn a_processor_that_is_not_there_is_refused_with_its_reason() {
    let site = Site::new();
    site.package("alpha", "");
    let path = site.0.path().join("app.toml");
    let text = "[app]\nname = \"a\"\n[device]\ncores = [900]\n[[offcode]]\nname = \"alpha\"\n";
    fs::write(&path, text).expect("written");
    let application = Application::read(&path).expect("valid");
    let machine = Machine::with(&application.devices);
    let layout = AppLayout::of(application, machine, ChannelCosts::default(), &[]);
    let text = layout.expect("possible").explanation(0);
    assert!(text.contains("this process may run on processors"), "{text}");
}
