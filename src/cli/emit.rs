//! `nfgen emit`: a complete design as a folder of files.

use std::path::PathBuf;

use super::bitnet::machine::{self, MachineChoice, MachineKind};
use super::common::EmitArgs;
use super::plan::MachineArgs;
use super::{DeviceArgs, Exit, ModelArgs, Output};
use crate::compile::trainer::compile;
use crate::config::fields;
use crate::diag::{Diagnostic, Problems};
use crate::emit::{self, Target};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nfgen emit --device zcu102 --model small\n  \
                        nfgen emit --device zcu102 --model shakespeare-334k-7b -o out\n  \
                        nfgen emit --device zcu102 --model tiny -o generated/tiny --check\n  \
                        nfgen emit --machine cgla --device zcu102 --rows 32"
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
    /// Output folder [default: generated/NAME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Compare with what is on disk and write nothing; exit code 1 on a difference
    #[arg(long)]
    check: bool,
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    args.choice.check(&args.machine.given(&args.model))?;
    let device = args.device.resolve()?;
    let delivery = EmitArgs {
        out: args.out,
        check: args.check,
        clock: args.machine.clock,
    };
    if args.choice.kind == MachineKind::Cgla {
        return machine::emit(&args.choice, &device, &delivery, out);
    }
    let model = args.model.resolve()?;
    let clock_mhz = args.machine.clock_mhz(&device);
    let plan = args.machine.fitting_plan(&model, &device)?;
    let core = compile(
        &plan,
        &format!("On-chip trainer of the model {}", model.name),
        &fields::to_toml(&model),
    )
    .map_err(internal)?;
    let target = Target {
        device: &device,
        clock_mhz,
    };
    let files = emit::file_set(&core, &target)?;
    delivery.deliver(&model.name, &files, out)
}

/// A planned machine that cannot be built is a fault of the compiler; says so.
pub fn internal(error: impl std::fmt::Display) -> Problems {
    Diagnostic::new(
        "nf::emit::internal",
        format!("the planned machine could not be built: {error}"),
        "this is a fault of nfgen, not of the model; please report it with the command line",
    )
    .into()
}
