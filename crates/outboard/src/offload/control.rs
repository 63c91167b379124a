//! Commands for applications that run: `ps`, `stop`, `logs`, `call`, `move`, `update`, `attribute`.

use super::print_line;
use super::show::printable;
use crate::Outcome;
use clap::Args;
use outboard_offload::control::client::ControlError;
use outboard_offload::control::{ControlClient, ControlQuestion, place};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// How long an application may take over an answer.
const LIMIT: Duration = Duration::from_secs(70);
/// How long one may take to be listed.
const LIST_LIMIT: Duration = Duration::from_secs(2);
/// How long an application may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// List running applications with their offcodes.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload ps --json")]
pub(crate) struct PsArgs {
    /// Only this application.
    app: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Stop an application, or remove one of its offcodes with all below it.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload stop packets")]
pub(crate) struct StopArgs {
    /// The application.
    app: String,
    /// The offcode.
    offcode: Option<String>,
}

/// Show what an application's offcodes have logged.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload logs packets --follow")]
pub(crate) struct LogsArgs {
    /// The application.
    app: String,
    /// Go on as lines come.
    #[arg(short, long)]
    follow: bool,
}

/// Call a method of an offcode; parameters and results are JSON.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload call packets counter total
  outboard offload call words index find '\"apple\"'")]
pub(crate) struct CallArgs {
    /// The application.
    app: String,
    /// The offcode.
    offcode: String,
    /// The method, or interface.method.
    method: String,
    /// The parameters, each as JSON.
    params: Vec<String>,
    /// Seconds to wait for the answer.
    #[arg(long, default_value_t = 10)]
    deadline: u64,
}

/// Move an offcode to another device while it runs.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload move packets counter core:1")]
pub(crate) struct MoveArgs {
    /// The application.
    app: String,
    /// The offcode.
    offcode: String,
    /// The device: host, core:1, node:big:7411.
    device: String,
}

/// Let an offcode go on with other code, from the state that it saves.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload update packets counter ./counter-2")]
pub(crate) struct UpdateArgs {
    /// The application.
    app: String,
    /// The offcode.
    offcode: String,
    /// The directory of the package with the new code.
    package: PathBuf,
}

/// Show an offcode's attributes, or set one.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload attribute packets filter port 80")]
pub(crate) struct AttributeArgs {
    /// The application.
    app: String,
    /// The offcode.
    offcode: String,
    /// The attribute.
    #[arg(requires = "value")]
    name: Option<String>,
    /// Its value.
    value: Option<String>,
}

fn ask(app: &str, question: &ControlQuestion) -> Result<Value, ControlError> {
    ControlClient::connect(app, LIMIT)?.ask(question)
}

pub(super) fn ps(args: &PsArgs) -> Outcome {
    let names = match &args.app {
        Some(app) => vec![app.clone()],
        None => place::applications()?,
    };
    let mut all = Vec::new();
    for name in names {
        let asked = ControlClient::connect(&name, LIST_LIMIT)
            .and_then(|mut client| client.ask(&ControlQuestion::Status));
        match asked {
            Ok(status) => all.push(status),
            Err(ControlError::NotRunning(_)) if args.app.is_none() => {}
            Err(error) if args.app.is_none() && args.json => {
                all.push(json!({ "application": name, "failed": error.to_string() }));
            }
            Err(error) if args.app.is_none() => eprintln!("outboard: {error}"),
            Err(error) => return Err(error.into()),
        }
    }
    match args.json {
        true => print_line(json!(all)),
        false => all.iter().try_for_each(show),
    }
}

fn show(status: &Value) -> Outcome {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    print_line(format!("{}  process {}", text(&status["application"]), status["process"]))?;
    let rows = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    for device in rows("devices").iter().filter(|device| !device["lost"].is_null()) {
        print_line(format!(
            "  device {} is lost: {}",
            text(&device["name"]),
            text(&device["lost"])
        ))?;
    }
    print_line(
        "  offcode           device                phase        received       sent   cpu ms",
    )?;
    for one in rows("offcodes") {
        let (name, device, phase) = (text(&one["name"]), text(&one["device"]), text(&one["phase"]));
        let number = |name: &str| one[name].as_u64().unwrap_or(0);
        let (received, sent) = (number("received"), number("sent"));
        let cpu = number("busy_ns") / 1_000_000;
        print_line(format!(
            "  {name:16}  {device:20}  {phase:11} {received:>9} {sent:>10} {cpu:>8}"
        ))?;
    }
    for one in rows("channels") {
        let (from, to, carrier) = (text(&one["from"]), text(&one["to"]), text(&one["carrier"]));
        print_line(format!("  {from} -> {to}  by {carrier}"))?;
    }
    Ok(())
}

pub(super) fn stop(args: &StopArgs) -> Outcome {
    ask(&args.app, &ControlQuestion::Stop { offcode: args.offcode.clone() })?;
    if args.offcode.is_some() {
        return Ok(());
    }
    let began = Instant::now();
    while ControlClient::connect(&args.app, LIST_LIMIT).is_ok() {
        if began.elapsed() > STOP_LIMIT {
            return Err(format!("application {} has not stopped in 30 s", args.app).into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

pub(super) fn logs(args: &LogsArgs) -> Outcome {
    let mut after = 0;
    let mut client = ControlClient::connect(&args.app, LIMIT)?;
    loop {
        let found = match client.ask(&ControlQuestion::Logs { after }) {
            Err(ControlError::NotRunning(_)) if after > 0 => return Ok(()),
            found => found?,
        };
        for line in found["lines"].as_array().into_iter().flatten() {
            print_line(printable(line.as_str().unwrap_or_default()))?;
        }
        after = found["last"].as_u64().unwrap_or(after);
        if !args.follow {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(200));
    }
}

pub(super) fn call(args: &CallArgs) -> Outcome {
    let parse = |text: &String| {
        let hint = "is no JSON: texts are written '\"so\"'";
        serde_json::from_str(text).map_err(|error| format!("parameter {text} {hint} ({error})"))
    };
    let question = ControlQuestion::Call {
        offcode: args.offcode.clone(),
        method: args.method.clone(),
        params: args.params.iter().map(parse).collect::<Result<_, _>>()?,
        deadline_ms: args.deadline.saturating_mul(1000),
    };
    print_line(ask(&args.app, &question)?)
}

pub(super) fn move_offcode(args: &MoveArgs) -> Outcome {
    let (offcode, device) = (args.offcode.clone(), args.device.clone());
    ask(&args.app, &ControlQuestion::Move { offcode, device })?;
    Ok(())
}

pub(super) fn update(args: &UpdateArgs) -> Outcome {
    let package = args.package.canonicalize();
    let package = package.map_err(|error| format!("{}: {error}", args.package.display()))?;
    ask(&args.app, &ControlQuestion::Update { offcode: args.offcode.clone(), package })?;
    Ok(())
}

pub(super) fn attribute(args: &AttributeArgs) -> Outcome {
    let offcode = args.offcode.clone();
    let question = match (&args.name, &args.value) {
        (Some(name), Some(value)) => {
            ControlQuestion::SetAttribute { offcode, name: name.clone(), value: value.clone() }
        }
        _ => ControlQuestion::Attributes { offcode },
    };
    let answer = ask(&args.app, &question)?;
    let shown = answer.as_object().into_iter().flatten();
    shown
        .map(|(name, value)| format!("{name} = {}", value.as_str().unwrap_or_default()))
        .try_for_each(|line| print_line(printable(&line)))
}
