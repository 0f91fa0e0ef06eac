//! `nfgen bitnet bench`: a whole model on the array, from the cycle model.

use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::super::{DeviceArgs, Exit, Output};
use super::arguments::ArrayArgs;
use crate::bitnet::backend::Backend;
use crate::bitnet::make::random_matrix;
use crate::bitnet::quant::Activations;
use crate::bitnet::shapes::Shape;
use crate::cgla::ArrayConfig;
use crate::cgla::backend::ArrayBackend;
use crate::cgla::bench::{ModelCost, model_cost};
use crate::diag::{Diagnostic, Problems};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nfgen bitnet bench --model 2b-4t --device zcu102 --json")]
pub struct Args {
    /// Published model
    #[arg(long, default_value = "2b-4t", value_parser = ["2b-4t"])]
    model: String,
    #[command(flatten)]
    device: DeviceArgs,
    /// Clock of the array in MHz
    #[arg(long, default_value_t = 250.0)]
    clock_mhz: f64,
    /// Simulate one of every distinct shape as well and state the largest deviation
    #[arg(long)]
    confirm: bool,
    #[command(flatten)]
    array: ArrayArgs,
}

/// Simulates every distinct shape; returns per shape the simulated and the modelled cycles.
fn confirm(
    args: &Args,
    cost: &ModelCost,
    out: &Output,
) -> Result<Vec<serde_json::Value>, Problems> {
    let mut backend = ArrayBackend::new(args.array.simulator()?, args.array.format);
    let mut rng = rand_pcg::Pcg64::seed_from_u64(args.array.seed.into());
    let mut seen = vec![];
    let mut rows = vec![];
    for p in &cost.projections {
        if seen.contains(&(p.outputs, p.k)) {
            continue;
        }
        seen.push((p.outputs, p.k));
        let weights = random_matrix(p.outputs, p.k, 0.33, &mut rng)?;
        let acts = Activations::from_int8(1, p.k, (0..p.k).map(|_| rng.random()).collect())?;
        let before = backend.stats().phases.total;
        let got = backend.project(&weights, &acts)?;
        let simulated = backend.stats().phases.total - before;
        let right = got == crate::bitnet::cpu::project(&weights, &acts);
        let deviation = p.cycles.total as f64 / simulated as f64 - 1.0;
        out.note(format!(
            "{} x {}: simulated {simulated} cycles, model {} ({:+.2} %), results {}",
            p.outputs,
            p.k,
            p.cycles.total,
            100.0 * deviation,
            if right { "exact" } else { "WRONG" }
        ));
        rows.push(json!({
            "outputs": p.outputs, "k": p.k, "simulated_cycles": simulated,
            "model_cycles": p.cycles.total, "deviation": deviation, "exact": right,
        }));
    }
    Ok(rows)
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let device = args.device.resolve()?;
    let config: ArrayConfig = args.array.config()?;
    let memory = args.array.memory()?;
    if !(args.clock_mhz > 0.0 && args.clock_mhz <= 5000.0) {
        return Err(Diagnostic::new(
            "nf::bitnet::refused",
            format!("clock of {} MHz", args.clock_mhz),
            "--clock-mhz takes more than 0 and up to 5000",
        )
        .into());
    }
    let shape = Shape::named(&args.model).unwrap_or(crate::bitnet::shapes::BITNET_2B_4T);
    let cost = model_cost(&config, &memory, &shape, args.array.format)?;
    let hertz = args.clock_mhz * 1e6;
    let rate = hertz / cost.cycles_per_token as f64;
    let limit = hertz / cost.memory_cycles_per_token;
    let confirmed = if args.confirm {
        Some(confirm(&args, &cost, out)?)
    } else {
        None
    };
    let bytes_per_second = f64::from(config.ports) * 16.0 * memory.efficiency * hertz;
    out.object(&json!({
        "model": args.model,
        "device": device.name,
        "part": device.part,
        "tokens_per_second": rate,
        "scope": "ternary layers, one token at a time, one launch per projection, configuration \
                  and drain included; cycle model",
        "projections_on_array": cost.projections_on_array,
        "roofline_tokens_per_second": limit,
        "roofline_share": cost.roofline_share,
        "clock_mhz": args.clock_mhz,
        "clock_is": "given, not a timing result",
        "rows": config.rows,
        "format": args.array.format.name(),
        "memory_model": {
            "ports": config.ports, "bytes_per_beat": 16, "efficiency": memory.efficiency,
            "latency_cycles": memory.latency, "bytes_per_second": bytes_per_second,
        },
        "cycles_per_token": cost.cycles_per_token,
        "weight_bytes_per_token": cost.weight_bytes_per_token,
        "projections": cost.projections,
        "confirmed_by_simulation": confirmed,
    }));
    out.say(format!(
        "{rate:.2} tokens/s at {} MHz, {:.1} % of the {limit:.2} that {:.1} GB/s allow at {}; {} \
         projections on the array",
        args.clock_mhz,
        100.0 * cost.roofline_share,
        bytes_per_second / 1e9,
        args.array.format.name(),
        cost.projections_on_array
    ));
    for p in &cost.projections {
        out.say(format!(
            "  {:<12} {:>5} x {:<5} {:>7} cycles  {:>6.1} MACs/cycle  {:>5.1} % of the memory limit",
            p.name,
            p.outputs,
            p.k,
            p.cycles.total,
            p.macs_per_cycle,
            100.0 * p.share
        ));
    }
    Ok(Exit::Done)
}
