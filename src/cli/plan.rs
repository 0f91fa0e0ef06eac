//! `nfgen plan`: what a model needs on a device, before synthesis.

use serde_json::json;

use super::bitnet::machine::{self, MachineChoice, MachineKind};
use super::{DeviceArgs, Exit, ModelArgs, Output, largest};
use crate::config::schema::grouped;
use crate::config::{Device, ModelConfig, VocabularyBudget, require_hardware};
use crate::diag::{Diagnostic, Problems};
use crate::trainer::plan::{
    MAX_ARRAY, MemoryKind, Nearest, Options, Plan, PlanError, Target, nearest,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nfgen plan --device zcu102 --model shakespeare-334k-7b\n  \
                        nfgen plan --device zcu104 --model shakespeare-334k --json\n  \
                        nfgen plan --device kv260 --model small --array 8 --clock 200\n  \
                        nfgen plan --max --device zcu104 --model shakespeare-334k-7b\n  \
                        nfgen plan --machine cgla --device zcu102 --rows 32\n\n\
                        Exit code 2 when the model does not fit; the plan is shown all the same."
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    choice: MachineChoice,
    /// Find the largest model of the same shape family that fits: embed_dim a multiple of heads, ff_dim in proportion
    /// to it, all else as given; prints the --set arguments that choose it
    #[arg(long)]
    max: bool,
}

/// What a user may fix of the machine; the planner chooses the rest.
#[derive(Clone, Debug, clap::Args)]
pub struct MachineArgs {
    /// Clock of the core in MHz [default: the device's]
    #[arg(long, value_name = "MHZ", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub clock: Option<u64>,
    /// Rows and columns of the multiplier array
    #[arg(long, value_name = "N")]
    pub array: Option<usize>,
    /// Adam lanes; a divisor of the array's rows
    #[arg(long, value_name = "N")]
    pub adam_lanes: Option<usize>,
    /// Groups of activation memory
    #[arg(long, value_name = "N")]
    pub groups: Option<usize>,
}

impl MachineArgs {
    /// The trainer's options, and which of them were given.
    pub fn given(&self, model: &ModelArgs) -> [(&'static str, bool); 5] {
        [
            ("--array", self.array.is_some()),
            ("--adam-lanes", self.adam_lanes.is_some()),
            ("--groups", self.groups.is_some()),
            ("--set", !model.set.is_empty()),
            ("--model", model.model != "small"),
        ]
    }

    /// The clock that was asked for, or the device's own.
    pub fn clock_mhz(&self, device: &Device) -> u64 {
        self.clock.unwrap_or(device.clock_mhz)
    }

    /// Plans `model` for `device`. A plan that does not fit is returned like any other.
    pub fn plan(&self, model: &ModelConfig, device: &Device) -> Result<Plan, Problems> {
        require_hardware(model)?;
        let plan =
            Plan::new(model, &self.target(device), &self.options()).map_err(|e| problem(&e))?;
        // Without --array the planner looks for an array that can have the lanes, and may find none.
        match self.adam_lanes {
            Some(asked) if asked != plan.shape.adam_lanes => Err(Diagnostic::new(
                "nf::plan::impossible_machine",
                format!("no array of 2 to {MAX_ARRAY} rows has {asked} Adam lanes for this model"),
                "give a divisor of the array's rows, at most half of them; with --array the message names all",
            )
            .into()),
            _ => Ok(plan),
        }
    }

    /// A plan that fits, or what is short and the nearest setting that fits.
    pub fn fitting_plan(&self, model: &ModelConfig, device: &Device) -> Result<Plan, Problems> {
        let plan = self.plan(model, device)?;
        if plan.fits() {
            return Ok(plan);
        }
        let near = self.nearest(model, device)?;
        Err(does_not_fit(&plan, near.as_ref()).into())
    }

    fn nearest(&self, model: &ModelConfig, device: &Device) -> Result<Option<Nearest>, Problems> {
        nearest(model, &self.target(device), &self.options()).map_err(|e| problem(&e).into())
    }

    /// The device at the clock of the plan.
    pub fn target(&self, device: &Device) -> Target {
        Target::of(device, self.clock_mhz(device))
    }

    pub fn options(&self) -> Options {
        Options {
            array: self.array,
            adam_lanes: self.adam_lanes,
            groups: self.groups,
        }
    }
}

/// What the planner refuses outright, on any device.
pub fn problem(error: &PlanError) -> Diagnostic {
    match error {
        PlanError::Array(_) | PlanError::Lanes { .. } | PlanError::Groups(_) => Diagnostic::new(
            "nf::plan::impossible_machine",
            error.to_string(),
            "leave the option out and the planner chooses, or use one of the values named",
        ),
        _ => Diagnostic::new(
            "nf::plan::no_machine",
            error.to_string(),
            "change the model with --set; `train` and `eval` take the model as it is",
        ),
    }
}

/// The diagnostic of a plan that does not fit: what is short, by how much, and what would fit.
pub fn does_not_fit(plan: &Plan, near: Option<&Nearest>) -> Diagnostic {
    let short: Vec<String> = plan
        .shortfall
        .iter()
        .map(|s| {
            format!(
                "{} {} of {} (short by {})",
                s.resource,
                number(s.used),
                number(s.available),
                number(s.used - s.available)
            )
        })
        .collect();
    Diagnostic::new(
        "nf::plan::does_not_fit",
        format!(
            "model `{}` does not fit {}: {}",
            plan.model.name,
            plan.target.name,
            short.join(", ")
        ),
        match near {
            Some(near) => {
                let settings = near.settings.iter();
                let all: Vec<String> = settings.map(|(k, v)| format!("--set {k}={v}")).collect();
                format!("the nearest setting that fits: {}", all.join(" "))
            }
            None => "no smaller setting of this model fits; choose a larger device (nfgen devices)"
                .into(),
        },
    )
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let mut given = args.machine.given(&args.model).to_vec();
    given.push(("--max", args.max));
    args.choice.check(&given)?;
    let device = args.device.resolve()?;
    if args.choice.kind == MachineKind::Cgla {
        return machine::plan(&args.choice, &device, args.machine.clock, out);
    }
    let model = args.model.resolve()?;
    if args.max {
        return largest::run(&args.model, &args.machine, &model, &device, out);
    }
    let plan = args.machine.plan(&model, &device)?;
    let near = match plan.fits() {
        true => None,
        false => args.machine.nearest(&model, &device)?,
    };
    let budget = VocabularyBudget::of(&model);
    let mut object = plan.to_json();
    object["vocabulary_budget"] = json!(budget);
    if let Some(near) = &near {
        object["nearest"] = json!({
            "set": near.settings,
            "cycles_per_sample": near.plan.cycles_per_sample(),
        });
    }
    out.object(&object);
    out.say(table(&plan));
    if let Some(warning) = budget.warning() {
        out.warn(&warning);
    }
    if plan.fits() {
        return Ok(Exit::Done);
    }
    out.fail(&does_not_fit(&plan, near.as_ref()).into());
    Ok(Exit::Refused)
}

/// Up to one decimal, with thousands separated.
fn number(value: f64) -> String {
    let whole = grouped(value.trunc().max(0.0) as u64);
    match (value.fract() * 10.0).round() as u64 {
        0 | 10 => grouped(value.round().max(0.0) as u64),
        tenth => format!("{whole}.{tenth}"),
    }
}

/// The plan as a table: resources, then memories.
pub fn table(plan: &Plan) -> String {
    let (used, available) = (&plan.used, &plan.target.available);
    let b = plan.shape.b;
    let mut lines = vec![
        format!(
            "{} ({} parameters) on {}: {}",
            plan.model.name,
            grouped(plan.model.parameters() as u64),
            plan.target.name,
            if plan.fits() { "fits" } else { "does not fit" },
        ),
        format!(
            "array {b} x {b}, {} Adam lanes, {} activation groups",
            plan.shape.adam_lanes,
            plan.shape.group_depth.len()
        ),
        format!(
            "{} cycles per sample, {:.3} ms at {} MHz (planned)",
            grouped(plan.cycles_per_sample()),
            plan.ms_per_sample(),
            plan.target.clock_mhz
        ),
        String::new(),
        format!(
            "{:<10} {:>11} {:>11} {:>7}",
            "resource", "used", "available", "share"
        ),
    ];
    for (name, used, available) in [
        ("LUT", used.lut, available.lut),
        ("FF", used.ff, available.ff),
        ("DSP", used.dsp, available.dsp),
        ("BRAM36", used.bram36, available.bram36),
        ("URAM", used.uram, available.uram),
    ] {
        let share = if available > 0.0 {
            format!("{:.1} %", 100.0 * used / available)
        } else {
            "-".into()
        };
        lines.push(format!(
            "{name:<10} {:>11} {:>11} {share:>7}",
            number(used.round()),
            number(available)
        ));
    }
    lines.push(String::new());
    lines.push(format!(
        "{:<24} {:>9} {:>6} {:>7} {:>6} {:<7} {:<12} {:>7}",
        "memory", "words", "width", "depth", "banks", "ports", "kind", "blocks"
    ));
    for memory in &plan.memories {
        let (kind, blocks) = match memory.kind {
            MemoryKind::Block => ("block", number(memory.blocks)),
            MemoryKind::Ultra => ("ultra", number(memory.blocks)),
            MemoryKind::Distributed => ("distributed", format!("{} LUT", memory.luts)),
        };
        let ports = json!(memory.ports);
        lines.push(
            format!(
                "{:<24} {:>9} {:>6} {:>7} {:>6} {:<7} {:<12} {:>7}",
                memory.name,
                memory.words,
                memory.width,
                memory.depth,
                memory.banks,
                ports.as_str().unwrap_or_default(),
                kind,
                blocks
            )
            .trim_end()
            .to_string(),
        );
    }
    lines.join("\n")
}
