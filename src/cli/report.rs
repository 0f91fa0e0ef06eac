//! `nfgen report`: the HTML report of a design.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::emit::internal;
use super::plan::MachineArgs;
use super::reference::problems;
use super::{DeviceArgs, Exit, ModelArgs, Output};
use crate::compile::trainer::compile;
use crate::config::fields;
use crate::diag::{Diagnostic, Problems};
use crate::files::{MOST_TEXT, read_text};
use crate::reference::checkpoint::write_atomically;
use crate::report::{Sources, files};
use crate::trainer::cycles::Timeline;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nfgen report --device zcu102 --model small --array 8 -o report\n  \
    nfgen synth --device zcu102 --model small --json > synth.json\n  \
    nfgen sim --device zcu102 --model small --corpus text.txt --steps 3 --timeline timeline.json --json > sim.json\n  \
    nfgen report --device zcu102 --model small --synth synth.json --sim sim.json --timeline timeline.json -o report\n\n\
    Every figure carries its kind: planned, simulated, synthesised or published."
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    machine: MachineArgs,
    /// Object that `nfgen synth --json` printed for the same design
    #[arg(long, value_name = "FILE")]
    synth: Option<PathBuf>,
    /// Object that `nfgen sim --json` printed for the same design
    #[arg(long, value_name = "FILE")]
    sim: Option<PathBuf>,
    /// File that `nfgen sim --timeline` wrote for the same design
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Folder of the report
    #[arg(short, long, value_name = "DIR", default_value = "report")]
    out: PathBuf,
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let model = args.model.resolve()?;
    let device = args.device.resolve()?;
    let plan = args.machine.plan(&model, &device)?;
    let core = compile(&plan, "report", &fields::to_toml(&model)).map_err(internal)?;
    let hash = core.rtl_sha256();
    let synth = args.synth.as_deref().map(read).transpose()?;
    let sim = args.sim.as_deref().map(read).transpose()?;
    for (path, object) in [(&args.synth, &synth), (&args.sim, &sim)] {
        if let (Some(path), Some(object)) = (path, object) {
            same_design(path, object, &hash)?;
        }
    }
    let timeline = match &args.timeline {
        Some(path) => Some(timeline(path, &read(path)?)?),
        None => None,
    };
    let written = files(&Sources {
        plan: &plan,
        synth: synth.as_ref(),
        sim: sim.as_ref(),
        timeline: timeline.as_ref(),
        rtl_sha256: &hash,
    });
    std::fs::create_dir_all(&args.out).map_err(|e| Diagnostic::cannot_write(&args.out, &e))?;
    for (name, text) in &written {
        write_atomically(&args.out.join(name), text.as_bytes()).map_err(problems)?;
    }
    let names: Vec<&str> = written.iter().map(|(name, _)| *name).collect();
    out.object(&json!({ "folder": args.out, "files": names, "rtl_sha256": hash }));
    out.say(format!("{}: {}", args.out.display(), names.join(", ")));
    Ok(Exit::Done)
}

fn refused(path: &Path, problem: &str) -> Problems {
    Diagnostic::new(
        "nf::report::input",
        format!("cannot use {}: {problem}", path.display()),
        "give the objects that `nfgen synth --json`, `nfgen sim --json` and `nfgen sim --timeline` wrote for the same \
         --model, --device and options",
    )
    .into()
}

fn read(path: &Path) -> Result<Value, Problems> {
    let text = read_text(path, MOST_TEXT).map_err(|e| refused(path, &e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| refused(path, &e.to_string()))
}

/// Figures of another design must not stand in this one's report.
fn same_design(path: &Path, object: &Value, hash: &str) -> Result<(), Problems> {
    match object.get("rtl_sha256").and_then(Value::as_str) {
        Some(found) if found == hash => Ok(()),
        Some(found) => Err(refused(
            path,
            &format!("it belongs to RTL {found:.12}, this design is {hash:.12}"),
        )),
        None => Err(refused(path, "it has no rtl_sha256")),
    }
}

fn timeline(path: &Path, object: &Value) -> Result<Timeline, Problems> {
    let mut t = Timeline::default();
    for (e, engine) in ["mat", "vec", "adam"].into_iter().enumerate() {
        for (key, list) in [
            ("start", &mut t.start[e]),
            ("ready", &mut t.ready[e]),
            ("retire", &mut t.retire[e]),
            ("busy", &mut t.busy[e]),
        ] {
            let found = object.get(engine).and_then(|o| o.get(key)?.as_array());
            let found =
                found.ok_or_else(|| refused(path, &format!("it has no list {engine}.{key}")))?;
            *list = found.iter().filter_map(Value::as_u64).collect();
        }
        let n = t.start[e].len();
        if [&t.ready[e], &t.retire[e], &t.busy[e]]
            .iter()
            .any(|l| l.len() != n)
        {
            return Err(refused(
                path,
                &format!("the lists of {engine} differ in length"),
            ));
        }
    }
    t.total = object.get("total").and_then(Value::as_u64).unwrap_or(0);
    Ok(t)
}
