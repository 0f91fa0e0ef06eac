//! `nfgen convert`: between this program's checkpoints and `.neuro` files.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::json;

use super::reference::{load_checkpoint, problems};
use super::{Exit, Output};
use crate::diag::Problems;
use crate::reference::checkpoint::{Checkpoint, write_atomically};
use crate::reference::neuro::{NeuroFile, NeuroKind};

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Target {
    /// This program's checkpoint
    Safetensors,
    /// .neuro with weights only
    NeuroGpu,
    /// .neuro with step counters and empty embedding moments
    NeuroBf16,
    /// .neuro with all moments
    NeuroFp32,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    nfgen convert gpu.neuro -o gpu.safetensors\n  \
    nfgen convert run/checkpoint.safetensors --to neuro-fp32 -o run.neuro\n  \
    nfgen convert cpu.neuro --set gelu=tanh --set weight_format=bf16 -o cpu.safetensors")]
pub struct ConvertArgs {
    /// Checkpoint: safetensors of this program, or .neuro
    #[arg(value_name = "CKPT")]
    input: PathBuf,
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Kind of file to write [default: by the output's ending; for .neuro that of the input, else neuro-fp32]
    #[arg(long, value_enum)]
    to: Option<Target>,
    /// Set any key of the model; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

pub fn run(args: ConvertArgs, out: &Output) -> Result<Exit, Problems> {
    let (model, state, source) = load_checkpoint(&args.input, &args.set)?;
    // The checkpoint is sound, so a file that reads as .neuro is one.
    let original = NeuroFile::load(&args.input).ok();
    let neuro = args.output.extension().is_some_and(|e| e == "neuro");
    let kind = match args.to {
        Some(Target::Safetensors) => None,
        Some(Target::NeuroGpu) => Some(NeuroKind::Gpu),
        Some(Target::NeuroBf16) => Some(NeuroKind::CpuBf16),
        Some(Target::NeuroFp32) => Some(NeuroKind::CpuFp32),
        None if !neuro => None,
        None => Some(
            original
                .as_ref()
                .map_or(NeuroKind::CpuFp32, NeuroFile::kind),
        ),
    };
    // The same kind of the same model keeps every byte, the header's text included.
    let same = original.filter(|file| kind == Some(file.kind()) && args.set.is_empty());
    let lost = match (kind, same) {
        (_, Some(file)) => {
            write_atomically(&args.output, &file.to_bytes()).map_err(problems)?;
            Vec::new()
        }
        (None, None) => {
            let run = source.run.filter(|_| source.model == model);
            Checkpoint { model, state, run }
                .save(&args.output)
                .map_err(problems)?;
            Vec::new()
        }
        (Some(kind), None) => {
            let bytes = NeuroFile::from_state(&model, &state, kind, None).to_bytes();
            write_atomically(&args.output, &bytes).map_err(problems)?;
            NeuroFile::cannot_hold(&model, kind)
        }
    };
    out.object(&json!({ "output": args.output, "lost": lost }));
    out.say(format!("wrote {}", args.output.display()));
    for item in &lost {
        out.say(format!("  the file does not hold {item}"));
    }
    Ok(Exit::Done)
}
