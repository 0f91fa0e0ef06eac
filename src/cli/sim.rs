//! `nfgen sim`: trains in simulated RTL and compares every word with the reference.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::chart::loss_table;
use super::common::{cache_folder, check_writable};
use super::emit::internal;
use super::plan::MachineArgs;
use super::reference::{CorpusArgs, load_checkpoint, problems, threads};
use super::{Exit, ModelArgs, Output};
use crate::compile::trainer::compile;
use crate::config::{self, Device, ModelConfig, fields};
use crate::diag::{Diagnostic, Problems};
use crate::emit::core::rtl_sha256;
use crate::reference::State;
use crate::reference::checkpoint::{Checkpoint, write_atomically};
use crate::reference::corpus::{Order, Sampler};
use crate::sim::compare::Difference;
use crate::sim::driver::DriverError;
use crate::sim::trainer::{self as simulation, Options, SimError, SimReport, StepReport};
use crate::sim::verilate::BuildError;
use crate::trainer::cycles::Timeline;

/// Array that is simulated when no device is named: small enough that a model builds in seconds.
const DEFAULT_ARRAY: usize = 8;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nfgen sim --model small --corpus text.txt --steps 50\n  \
    nfgen sim --model small --corpus text.txt --steps 20 --stalls 0.3 --seed 7 --rounding stochastic\n  \
    nfgen sim --model tiny --corpus text.txt --rtl generated/tiny/rtl    # Verilog of your own\n  \
    nfgen sim --model small --corpus text.txt --steps 10 --save half.safetensors\n  \
    nfgen sim --init half.safetensors --corpus text.txt --first 10 --steps 10\n\n\
    Exit code 1 when hardware and reference differ; the first difference is shown with a waveform."
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Device of the catalogue or a TOML file; without it, an 8 x 8 array is simulated
    #[arg(long, value_name = "NAME|FILE")]
    device: Option<String>,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    corpus: CorpusArgs,
    /// Training samples
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Number of the first training window, to continue a run
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Probability, per cycle and stream, of an idle source or a busy sink
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    stalls: f64,
    /// Seed of the stalls
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u32,
    /// Rounding of stored weights: short for --set rounding=...
    #[arg(long, value_name = "KIND")]
    rounding: Option<String>,
    /// Start from a checkpoint's weights, moments and step (its model too)
    #[arg(long, value_name = "CKPT")]
    init: Option<PathBuf>,
    /// Save the hardware's state at the end as a checkpoint
    #[arg(long, value_name = "CKPT")]
    save: Option<PathBuf>,
    /// Simulate the Verilog files of this folder instead of freshly emitted ones
    #[arg(long, value_name = "DIR")]
    rtl: Option<PathBuf>,
    /// Where the waveform of a difference goes
    #[arg(long, value_name = "FILE", default_value = "nfgen-sim.fst")]
    waveform: PathBuf,
    /// Write when every instruction of the last sample started and retired, for `nfgen report --timeline`
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Folder of built simulation models [default: $NFGEN_CACHE, else nfgen in the user's cache]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let mut set = args.model.set.clone();
    set.extend(args.rounding.iter().map(|r| format!("rounding={r}")));
    let (model, state) = match &args.init {
        Some(path) => {
            let (model, state, _) = load_checkpoint(path, &set)?;
            (model, state)
        }
        None => {
            let model = config::load_model(&args.model.model, &set)?;
            let state = State::init(&model);
            (model, state)
        }
    };
    if !(0.0..=0.9).contains(&args.stalls) {
        return Err(Diagnostic::new(
            "nf::sim::stalls",
            format!("a stall probability of {} is not possible", args.stalls),
            "0 to 0.9 are",
        )
        .into());
    }
    for path in args.save.iter().chain(&args.timeline) {
        check_writable(path)?;
    }
    let plan = plan(&args, &model)?;
    let windows = windows(&args, &model)?;
    let core = compile(&plan, "simulation", &fields::to_toml(&model)).map_err(internal)?;
    let rtl = match &args.rtl {
        Some(folder) => Some(read_rtl(folder)?),
        None => None,
    };
    let mut options = Options {
        stalls: args.stalls,
        seed: args.seed,
        waveform: None,
        cache: cache_folder(args.cache.as_ref()),
        threads: threads(None),
        limit: None,
    };

    out.note(format!(
        "building the model of a {b} x {b} array (cached for the next run)",
        b = plan.shape.b
    ));
    let built = simulation::build(&core, rtl.as_deref(), &options).map_err(sim_problem)?;
    let bar = out.progress(u64::from(args.steps), "samples");
    let mut last = None;
    let mut show = |step: &StepReport| {
        bar.set_position(u64::from(step.step));
        bar.set_message(format!("loss {:.4}", step.loss));
        if !out.is_json() && bar.is_hidden() {
            out.note(format!(
                "sample {:>4}  loss {:.4}  {} cycles  {} words compared, {} differ",
                step.step, step.loss, step.cycles, step.words_compared, step.mismatches
            ));
        }
        last = Some(step.step);
    };
    let (mut report, final_state) =
        simulation::run(&plan, &built, &state, &windows, &options, &mut show)
            .map_err(sim_problem)?;
    bar.finish_and_clear();

    if report.mismatches > 0 {
        // Once more with tracing, from the state before the failing sample.
        out.note("building the model with tracing for a waveform of the failing sample");
        options.waveform =
            Some(std::path::absolute(&args.waveform).unwrap_or(args.waveform.clone()));
        let before = simulation::reference_before(&model, &state, &windows, report.steps)
            .map_err(problems)?;
        let failing = report.steps as usize - 1;
        simulation::build(&core, rtl.as_deref(), &options)
            .and_then(|traced| {
                simulation::run(
                    &plan,
                    &traced,
                    &before,
                    &windows[failing..=failing],
                    &options,
                    &mut |_| {},
                )
            })
            .map_err(sim_problem)?;
        report.waveform = Some(args.waveform.display().to_string());
    } else if let Some(path) = &args.save {
        let checkpoint = Checkpoint {
            model: model.clone(),
            state: final_state,
            run: None,
        };
        let bytes = checkpoint.to_bytes().map_err(problems)?;
        write_atomically(path, &bytes).map_err(problems)?;
    }
    if let (Some(path), Some(timeline)) = (&args.timeline, &report.timeline) {
        let text = timeline_json(timeline).to_string();
        write_atomically(path, text.as_bytes()).map_err(problems)?;
    }
    // The files that were simulated, which with --rtl are the user's.
    let hash = match &rtl {
        Some(files) => rtl_sha256(files.iter().map(|(n, t)| (n.as_str(), t.as_str()))),
        None => core.rtl_sha256(),
    };
    finish(&plan, &report, out, hash)
}

/// A timeline as `nfgen report --timeline` reads it.
fn timeline_json(timeline: &Timeline) -> serde_json::Value {
    let mut object = json!({ "kind": "simulated", "total": timeline.total });
    for (e, engine) in ["mat", "vec", "adam"].into_iter().enumerate() {
        object[engine] = json!({
            "start": timeline.start[e], "ready": timeline.ready[e],
            "retire": timeline.retire[e], "busy": timeline.busy[e],
        });
    }
    object
}

fn finish(
    plan: &crate::trainer::plan::Plan,
    report: &SimReport,
    out: &Output,
    rtl_sha256: String,
) -> Result<Exit, Problems> {
    let mut object = json!(report);
    object["kind"] = json!("simulated");
    object["array"] = json!([plan.shape.b, plan.shape.b]);
    object["planned_cycles_per_step"] = json!(plan.cycles_per_sample());
    object["rtl_sha256"] = json!(rtl_sha256);
    out.object(&object);
    let losses = &report.loss;
    if losses.len() > 1 {
        out.say(loss_table(losses));
    }
    let shown = |x: Option<&f32>| x.map_or("-".into(), |x| format!("{x:.4}"));
    out.say(format!(
        "verdict {}: {} samples, {} parameters, {} words compared, {} differ\n\
         loss {} -> {} | {:.0} cycles per sample (simulated; planned {}) | {} stalled stream cycles",
        report.verdict,
        report.steps,
        report.parameters,
        report.words_compared,
        report.mismatches,
        shown(losses.first()),
        shown(losses.last()),
        report.cycles_per_step,
        plan.cycles_per_sample(),
        report.stall_cycles,
    ));
    match &report.first_difference {
        None => Ok(Exit::Done),
        Some(d) => {
            out.say(describe(d, report));
            Ok(Exit::Difference)
        }
    }
}

fn describe(d: &Difference, report: &SimReport) -> String {
    format!(
        "first difference: sample {}, {} {}[{}, {}]: expected {} ({:e}), got {} ({:e}), {} ULPs apart\n\
         cycle {} of the simulation; waveform of the sample: {}",
        d.step,
        d.tensor,
        d.word,
        d.row,
        d.column,
        d.expected_bits,
        d.expected,
        d.got_bits,
        d.got,
        d.ulps,
        report.simulated_cycles,
        report.waveform.as_deref().unwrap_or("-")
    )
}

fn plan(args: &Args, model: &ModelConfig) -> Result<crate::trainer::plan::Plan, Problems> {
    match &args.device {
        Some(name) => {
            let device = config::load_device(name)?;
            args.machine.fitting_plan(model, &device)
        }
        None => {
            let mut machine = args.machine.clone();
            machine.array.get_or_insert(DEFAULT_ARRAY);
            machine.plan(model, &Device::boundless())
        }
    }
}

fn windows(args: &Args, model: &ModelConfig) -> Result<Vec<Vec<u32>>, Problems> {
    let corpus = args.corpus.load(model.vocab)?;
    let text = corpus.train();
    let mut sampler =
        Sampler::new(Order::Random, model.seed, model.seq_len, text.len()).map_err(problems)?;
    Ok((0..u64::from(args.steps))
        .map(|n| {
            let start = sampler.start(args.first + n);
            text[start..=start + model.seq_len].to_vec()
        })
        .collect())
}

fn read_rtl(folder: &Path) -> Result<Vec<(String, String)>, Problems> {
    let refuse = |problem: String| {
        Problems::from(Diagnostic::new(
            "nf::sim::rtl",
            problem,
            "name the rtl folder of an emitted design",
        ))
    };
    let files = simulation::read_verilog(folder)
        .map_err(|e| refuse(format!("cannot read {}: {e}", folder.display())))?;
    if files.is_empty() {
        return Err(refuse(format!("{} holds no .v file", folder.display())));
    }
    Ok(files)
}

/// A simulation that could not run, as a diagnostic.
fn sim_problem(error: SimError) -> Problems {
    let (code, help) = match &error {
        SimError::Build(
            BuildError::Missing | BuildError::TooOld { .. } | BuildError::Broken { .. },
        ) => (
            "nf::sim::tool",
            "install Verilator (Debian package verilator), or run `make tools`",
        ),
        SimError::Build(BuildError::Io { .. }) => {
            ("nf::sim::cache", "name a writable folder with --cache DIR")
        }
        SimError::Build(BuildError::Failed { .. }) => (
            "nf::sim::build",
            "with --rtl, correct the Verilog; otherwise please report it with the command line",
        ),
        SimError::Reference(_) => (
            "nf::sim::reference",
            "the samples do not suit the model; `nfgen check` shows its sizes",
        ),
        SimError::WrongCore { .. } => (
            "nf::sim::wrong_core",
            "emit the RTL again with the same --model, --set, --device and --array",
        ),
        SimError::Driver(DriverError::Start { .. }) => (
            "nf::sim::cache",
            "name a folder from which programs may run with --cache DIR",
        ),
        SimError::Driver(_) | SimError::State(_) => (
            "nf::sim::hung",
            "the design stopped answering; with --rtl, look at the last change of the Verilog",
        ),
    };
    Diagnostic::new(code, error.to_string(), help).into()
}
