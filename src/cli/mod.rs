//! Command line: parses arguments, calls the library, maps results to exit codes.
//!
//! Each verb is a file with `struct Args` (clap) and `fn run(args, &Output) -> Result<Exit, Problems>`.
//! Exit codes: 0 done, 1 ran and found a difference, 2 could not run. To add a verb, add its file and one line
//! to [`Verb`] and to [`run`].

mod bench;
mod bitnet;
mod chart;
mod check;
mod common;
mod compare;
mod convert;
mod devices;
mod emit;
mod eval;
mod explain;
mod generate;
mod largest;
mod output;
mod plan;
mod plot;
mod reference;
mod report;
mod sim;
mod sweep;
mod synth;
mod train;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

pub use common::{DeviceArgs, EmitArgs, ModelArgs};
pub use output::{Colour, Output};

use crate::diag::{Diagnostic, Problems};

/// What a verb that ran has to say to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Exit code 0.
    Done,
    /// Exit code 1: a mismatch, a drift, a missed timing.
    Difference,
    /// Exit code 2, the verb having said why: a plan that does not fit.
    Refused,
}

/// Compiles a transformer, with its training, into hardware.
#[derive(Debug, Parser)]
#[command(
    name = "nfgen",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done, 1 ran and found a difference, 2 could not run.\n\
                  `nfgen VERB --help` shows examples; `nfgen explain CODE` documents an error."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    global: Global,
}

#[derive(Debug, Args)]
struct Global {
    /// Write one JSON object on stdout and everything else on stderr
    #[arg(long, global = true)]
    json: bool,
    /// Say only results and errors
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Colour in messages
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    color: Colour,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the device catalogue, or show one device
    Devices(devices::Args),
    /// Plan a model on a device: resources, memories, cycles; what is short if it does not fit
    Plan(plan::Args),
    /// Write the complete design: Verilog, memories, test benches, Vivado scripts, drivers
    Emit(emit::Args),
    /// Train in simulated RTL and compare every word with the reference
    Sim(sim::Args),
    /// Synthesise the emitted Verilog with Yosys and compare with the plan
    Synth(synth::Args),
    /// Write the HTML report of a design: resources, memory map, Gantt picture, cycles
    Report(report::Args),
    /// Plan, and if wanted synthesise, every combination of a list of settings
    Sweep(sweep::Args),
    /// Train a model with the reference trainer
    Train(train::TrainArgs),
    /// Validation loss of a checkpoint
    Eval(eval::EvalArgs),
    /// Continue a text with a checkpoint's model
    Generate(generate::GenerateArgs),
    /// Continue line after line that you type
    Chat(generate::ChatArgs),
    /// Convert between checkpoints of this program and .neuro files
    Convert(convert::ConvertArgs),
    /// Draw the validation curves of runs
    Plot(plot::PlotArgs),
    /// Time a training step of the reference trainer
    Bench(bench::BenchArgs),
    /// Figures of the paper, its author's board, peers and this project, each with its kind
    Compare(compare::CompareArgs),
    /// Check a model and show its resolved settings, its size and its vocabulary budget
    Check(check::Args),
    /// Read, convert, decode BitNet b1.58 files; project and bench on the programmable array
    Bitnet(bitnet::Args),
    /// Document an error code, or list all of them
    Explain(explain::Args),
}

fn run(verb: Verb, out: &Output) -> Result<Exit, Problems> {
    match verb {
        Verb::Devices(args) => devices::run(args, out),
        Verb::Check(args) => check::run(args, out),
        Verb::Compare(args) => compare::run(args, out),
        Verb::Plan(args) => plan::run(args, out),
        Verb::Emit(args) => emit::run(args, out),
        Verb::Sim(args) => sim::run(args, out),
        Verb::Report(args) => report::run(args, out),
        Verb::Sweep(args) => sweep::run(args, out),
        Verb::Synth(args) => synth::run(args, out),
        Verb::Train(args) => train::run(args, out),
        Verb::Eval(args) => eval::run(args, out),
        Verb::Generate(args) => generate::run(args, out),
        Verb::Chat(args) => generate::chat(args, out),
        Verb::Convert(args) => convert::run(args, out),
        Verb::Plot(args) => plot::run(args, out),
        Verb::Bench(args) => bench::run(args, out),
        Verb::Bitnet(args) => bitnet::run(args, out),
        Verb::Explain(args) => explain::run(args, out),
    }
}

/// Entry point of the `nfgen` binary.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let out = Output::new(cli.global.json, cli.global.quiet, cli.global.color);
    let ended = run(cli.verb, &out);
    let ended = match (ended, out.lost()) {
        (Ok(_), Some(lost)) => Err(lost.into()),
        (ended, _) => ended,
    };
    match ended {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Difference) => ExitCode::from(1),
        Ok(Exit::Refused) => ExitCode::from(2),
        Err(problems) => {
            out.fail(&problems);
            ExitCode::from(2)
        }
    }
}

/// Help and version go to stdout with exit code 0; a wrong command line is a diagnostic like any other.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        drop(error.print());
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        drop(error.print());
        return ExitCode::from(2);
    }
    let json = std::env::args_os().any(|argument| argument == "--json");
    let text = error.render().to_string();
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let message = lines
        .next()
        .unwrap_or("the command line is wrong")
        .trim_start_matches("error: ");
    let mut details: Vec<&str> = Vec::new();
    let mut help = "`nfgen VERB --help` shows the arguments with examples".to_string();
    for line in lines.map(str::trim) {
        if let Some(tip) = line.strip_prefix("tip: ") {
            help = format!("{tip}; {help}");
        } else if line.starts_with("[possible values") {
            help = format!("{line}; {help}");
        } else if !line.starts_with("Usage:") && !line.starts_with("For more information") {
            details.push(line);
        }
    }
    let message = format!("{message} {}", details.join(" "));
    let problem = Diagnostic::new("nf::cli::usage", message.trim(), help);
    Output::new(json, false, Colour::Auto).fail(&problem.into());
    ExitCode::from(2)
}
