//! `nfgen synth`: what Yosys makes of the emitted Verilog, against the plan.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::common::cache_folder;
use super::emit::internal;
use super::plan::MachineArgs;
use super::{DeviceArgs, Exit, ModelArgs, Output};
use crate::compile::trainer::{TOP, compile};
use crate::config::schema::grouped;
use crate::config::{Device, fields};
use crate::diag::{Diagnostic, Problems};
use crate::emit::core::TextFile;
use crate::synth::compare::{Comparison, Figures, compare};
use crate::synth::hierarchy::{Hierarchy, Unit};
use crate::synth::run::{Synthesised, synthesise};
use crate::synth::yosys::{Target, Yosys, YosysError};
use crate::synth::{LEVEL_RULE, MAX_LEVELS, YOSYS_VERSION};
use crate::trainer::plan::Plan;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nfgen synth --device zcu102 --model small --array 8\n  \
    nfgen synth --device zcu102 --model shakespeare-334k-7b --json\n  \
    nfgen synth --model small --modules nf_vector_lane,nf_fp32_add\n\n\
    Needs Yosys 0.70: scripts/install-tools --synth. Every distinct module is synthesised once, and again only\n\
    when its text changes. Exit code 1 when blocks or DSP slices differ from the plan or look-up tables by more than 15 %."
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    machine: MachineArgs,
    /// Synthesise these modules only, without a comparison
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    modules: Vec<String>,
    /// Runs of Yosys at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Folder of synthesised modules [default: $NFGEN_CACHE, else nfgen in the user's cache]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let model = args.model.resolve()?;
    let device = args.device.resolve()?;
    let plan = args.machine.fitting_plan(&model, &device)?;
    if !args.modules.is_empty() {
        let run = Run::new(&plan, &device)?;
        let units = run.units(&args.modules)?;
        let units = run.synthesise(&units, args.cache.as_ref(), args.jobs.into(), out)?;
        let mut object = run.sources.clone();
        object["units"] = json!(units);
        out.object(&object);
        out.say(unit_table(&units));
        return Ok(Exit::Done);
    }
    let done = synthesise_plan(&plan, &device, args.cache.as_ref(), args.jobs.into(), out)?;
    out.object(&done.object);
    out.say(report(&done.comparison));
    Ok(if done.comparison.differences.is_empty() {
        Exit::Done
    } else {
        Exit::Difference
    })
}

/// A whole design after synthesis.
pub struct Whole {
    pub comparison: Comparison,
    /// What `--json` prints.
    pub object: Value,
}

/// Synthesises all of a plan that fits.
pub fn synthesise_plan(
    plan: &Plan,
    device: &Device,
    cache: Option<&PathBuf>,
    jobs: usize,
    out: &Output,
) -> Result<Whole, Problems> {
    let run = Run::new(plan, device)?;
    let units = run.synthesise(&run.hierarchy.units(), cache, jobs, out)?;
    let comparison = compare(plan, &run.hierarchy, units);
    let mut object = json!(comparison);
    for (key, value) in run.sources.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object["verdict"] = json!(if comparison.differences.is_empty() {
        "match"
    } else {
        "mismatch"
    });
    Ok(Whole { comparison, object })
}

/// A compiled design and where it goes.
struct Run {
    hierarchy: Hierarchy,
    memories: Vec<(String, String)>,
    family: &'static str,
    uram: bool,
    /// What every result says about itself.
    sources: Value,
}

impl Run {
    fn new(plan: &Plan, device: &Device) -> Result<Self, Problems> {
        let Some(family) = device.yosys_family() else {
            return Err(Diagnostic::new(
                "nf::synth::family",
                format!(
                    "Yosys has no synthesis for the family `{}` of {}",
                    device.family, device.name
                ),
                "zynq-ultrascale, ultrascale-plus and series7 are possible; `nfgen devices` lists devices",
            )
            .into());
        };
        let core = compile(plan, "synthesis", &fields::to_toml(&plan.model)).map_err(internal)?;
        Ok(Run {
            hierarchy: Hierarchy::new(&pairs(&core.rtl), TOP).map_err(internal)?,
            memories: pairs(&core.memories),
            family,
            uram: device.uram > 0,
            sources: json!({
                "rtl_sha256": core.rtl_sha256(),
                "device": device.name,
                "model": plan.model.name,
                "kind": "synthesised",
                "synthesiser": format!("Yosys {YOSYS_VERSION} synth_xilinx -family {family} -flatten, per unit"),
                "level_rule": LEVEL_RULE,
            }),
        })
    }

    /// Units of named modules.
    fn units(&self, names: &[String]) -> Result<Vec<(Unit, usize)>, Problems> {
        let instances = self.hierarchy.instances();
        names
            .iter()
            .map(|name| match instances.get(name) {
                Some(&n) => Ok((self.hierarchy.unit(name), n)),
                None => {
                    let all: Vec<&str> = instances.keys().map(String::as_str).collect();
                    Err(Diagnostic::new(
                        "nf::synth::unknown_module",
                        format!("the design has no module `{name}`"),
                        format!("its modules: {}", all.join(", ")),
                    )
                    .into())
                }
            })
            .collect()
    }

    fn synthesise(
        &self,
        units: &[(Unit, usize)],
        cache: Option<&PathBuf>,
        jobs: usize,
        out: &Output,
    ) -> Result<Vec<Synthesised>, Problems> {
        let yosys = Yosys::find().map_err(problem)?;
        out.note(format!(
            "Yosys {YOSYS_VERSION}, synth_xilinx -family {}: {} distinct modules of {} instances",
            self.family,
            units.len(),
            grouped(self.hierarchy.instances().values().sum::<usize>() as u64)
        ));
        let bar = out.progress(units.len() as u64, "modules");
        let done = |name: &str| {
            bar.inc(1);
            bar.set_message(name.to_string());
        };
        let target = Target {
            family: self.family,
            uram: self.uram,
        };
        let result = synthesise(
            &yosys,
            &self.hierarchy,
            units,
            &self.memories,
            &target,
            (jobs, &cache_folder(cache).join("synth")),
            &done,
        );
        bar.finish_and_clear();
        result.map_err(problem)
    }
}

fn pairs(files: &[TextFile]) -> Vec<(String, String)> {
    files
        .iter()
        .map(|f| (f.name.clone(), f.text.clone()))
        .collect()
}

/// A whole number, or one with its half.
fn number(value: f64) -> String {
    let whole = grouped(value.trunc() as u64);
    if value.fract() == 0.0 {
        whole
    } else {
        format!("{whole}.{}", (value.fract() * 10.0).round())
    }
}

fn unit_table(units: &[Synthesised]) -> String {
    let mut lines = vec![format!(
        "{:<28} {:>9} {:>7} {:>5} {:>5} {:>7} {:>5} {:>7} {:>5} {:>6}",
        "module", "instances", "LUT", "RAM", "SRL", "FF", "DSP", "BRAM36", "URAM", "levels"
    )];
    lines.extend(units.iter().map(|u| {
        let c = &u.counts;
        format!(
            "{:<28} {:>9} {:>7} {:>5} {:>5} {:>7} {:>5} {:>7} {:>5} {:>6}",
            u.module,
            u.instances,
            grouped(c.lut),
            c.lut_as_ram,
            c.lut_as_shift,
            grouped(c.ff),
            c.dsp,
            number(c.bram36),
            c.uram,
            u.levels
        )
    }));
    lines.join("\n")
}

fn report(c: &Comparison) -> String {
    let mut lines = vec![unit_table(&c.units), String::new()];
    lines.push(format!(
        "{:<20} {:>15} {:>17} {:>13} {:>11}",
        "planned/synthesised", "LUT", "FF", "DSP", "BRAM36"
    ));
    let both = |p: f64, s: f64| format!("{}/{}", number(p.round()), number(s));
    let exact = |p: f64, s: f64| format!("{}/{}", number(p), number(s));
    for m in &c.modules {
        let (p, s): (&Figures, &Figures) = (&m.planned, &m.synthesised);
        lines.push(format!(
            "{:<20} {:>15} {:>17} {:>13} {:>11}",
            m.module,
            both(p.lut, s.lut),
            both(p.ff, s.ff),
            exact(p.dsp, s.dsp),
            exact(p.bram36, s.bram36)
        ));
    }
    lines.push(String::new());
    for m in c.memories.iter().filter(|m| !m.agrees()) {
        lines.push(format!(
            "{} ({}): planned {} BRAM36 and {} URAM, synthesised {} and {}",
            m.module,
            m.memories.join(", "),
            number(m.planned_bram36),
            number(m.planned_uram),
            number(m.synthesised_bram36),
            number(m.synthesised_uram)
        ));
    }
    lines.push(format!(
        "{:<10} {:>11} {:>12} {:>11} {:>7} {:>9}",
        "resource", "planned", "synthesised", "available", "share", "off plan"
    ));
    for (name, pair) in [
        ("BRAM36", &c.bram36),
        ("URAM", &c.uram),
        ("DSP", &c.dsp),
        ("LUT", &c.lut),
        ("FF", &c.ff),
    ] {
        let percent = |part: f64, of: f64, sign: bool| match (of > 0.0, sign) {
            (false, _) => "-".to_string(),
            (_, true) => format!("{:+.1} %", 100.0 * part / of),
            _ => format!("{:.1} %", 100.0 * part / of),
        };
        lines.push(format!(
            "{name:<10} {:>11} {:>12} {:>11} {:>7} {:>9}",
            number(pair.planned.round()),
            number(pair.synthesised),
            number(pair.available),
            percent(pair.synthesised, pair.available, false),
            percent(pair.synthesised - pair.planned, pair.planned, true)
        ));
    }
    for unit in c.units.iter().filter(|u| !u.alike.is_empty()) {
        lines.push(format!(
            "{} stands for {} modules that differ from it only in the contents of their ROM.",
            unit.module,
            unit.alike.len()
        ));
    }
    lines.push(format!("{}.", c.lut_formula));
    lines.push(format!(
        "Longest path: {} logic levels (at most {MAX_LEVELS} wanted): {LEVEL_RULE}.",
        c.levels
    ));
    for unit in c.units.iter().filter(|u| u.levels > MAX_LEVELS) {
        lines.push(format!(
            "  {}: {} levels: {}",
            unit.module,
            unit.levels,
            unit.path.join(" > ")
        ));
    }
    lines.extend(c.differences.iter().map(|d| format!("differs: {d}")));
    lines.join("\n")
}

/// A synthesis that could not run, as a diagnostic.
fn problem(error: YosysError) -> Problems {
    let (code, help) = match &error {
        YosysError::Missing | YosysError::Version { .. } => (
            "nf::synth::tool",
            "run scripts/install-tools --synth, which puts it into target/tools of the working folder",
        ),
        YosysError::Io { .. } => (
            "nf::synth::cache",
            "name a writable folder with --cache DIR",
        ),
        YosysError::Failed { .. } | YosysError::Netlist { .. } => (
            "nf::synth::refused",
            "this is a fault of nfgen or of Yosys; please report it with the command line",
        ),
    };
    Diagnostic::new(code, error.to_string(), help).into()
}
