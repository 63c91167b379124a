//! Who may cast where: keys, roots and their owners; and trees that try to leave their destination.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::fs::{XattrFlags, lgetxattr, setxattr};

use super::CastCheck;
use super::image::{Contents, TreeImage, listing};
use super::run::{CAST_MAX, CastOrder, CastReport, RunningCast};
use super::sample::noise;
use super::site::{CastSite, NodeSetup};
use super::traces::expect_names;
use crate::command;

/// Bytes of a file whose transfer shows in a host's counters.
const VISIBLE: usize = 8 << 20;

pub(super) fn checks() -> Vec<CastCheck> {
    vec![
        CastCheck::new("key: a source without it", source_without_key),
        CastCheck::new("key: a node without it", node_without_key),
        CastCheck::new("key: those of services", service_keys),
        CastCheck::new("roots: nothing is written outside", outside_roots),
        CastCheck::new("roots: owners", owners),
        CastCheck::new("escape: links in the way", links_in_the_way),
        CastCheck::new("escape: what is not cast", not_cast),
        CastCheck::new("equal content: of the same identity alone", equal_content),
    ]
}

/// A small file to cast.
fn trifle(site: &CastSite) -> Result<PathBuf> {
    let path = site.source().join("trifle");
    fs::write(&path, "trifle")?;
    Ok(path)
}

/// Another key.
fn other_key(site: &CastSite, words: &[&str], name: &str) -> Result<PathBuf> {
    let path = site.directory("keys")?.join(name);
    let _ = fs::remove_file(&path);
    let mut make = site.here(site.program());
    make.arg("key").args(words);
    match words {
        ["new"] => make.env("OUTBOARD_KEY", &path),
        _ => make.arg("--to").arg(&path),
    };
    site.ask(&mut make)?;
    Ok(path)
}

fn run(site: &CastSite, command: &mut Command) -> Result<CastReport> {
    RunningCast::start(command, &site.directory("said")?)?.finish(CAST_MAX)
}

/// Requires that a cast has failed at all nodes that it names, and that nothing came of it there.
fn expect_nothing(site: &CastSite, report: &CastReport, nodes: &[usize]) -> Result<()> {
    if report.code == Some(0) || report.failed().len() != report.nodes.len() {
        bail!("it was not refused: {report}");
    }
    nodes.iter().try_for_each(|index| expect_names(&site.disk(*index), &[]))
}

fn source_without_key(site: &mut CastSite) -> Result<()> {
    let key = other_key(site, &["new"], "stranger")?;
    let order = CastOrder::new([trifle(site)?], [0, 1]);
    let report = run(site, order.command(site).env("OUTBOARD_KEY", key))?;
    expect_nothing(site, &report, &[0, 1])?;
    // With the right key it works.
    order.run(site)?.expect_success()
}

/// A node with another key gets nothing, neither from the source nor from relays.
fn node_without_key(site: &mut CastSite) -> Result<()> {
    let key = Some(other_key(site, &["new"], "stranger")?);
    site.replace(1, &NodeSetup { key, ..NodeSetup::default() })?;
    let source = site.source().join("secret");
    fs::write(&source, noise(31, VISIBLE))?;
    let image = TreeImage::read(&source)?;
    let start = site.received(1)?;
    let report = CastOrder::new([source.clone()], 0..4).run(site)?;
    let failed: Vec<_> = report.failed().into_keys().collect();
    if report.code != Some(1) || failed != [site.name(1)] {
        bail!("one node has another key: {report}");
    }
    if site.received(1)? - start > VISIBLE as u64 / 20 {
        bail!("a node without the key has received something");
    }
    expect_names(&site.disk(1), &[])?;
    for index in [0, 2, 3] {
        image.expect(&site.disk(index).join("secret"), Contents::Whole)?;
    }
    site.replace(1, &NodeSetup::default())
}

/// The key of the service is enough, that of another service is none.
fn service_keys(site: &mut CastSite) -> Result<()> {
    let order = CastOrder::new([trifle(site)?], [0, 1]);
    let status = other_key(site, &["export", "status"], "status")?;
    let report = run(site, order.command(site).env("OUTBOARD_KEY", status))?;
    expect_nothing(site, &report, &[0, 1])?;
    let cast = other_key(site, &["export", "cast"], "cast")?;
    run(site, order.command(site).env("OUTBOARD_KEY", cast))?.expect_success()
}

/// Destinations that are outside of the roots, or lead there.
fn outside_roots(site: &mut CastSite) -> Result<()> {
    let (at, source) = (site.destination(), trifle(site)?);
    let outside = site.directory("outside")?;
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o777))?;
    symlink(&outside, site.disk(0).join("out"))?;
    symlink("..", site.disk(0).join("up"))?;
    fs::create_dir(site.disk(0).join("inside"))?;
    fs::set_permissions(site.disk(0).join("inside"), fs::Permissions::from_mode(0o777))?;
    let bad = [
        PathBuf::from("/"),
        PathBuf::from("/tmp"),
        outside.clone(),
        at.join("out"),
        at.join("up"),
        at.join("../outside"),
        at.join("inside/../../outside"),
        PathBuf::from(format!("{}x", at.display())),
        at.join("not there"),
        PathBuf::from("relative"),
    ];
    for destination in bad {
        let report = cast_to(site, &source, &destination)?;
        if report.code == Some(0) || !report.nodes.values().all(Result::is_err) {
            bail!("{destination:?} was accepted: {report}");
        }
    }
    if fs::read_dir(&outside)?.next().is_some() {
        bail!("something was written outside of the root");
    }
    cast_to(site, &source, &at.join("inside"))?.expect_success()?;
    expect_names(&site.disk(0), &["inside", "out", "up"])
}

fn cast_to(site: &CastSite, source: &Path, to: &Path) -> Result<CastReport> {
    let mut command = site.here(site.program());
    run(site, command.args(["cast", "--json", "--nodes", &site.name(0)]).arg(source).arg(to))
}

/// A root that belongs to another identity.
fn owners(site: &mut CastSite) -> Result<()> {
    let shown = site.ask(site.here(site.program()).args(["key", "show", "--json"]))?;
    let shown: serde_json::Value = serde_json::from_str(&shown)?;
    let own = shown["node"].as_str().context("key show prints no node")?.to_owned();
    let order = CastOrder::new([trifle(site)?], [0]);
    let strange = "0123456789abcdef0123456789abcdef";
    for (owner, is_allowed) in [(strange, false), (&*own, true)] {
        site.replace(0, &NodeSetup { owner: Some(owner.to_owned()), ..NodeSetup::default() })?;
        let report = order.run(site)?;
        match is_allowed {
            true => report.expect_success()?,
            false => expect_nothing(site, &report, &[0])?,
        }
    }
    site.replace(0, &NodeSetup::default())
}

/// Links that are at the destination, where a tree has directories and files.
fn links_in_the_way(site: &mut CastSite) -> Result<()> {
    let outside = site.directory("outside")?;
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o777))?;
    let top = site.source().join("escape");
    let _ = fs::remove_dir_all(&top);
    fs::create_dir_all(top.join("directory"))?;
    fs::write(top.join("directory/planted"), "planted")?;
    fs::write(top.join("file"), "planted")?;
    symlink(&outside, top.join("link"))?;
    let there = site.disk(0).join("escape");
    for mode in ["--merge", "--replace", "--json"] {
        fs::create_dir_all(&there)?;
        symlink(&outside, there.join("directory"))?;
        symlink(outside.join("victim"), there.join("file"))?;
        fs::set_permissions(&there, fs::Permissions::from_mode(0o777))?;
        let order = CastOrder::new([top.clone()], [0]);
        let order = if mode == "--json" { order } else { order.with(&[mode]) };
        let report = order.run(site)?;
        if fs::read_dir(&outside)?.next().is_some() {
            bail!("with {mode} a link led out of the destination: {report}");
        }
        if mode == "--replace" {
            report.expect_success()?;
            TreeImage::read(&top)?.expect(&there, Contents::Whole)?;
        }
        site.clear()?;
    }
    // Two sources of one name, of which the first is a link: nothing may pass through it.
    let (first, second) = (site.source().join("first"), site.source().join("second"));
    for at in [&first, &second] {
        let _ = fs::remove_dir_all(at);
        fs::create_dir_all(at)?;
    }
    symlink(&outside, first.join("same"))?;
    fs::create_dir(second.join("same"))?;
    fs::write(second.join("same/planted"), "planted")?;
    let report = CastOrder::new([first.join("same"), second.join("same")], [0]).run(site)?;
    if report.code == Some(0) || fs::read_dir(&outside)?.next().is_some() {
        bail!("two sources of one name were accepted: {report}");
    }
    expect_names(&site.disk(0), &[])
}

/// Devices, sockets and pipes, privileges: none of it arrives unless an administrator says so.
fn not_cast(site: &mut CastSite) -> Result<()> {
    let top = site.source().join("special");
    let _ = fs::remove_dir_all(&top);
    fs::create_dir_all(&top)?;
    command::run(Command::new("mknod").arg(top.join("device")).args(["c", "1", "3"]))?;
    command::run(Command::new("mkfifo").arg(top.join("pipe")))?;
    drop(UnixListener::bind(top.join("socket"))?);
    let program = top.join("program");
    fs::write(&program, "program")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755))?;
    // cap_net_raw, as setcap(8) writes it.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    setxattr(&program, "security.capability", &capability, XattrFlags::empty())?;
    let report = CastOrder::new([top], [0]).run(site)?;
    report.expect_success()?;
    let there = site.disk(0).join("special");
    let (names, _) = listing(&there)?;
    if names != [PathBuf::from("program")] {
        let devices = names.iter().filter_map(|name| fs::symlink_metadata(there.join(name)).ok());
        let devices = devices.filter(|meta| meta.file_type().is_char_device()).count();
        bail!("these arrived, {devices} devices among them: {names:?}");
    }
    let program = there.join("program");
    let mode = fs::metadata(&program)?.mode();
    if mode & 0o7777 != 0o755 {
        bail!("the program has mode {mode:o}");
    }
    if lgetxattr(&program, "security.capability", &mut [0_u8; 64][..]).is_ok() {
        bail!("the program has its capability");
    }
    Ok(())
}

/// What an identity has at a node is not sent again, but another one must bring it itself.
fn equal_content(site: &mut CastSite) -> Result<()> {
    let source = site.source().join("equal");
    fs::write(&source, noise(41, VISIBLE))?;
    let image = TreeImage::read(&source)?;
    let order = CastOrder::new([source], [0]).with(&["--replace"]);
    let home = site.directory("other-home")?;
    // By whom, and which part of it, in hundredths, is sent.
    for (is_other, range) in [(false, 95..130), (false, 0..20), (true, 95..130), (true, 0..20)] {
        let mut command = order.command(site);
        if is_other {
            command.env("HOME", &home);
        }
        let start = site.received(0)?;
        run(site, &mut command)?.expect_success()?;
        let sent = (site.received(0)? - start) * 100 / VISIBLE as u64;
        image.expect(&site.disk(0).join("equal"), Contents::Whole)?;
        if !range.contains(&sent) {
            let by = if is_other { "another identity" } else { "the first identity" };
            bail!("{by} sent {sent} % of a file, expected {range:?}");
        }
    }
    Ok(())
}
