//! `nfgen bitnet run`: a program in text form.

use std::path::PathBuf;

use serde_json::json;

use super::super::{Exit, Output};
use super::arguments::ArrayArgs;
use crate::cgla::{Launch, Machine};
use crate::diag::{Diagnostic, Problems};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The text form is described in docs/cgla.md. Examples:\n  \
                  nfgen bitnet run add.cgla --rtl --json"
)]
pub struct Args {
    /// Program file
    file: PathBuf,
    /// Run on the RTL in Verilator as well and compare
    #[arg(long)]
    rtl: bool,
    #[command(flatten)]
    array: ArrayArgs,
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let text =
        std::fs::read_to_string(&args.file).map_err(|e| Diagnostic::cannot_read(&args.file, &e))?;
    let launch = Launch::parse(&text, &args.array.config()?)?;
    let mut model: Box<dyn Machine> = args.array.machine(false)?;
    let expected = model.run(&launch)?;
    let simulated = if args.rtl {
        Some(args.array.machine(true)?.run(&launch)?)
    } else {
        None
    };
    let same = simulated.as_ref().map(|s| s.outputs == expected.outputs);
    let signed: Vec<Vec<i32>> = expected
        .outputs
        .iter()
        .map(|g| g.iter().map(|&w| w as i32).collect())
        .collect();
    out.object(&json!({
        "outputs": signed,
        "model_cycles": expected.phases,
        "rtl_cycles": simulated.as_ref().map(|s| s.phases),
        "rtl_equals_model": same,
    }));
    for (group, words) in signed.iter().enumerate().filter(|(_, w)| !w.is_empty()) {
        out.say(format!("group {group}: {words:?}"));
    }
    if let Some(result) = &simulated {
        out.say(format!(
            "RTL: {} cycles, results {}",
            result.phases.total,
            if same == Some(true) {
                "equal"
            } else {
                "DIFFERENT"
            }
        ));
    }
    Ok(if same == Some(false) {
        Exit::Difference
    } else {
        Exit::Done
    })
}
