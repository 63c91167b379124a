//! Paths and node lists as people write them, in surroundings as they are found.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::CastCheck;
use super::image::{Contents, TreeImage};
use super::run::{CAST_MAX, CastReport, RunningCast};
use super::site::CastSite;
use super::traces::expect_names;

pub(super) fn checks() -> Vec<CastCheck> {
    vec![
        CastCheck::new("spelling: sources", sources),
        CastCheck::new("spelling: sources that cannot be", bad_sources),
        CastCheck::new("spelling: destinations", destinations),
        CastCheck::new("spelling: lists of nodes", lists),
        CastCheck::new("spelling: the source among the nodes", among_nodes),
    ]
}

/// A directory `tree` with a file `file`, and links to both.
fn stage(site: &CastSite) -> Result<PathBuf> {
    let at = site.source().join("spelling");
    let _ = fs::remove_dir_all(&at);
    fs::create_dir_all(at.join("tree/deep"))?;
    fs::write(at.join("tree/deep/inside"), "inside")?;
    fs::write(at.join("file"), "file")?;
    symlink("tree", at.join("to-tree"))?;
    symlink("file", at.join("to-file"))?;
    fs::create_dir_all(at.join("other/tree"))?;
    Ok(at)
}

/// A shell in the source's host that has the command up to its sources as `$CAST`.
fn shell(site: &CastSite, directory: &Path, line: &str) -> Result<CastReport> {
    let mut shell = site.here("sh");
    let cast = format!("{} cast --json --nodes {}", site.program().display(), site.name(0));
    shell.args(["-ec", line]).current_dir(directory).env("CAST", cast);
    shell.env("AT", site.destination()).env("S", site.source().join("spelling"));
    run(site, &mut shell)
}

fn run(site: &CastSite, command: &mut Command) -> Result<CastReport> {
    RunningCast::start(command, &site.directory("said")?)?.finish(CAST_MAX)
}

/// Lines of a shell, the name that appears, and what it is in the directory.
const SOURCES: &[(&str, &str, &str)] = &[
    ("cd $S; exec $CAST tree $AT", "tree", "tree"),
    ("cd $S; exec $CAST ./tree/ $AT", "tree", "tree"),
    ("cd $S; exec $CAST tree//. $AT", "tree", "tree"),
    ("cd $S/tree; exec $CAST . $AT", "tree", "tree"),
    ("cd $S/tree/deep; exec $CAST .. $AT", "tree", "tree"),
    ("cd $S/to-tree; exec $CAST ../file $AT", "file", "file"),
    ("cd $S; exec $CAST to-file $AT", "to-file", "file"),
    ("cd $S; exec $CAST to-tree $AT", "to-tree", "tree"),
    ("cd $S; exec $CAST to-tree/ $AT", "to-tree", "tree"),
    ("cd $S; exec $CAST /proc/self/cwd/file $AT", "file", "file"),
    ("cd /; umask 077; TZ=Pacific/Kiritimati exec $CAST $S/tree $AT", "tree", "tree"),
    ("cd $S; umask 777; TZ=America/St_Johns exec $CAST file $AT", "file", "file"),
    ("cd $S; unset PATH LC_ALL; exec $CAST ./file $AT", "file", "file"),
    ("cd $S; exec 0<&- $CAST file $AT", "file", "file"),
];

fn sources(site: &mut CastSite) -> Result<()> {
    let at = stage(site)?;
    for (line, name, original) in SOURCES {
        shell(site, &at, line)?.expect_success().context(*line)?;
        expect_names(&site.disk(0), &[*name]).context(*line)?;
        let image = TreeImage::read(&at.join(original))?;
        image.expect(&site.disk(0).join(name), Contents::Whole).context(*line)?;
        site.clear()?;
    }
    Ok(())
}

/// Lines that are refused, and a word of the error.
const REFUSED: &[(&str, &str)] = &[
    ("exec $CAST $S/tree $S/other/tree $AT", "tree"),
    ("exec $CAST $S/file $S/file $AT", "file"),
    ("exec $CAST $S/nothing $AT", "nothing"),
    ("exec $CAST $S/file $S/nothing $AT", "nothing"),
    ("exec $CAST / $AT", "name"),
    ("exec $CAST '' $AT", ""),
    ("exec $CAST $AT", "DEST"),
    ("mkdir -p $S/.outboard-cast-x; exec $CAST $S/.outboard-cast-x $AT", ".outboard-cast-x"),
    ("ln -sf loop $S/loop; exec $CAST $S/loop $AT", "loop"),
    ("mkfifo $S/pipe; exec $CAST $S/pipe $AT", "pipe"),
    ("exec $CAST --schedule cahin $S/file $AT", "cahin"),
    ("exec $CAST --chunk 1000 $S/file $AT", "1000"),
    ("exec $CAST --exclude '' $S/file $AT", "pattern"),
    ("exec $CAST $S/file relative", "absolute"),
];

fn bad_sources(site: &mut CastSite) -> Result<()> {
    let at = stage(site)?;
    for (line, word) in REFUSED {
        shell(site, &at, line)?.expect_refusal(word).context(*line)?;
        expect_names(&site.disk(0), &[]).context(*line)?;
    }
    Ok(())
}

fn destinations(site: &mut CastSite) -> Result<()> {
    let at = stage(site)?;
    for destination in ["$AT/", "$AT/.", "/.$AT", "$AT//"] {
        let line = format!("exec $CAST $S/file {destination}");
        shell(site, &at, &line)?.expect_success().with_context(|| line.clone())?;
        expect_names(&site.disk(0), &["file"]).context(line)?;
        site.clear()?;
    }
    for (destination, word) in [("$AT/nothing", "make the directory"), ("$AT/file", "directory")] {
        fs::write(site.disk(0).join("file"), "there")?;
        let line = format!("exec $CAST $S/tree {destination}");
        let report = shell(site, &at, &line)?;
        let says = report.failed().values().any(|why| why.contains(word));
        if report.code != Some(1) || !says {
            bail!("{destination} should fail: {report}");
        }
        expect_names(&site.disk(0), &["file"])?;
    }
    // What is there stays unless it is to be replaced.
    let report = shell(site, &at, "exec $CAST $S/file $AT")?;
    if report.code != Some(1) || fs::read(site.disk(0).join("file"))? != b"there" {
        bail!("a file was replaced: {report}");
    }
    shell(site, &at, "exec $CAST --replace $S/file $AT")?.expect_success()?;
    expect_names(&site.disk(0), &["file"])?;
    if fs::read(site.disk(0).join("file"))? != b"file" {
        bail!("a file was not replaced");
    }
    Ok(())
}

/// No nodes, a node twice, and a name that nothing has.
fn lists(site: &mut CastSite) -> Result<()> {
    let at = stage(site)?;
    let with = |list: &str| -> Result<CastReport> {
        let mut cast = site.here(site.program());
        cast.args(["cast", "--json", "--nodes", list]).arg(at.join("file"));
        run(site, cast.arg(site.destination()))
    };
    with("")?.expect_refusal("")?;
    let mut unnamed = site.here(site.program());
    let unnamed = unnamed.args(["cast", "--json"]).arg(at.join("file")).arg(site.destination());
    run(site, unnamed)?.expect_refusal("--nodes")?;
    with("n[3-1]")?.expect_refusal("n[3-1]")?;
    let twice = with(&site.names([0, 1, 0]))?;
    match twice.code {
        Some(0) => {
            [0, 1].iter().try_for_each(|index| expect_names(&site.disk(*index), &["file"]))?
        }
        _ => {
            twice.expect_refusal("twice")?;
            [0, 1].iter().try_for_each(|index| expect_names(&site.disk(*index), &[]))?;
        }
    }
    site.clear()?;
    let report = with(&format!("nobody.invalid,{}", site.name(0)))?;
    let failed: Vec<&str> = report.failed().into_keys().collect();
    if report.code != Some(1) || failed.len() != 1 || !failed[0].contains("nobody.invalid") {
        bail!("one host has no address: {report}");
    }
    expect_names(&site.disk(0), &["file"])
}

/// A cast that begins on a host that receives it, too.
fn among_nodes(site: &mut CastSite) -> Result<()> {
    let at = stage(site)?;
    let mut cast = site.on_node(2, site.program());
    cast.args(["cast", "--json", "--nodes", &site.names(0..4)]).arg(at.join("tree"));
    run(site, cast.arg(site.destination()))?.expect_success()?;
    let image = TreeImage::read(&at.join("tree"))?;
    for index in 0..4 {
        expect_names(&site.disk(index), &["tree"])?;
        image.expect(&site.disk(index).join("tree"), Contents::Whole)?;
    }
    Ok(())
}
