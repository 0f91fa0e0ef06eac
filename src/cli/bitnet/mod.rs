//! `nfgen bitnet`: BitNet b1.58 files and the programmable array.

mod arguments;
mod bench;
mod decode;
mod files;
pub mod machine;
mod program;
mod project;
mod report;
mod svg;

use clap::Subcommand;

use super::{Exit, Output};
use crate::bitnet;
use crate::cgla;
use crate::diag::{Diagnostic, Problems};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nfgen bitnet make-model tiny.gguf\n  \
                  nfgen bitnet decode tiny.gguf --prompt 'the cat' --tokens 32 --backend rtl --compare\n  \
                  nfgen bitnet project --shape 2560x6912 --backend rtl --json\n  \
                  nfgen bitnet bench --model 2b-4t --device zcu102 --json")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List a GGUF file, check every ternary tensor, warn about what is odd
    Inspect(files::InspectArgs),
    /// Rewrite the ternary tensors of a file in another container or byte order
    Convert(files::ConvertArgs),
    /// Make a small model, random or from given ternary tensors
    MakeModel(files::MakeArgs),
    /// Run one projection on a backend and compare with the exact integer dot product
    Project(project::Args),
    /// Decode tokens from a prompt, every BitLinear on the chosen backend
    Decode(decode::Args),
    /// Cycles and tokens per second of a whole model on the array
    Bench(bench::Args),
    /// Run a program in text form on the array
    Run(program::Args),
    /// Write the experiments as an HTML page with plots
    Report(report::Args),
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    match args.verb {
        Verb::Inspect(args) => files::inspect(args, out),
        Verb::Convert(args) => files::convert(args, out),
        Verb::MakeModel(args) => files::make(args, out),
        Verb::Project(args) => project::run(args, out),
        Verb::Decode(args) => decode::run(args, out),
        Verb::Bench(args) => bench::run(args, out),
        Verb::Run(args) => program::run(args, out),
        Verb::Report(args) => report::run(args, out),
    }
}

impl From<bitnet::Error> for Problems {
    fn from(error: bitnet::Error) -> Self {
        use bitnet::Error as E;
        match &error {
            E::Io { path, source } => Diagnostic::cannot_read(path, source),
            E::Format(_) | E::Data(_) => Diagnostic::new(
                "nf::bitnet::bad_file",
                error.to_string(),
                "download or convert the file again; `nfgen bitnet inspect FILE` checks it, \
                 `--layout` chooses the byte order of I2_S",
            ),
            E::Unsupported(_) | E::Shape(_) | E::Numeric(_) => Diagnostic::new(
                "nf::bitnet::refused",
                error.to_string(),
                "the message names what is accepted",
            ),
            E::Backend(_) => array_problem(error.to_string()),
        }
        .into()
    }
}

impl From<cgla::Error> for Problems {
    fn from(error: cgla::Error) -> Self {
        match error {
            cgla::Error::Program(text) => program_problem(text).into(),
            other => array_problem(other.to_string()).into(),
        }
    }
}

fn array_problem(message: String) -> Diagnostic {
    Diagnostic::new(
        "nf::bitnet::array",
        message,
        "choose another build (--rows, --ports, --lmm-words) or another backend; the RTL backend \
         needs Verilator",
    )
}

fn program_problem(message: String) -> Diagnostic {
    Diagnostic::new(
        "nf::bitnet::program",
        message,
        "docs/cgla.md describes the text form",
    )
}

fn cannot_write(path: &std::path::Path, error: &std::io::Error) -> Problems {
    Diagnostic::cannot_write(path, error).into()
}
