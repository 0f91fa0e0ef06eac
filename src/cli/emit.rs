//! `nfgen emit`: a complete design as a folder of files.

use serde_json::json;

use super::common::{EmitArgs, plan_for};
use super::{DeviceArgs, Exit, ModelArgs, Output};
use crate::compile::trainer::compile;
use crate::config::fields;
use crate::diag::{Diagnostic, Problems};
use crate::emit::{self, Target};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nfgen emit --device zcu102 --model small\n  \
                        nfgen emit --device zcu102 --model shakespeare-334k-7b -o out\n  \
                        nfgen emit --model tiny --device zcu102 -o generated/tiny --check"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    emit: EmitArgs,
    #[command(flatten)]
    plan: super::common::PlanArgs,
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let model = args.model.resolve()?;
    let device = args.device.resolve()?;
    let clock_mhz = args.emit.clock_mhz(&device);
    let plan = plan_for(&model, &device, clock_mhz, &args.plan)?;
    if !plan.fits() {
        out.object(&json!({ "fits": false, "shortfall": plan.shortfall }));
        return Err(super::common::does_not_fit(&plan, &args.plan).into());
    }
    let core = compile(
        &plan,
        &format!("on-chip trainer of the model {}", model.name),
        &fields::to_toml(&model),
    )
    .map_err(internal)?;
    let target = Target {
        device: &device,
        clock_mhz,
    };
    let files = emit::file_set(&core, &target)?;
    args.emit.deliver(&model.name, &files, out)
}

/// A planned machine that cannot be built is a fault of the compiler; say so and how to report it.
pub fn internal(error: impl std::fmt::Display) -> Problems {
    Diagnostic::new(
        "nf::emit::internal",
        format!("the planned machine could not be built: {error}"),
        "this is a fault of nfgen, not of the model; please report it with the command line",
    )
    .into()
}
