//! `nfgen eval`: validation loss of a checkpoint.

use std::path::PathBuf;

use serde_json::json;

use super::reference::{CorpusArgs, load_checkpoint_as, problems, threads};
use super::{Exit, Output};
use crate::config::model::Compute;
use crate::diag::Problems;
use crate::reference::Trainer;
use crate::reference::evaluate::{Protocol, evaluate};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    nfgen eval run/checkpoint.safetensors --corpus text.txt\n  \
    nfgen eval gpu.neuro --corpus shakespeare.txt --line-endings crlf --protocol paper64\n  \
    nfgen eval cpu.neuro --corpus shakespeare.txt --line-endings crlf --protocol full --set gelu=tanh --json")]
pub struct EvalArgs {
    /// Checkpoint: safetensors of this program, or .neuro (with gelu=erf and compute=fp32, as its authors evaluate
    /// it, unless --set says otherwise)
    #[arg(value_name = "CKPT")]
    checkpoint: PathBuf,
    #[command(flatten)]
    corpus: CorpusArgs,
    /// paper64: the paper's 64 windows; full: the whole validation split; file: the whole text
    #[arg(long, value_enum, default_value_t = Protocol::Full)]
    protocol: Protocol,
    /// Set any key of the model, such as compute=fp32; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Threads (the result does not depend on it)
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

pub fn run(args: EvalArgs, out: &Output) -> Result<Exit, Problems> {
    let published = args.checkpoint.extension().is_some_and(|e| e == "neuro");
    let (model, state, _) = load_checkpoint_as(&args.checkpoint, &args.set, |model| {
        if published {
            model.compute = Compute::Fp32;
        }
    })?;
    let corpus = args.corpus.load(model.vocab)?;
    let mut trainer = Trainer::new(&model, state, threads(args.threads)).map_err(problems)?;
    let bar = out.progress(0, "windows");
    let result = evaluate(&mut trainer, &corpus, args.protocol, |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })
    .map_err(problems)?;
    bar.finish_and_clear();
    out.object(&json!({
        "loss": result.loss,
        "accuracy": result.accuracy,
        "bpc": result.bpc,
        "windows": result.windows,
        "tokens": result.tokens,
        "protocol": args.protocol,
    }));
    out.say(format!(
        "loss {:.4}  accuracy {:.2} %  {:.4} bits per character  ({} windows, {} tokens)",
        result.loss,
        100.0 * result.accuracy,
        result.bpc,
        result.windows,
        result.tokens
    ));
    Ok(Exit::Done)
}
