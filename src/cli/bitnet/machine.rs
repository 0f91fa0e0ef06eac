//! `--machine cgla` of `plan` and `emit`.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::super::common::EmitArgs;
use super::super::{Exit, Output};
use crate::bitnet::shapes::BITNET_2B_4T;
use crate::bitnet::ternary::StreamFormat;
use crate::cgla::bench::model_cost;
use crate::cgla::resources::{Resources, most_rows, resources, shortfall};
use crate::cgla::timing::MemoryModel;
use crate::cgla::{ArrayConfig, LaneSign};
use crate::compile::cgla::{compile, name};
use crate::config::Device;
use crate::config::schema::grouped;
use crate::diag::{Diagnostic, Problems};
use crate::emit::{Target, file_set};
use crate::trainer::plan::LUT_SHARE;

/// Clock when none is asked for, MHz: what the memory ports of a Zynq UltraScale+ run at in the
/// figures of docs/cgla.md. No timing result stands behind it.
const DEFAULT_CLOCK_MHZ: u64 = 250;

/// What is planned and emitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MachineKind {
    /// The trainer of a small transformer
    #[default]
    Trainer,
    /// The programmable linear array for BitNet
    Cgla,
}

/// `--machine` and the build parameters of the array.
#[derive(Clone, Debug, Args)]
pub struct MachineChoice {
    /// Machine
    #[arg(long = "machine", value_enum, default_value_t)]
    pub kind: MachineKind,
    /// Rows of the array (with --machine cgla) [default: 64]
    #[arg(long, value_name = "N", help_heading = "Options of --machine cgla")]
    pub rows: Option<u32>,
    /// 16-byte memory read ports, 1 to 4 [default: 4]
    #[arg(long, value_name = "N", help_heading = "Options of --machine cgla")]
    pub ports: Option<u32>,
    /// 64-bit words in each half of a row's local memory [default: 512]
    #[arg(long, value_name = "N", help_heading = "Options of --machine cgla")]
    pub lmm_words: Option<u32>,
    /// Signedness of the low activation fragment [default: unsigned-lo]
    #[arg(long, value_enum, help_heading = "Options of --machine cgla")]
    pub lane_sign: Option<LaneSign>,
}

fn usage(message: String, help: &str) -> Problems {
    Diagnostic::new("nf::cli::usage", message, help).into()
}

impl MachineChoice {
    /// Refuses options of the machine that was not chosen. `trainer` names the trainer's options
    /// that were given.
    pub fn check(&self, trainer: &[(&str, bool)]) -> Result<(), Problems> {
        let array = [
            ("--rows", self.rows.is_some()),
            ("--ports", self.ports.is_some()),
            ("--lmm-words", self.lmm_words.is_some()),
            ("--lane-sign", self.lane_sign.is_some()),
        ];
        let (wrong, other) = match self.kind {
            MachineKind::Trainer => (&array[..], "cgla"),
            MachineKind::Cgla => (trainer, "trainer"),
        };
        match wrong.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(usage(
                format!("{option} belongs to --machine {other}"),
                "leave it out, or choose that machine",
            )),
            None => Ok(()),
        }
    }

    fn config(&self) -> Result<ArrayConfig, Problems> {
        let default = ArrayConfig::default();
        let config = ArrayConfig {
            rows: self.rows.unwrap_or(default.rows),
            ports: self.ports.unwrap_or(default.ports),
            lmm_words: self.lmm_words.unwrap_or(default.lmm_words),
            lane_sign: self.lane_sign.unwrap_or(default.lane_sign),
        };
        config.check()?;
        Ok(config)
    }
}

/// A build on a device.
struct Plan {
    config: ArrayConfig,
    used: Resources,
    available: Resources,
    shortfall: Vec<(&'static str, u64, u64)>,
    json: Value,
}

fn plan_of(choice: &MachineChoice, device: &Device, clock_mhz: u64) -> Result<Plan, Problems> {
    let config = choice.config()?;
    let used = resources(&config);
    let available = Resources {
        lut: device.lut,
        ff: device.ff,
        bram36: device.bram36,
        uram: device.uram,
        dsp: device.dsp,
    };
    let shortfall = shortfall(&used, &available, LUT_SHARE);
    let memory = MemoryModel::default();
    let models: Vec<Value> = [StreamFormat::TwoBit, StreamFormat::FiveTrits]
        .into_iter()
        .map(|format| {
            let shape = &BITNET_2B_4T;
            match model_cost(&config, &memory, shape, format) {
                Ok(cost) => json!({
                    "model": "2b-4t",
                    "format": format.name(),
                    "cycles_per_token": cost.cycles_per_token,
                    "tokens_per_second": clock_mhz as f64 * 1e6 / cost.cycles_per_token as f64,
                    "roofline_share": cost.roofline_share,
                }),
                Err(why) => json!({
                    "model": "2b-4t",
                    "format": format.name(),
                    "refused": why.to_string(),
                }),
            }
        })
        .collect();
    let short: Vec<Value> = shortfall
        .iter()
        .map(|(what, used, limit)| json!({ "resource": what, "used": used, "limit": limit }))
        .collect();
    let json = json!({
        "machine": "cgla",
        "name": name(&config),
        "device": device.name,
        "part": device.part,
        "clock_mhz": clock_mhz,
        "clock_is": "given, not a timing result",
        "array": config,
        "fits": shortfall.is_empty(),
        "used": used,
        "available": available,
        "lut_share": LUT_SHARE,
        "shortfall": short,
        "most_rows": most_rows(&config, &available, LUT_SHARE),
        "products_per_cycle": 16 * config.rows,
        "memory_model": memory,
        "ternary_layers": models,
        "kind": "estimated from synthesised modules; cycles from the cycle model",
    });
    Ok(Plan {
        config,
        used,
        available,
        shortfall,
        json,
    })
}

fn does_not_fit(plan: &Plan, device: &Device) -> Diagnostic {
    let short: Vec<String> = plan
        .shortfall
        .iter()
        .map(|(what, used, limit)| format!("{what} {} of {}", grouped(*used), grouped(*limit)))
        .collect();
    Diagnostic::new(
        "nf::plan::does_not_fit",
        format!(
            "{} rows do not fit {}: {}",
            plan.config.rows,
            device.name,
            short.join(", ")
        ),
        match most_rows(&plan.config, &plan.available, LUT_SHARE) {
            Some(rows) => format!("the most that fits on these ports: --rows {rows}"),
            None => {
                "no array of this local memory fits; choose a larger device or --lmm-words".into()
            }
        },
    )
}

/// `nfgen plan --machine cgla`.
pub fn plan(
    choice: &MachineChoice,
    device: &Device,
    clock: Option<u64>,
    out: &Output,
) -> Result<Exit, Problems> {
    let clock_mhz = clock.unwrap_or(DEFAULT_CLOCK_MHZ);
    let plan = plan_of(choice, device, clock_mhz)?;
    out.object(&plan.json);
    let c = &plan.config;
    out.say(format!(
        "array of {} rows on {} ports, 2 x {} words of 64 bits per row, on {}: {}",
        c.rows,
        c.ports,
        c.lmm_words,
        device.name,
        if plan.shortfall.is_empty() {
            "fits"
        } else {
            "does not fit"
        }
    ));
    out.say(format!(
        "\n{:<10} {:>11} {:>11} {:>7}",
        "resource", "used", "available", "share"
    ));
    for (what, used, available) in [
        ("LUT", plan.used.lut, plan.available.lut),
        ("FF", plan.used.ff, plan.available.ff),
        ("BRAM36", plan.used.bram36, plan.available.bram36),
        ("URAM", plan.used.uram, plan.available.uram),
        ("DSP", plan.used.dsp, plan.available.dsp),
    ] {
        let share = match available {
            0 => "-".into(),
            _ => format!("{:.1} %", 100.0 * used as f64 / available as f64),
        };
        out.say(format!(
            "{what:<10} {:>11} {:>11} {share:>7}",
            grouped(used),
            grouped(available)
        ));
    }
    for model in plan.json["ternary_layers"].as_array().into_iter().flatten() {
        let format = model["format"].as_str().unwrap_or_default();
        match (
            model["tokens_per_second"].as_f64(),
            model["refused"].as_str(),
        ) {
            (Some(rate), _) => out.say(format!(
                "BitNet 2B 4T, ternary layers, {format}: {rate:.2} tokens/s at {clock_mhz} MHz \
                 (cycle model; the clock is given, not timed), {:.1} % of what the memory allows",
                100.0 * model["roofline_share"].as_f64().unwrap_or_default()
            )),
            (None, why) => out.say(format!(
                "BitNet 2B 4T, {format}: {}",
                why.unwrap_or_default()
            )),
        }
    }
    if plan.shortfall.is_empty() {
        return Ok(Exit::Done);
    }
    out.fail(&does_not_fit(&plan, device).into());
    Ok(Exit::Refused)
}

/// `nfgen emit --machine cgla`.
pub fn emit(
    choice: &MachineChoice,
    device: &Device,
    delivery: &EmitArgs,
    out: &Output,
) -> Result<Exit, Problems> {
    let clock_mhz = delivery.clock.unwrap_or(DEFAULT_CLOCK_MHZ);
    let plan = plan_of(choice, device, clock_mhz)?;
    if !plan.shortfall.is_empty() {
        return Err(does_not_fit(&plan, device).into());
    }
    let core = compile(&plan.config, plan.json)?;
    let files = file_set(&core, &Target { device, clock_mhz })?;
    delivery.deliver(&core.name, &files, out)
}
