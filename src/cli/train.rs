//! `nfgen train`: trains a model with the reference trainer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::reference::{load_checkpoint, problems, threads};
use super::{Exit, ModelArgs, Output};
use crate::config::{self, ModelConfig};
use crate::diag::{Diagnostic, Problems};
use crate::files::{MOST_DATA, read_bytes};
use crate::reference::checkpoint::{Checkpoint, write_atomically};
use crate::reference::corpus::{Corpus, LineEndings, Order};
use crate::reference::evaluate::Protocol;
use crate::reference::training::{CHECKPOINT, LogLine, Progress, Run, TrainOptions};
use crate::reference::{State, TensorId, Trainer};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    nfgen train --model small --corpus text.txt --samples 2000 -o run\n  \
    nfgen train --model shakespeare-334k --corpus shakespeare.txt --line-endings crlf --samples 80000 -o run\n  \
    nfgen train --resume --corpus shakespeare.txt -o run      # continues to the same bit\n  \
    nfgen train --init CKPT --tokens windows.bin --samples 5 --dump-weights w.safetensors")]
pub struct TrainArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Text to train on (its last tenth is for validation)
    #[arg(long, value_name = "FILE", required_unless_present = "tokens")]
    corpus: Option<PathBuf>,
    /// Line endings as the model sees them [default: keep; a resumed run has its own]
    #[arg(long, value_enum, value_name = "KIND")]
    line_endings: Option<LineEndings>,
    /// Training windows of the whole run; sets total_steps to samples / batch
    #[arg(long, value_name = "N")]
    samples: Option<u64>,
    /// Folder of the run: log.csv and checkpoint.safetensors
    #[arg(short, long, value_name = "DIR", required_unless_present = "tokens")]
    output: Option<PathBuf>,
    /// Continue the run in the folder
    #[arg(long, conflicts_with_all = ["init", "samples", "order", "batch"])]
    resume: bool,
    /// Start from this checkpoint's weights, moments and step
    #[arg(long, value_name = "CKPT")]
    init: Option<PathBuf>,
    /// Stop and save after this many steps of the run
    #[arg(long, value_name = "N")]
    stop_after: Option<u32>,
    /// Windows whose mean gradient makes one step
    #[arg(long, value_name = "N", default_value_t = 1)]
    batch: usize,
    /// random: uniform windows with replacement; epoch: each window once, shuffled
    #[arg(long, value_enum, default_value_t = Order::Random)]
    order: Order,
    /// Steps between validations
    #[arg(long, value_name = "N", default_value_t = 1000)]
    eval_every: u32,
    /// Windows of the validations
    #[arg(long, value_enum, default_value_t = Protocol::Paper64)]
    protocol: Protocol,
    /// Steps between checkpoints
    #[arg(long, value_name = "N", default_value_t = 1000)]
    checkpoint_every: u32,
    /// Threads (the result does not depend on it)
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Train on given windows instead: T + 1 bytes each, in order
    #[arg(long, value_name = "FILE", conflicts_with_all = ["corpus", "resume", "output"])]
    tokens: Option<PathBuf>,
    /// With --tokens: write every gradient tensor of the first window
    #[arg(long, value_name = "FILE", requires = "tokens")]
    dump_grads: Option<PathBuf>,
    /// With --tokens: write every weight after the last window
    #[arg(long, value_name = "FILE", requires = "tokens")]
    dump_weights: Option<PathBuf>,
}

pub fn run(args: TrainArgs, out: &Output) -> Result<Exit, Problems> {
    if let Some(tokens) = &args.tokens {
        return run_windows(&args, tokens, out);
    }
    let (Some(text), Some(folder)) = (&args.corpus, &args.output) else {
        let help = "nfgen train --model small --corpus FILE --samples 2000 -o DIR";
        return Err(Diagnostic::new("nf::cli::usage", "--corpus and -o are needed", help).into());
    };
    let mut options = TrainOptions {
        folder: folder.clone(),
        order: args.order,
        batch: args.batch,
        line_endings: args.line_endings.unwrap_or(LineEndings::Keep),
        eval_every: args.eval_every,
        protocol: args.protocol,
        checkpoint_every: args.checkpoint_every,
        stop_after: args.stop_after,
        threads: threads(args.threads),
    };
    let load = |endings, vocab| Corpus::load(text, endings, vocab).map_err(problems);
    let (corpus, mut run);
    if args.resume {
        let checkpoint = Checkpoint::load(&folder.join(CHECKPOINT)).map_err(problems)?;
        let own = checkpoint.run.as_ref().map(|run| run.line_endings);
        options.line_endings = own.unwrap_or(options.line_endings);
        corpus = load(options.line_endings, checkpoint.model.vocab)?;
        run = Run::resume(checkpoint, &corpus, options).map_err(problems)?;
    } else {
        let (model, state) = beginning(&args)?;
        corpus = load(options.line_endings, model.vocab)?;
        run = Run::start(&model, state, &corpus, options).map_err(problems)?;
    }
    train(&mut run, &corpus, folder, out)
}

/// Model and state that a new run starts from.
fn beginning(args: &TrainArgs) -> Result<(ModelConfig, State), Problems> {
    let mut set = args.model.set.clone();
    if let Some(samples) = args.samples {
        set.push(format!(
            "total_steps={}",
            samples / args.batch.max(1) as u64
        ));
    }
    if let Some(path) = &args.init {
        let (model, state, _) = load_checkpoint(path, &set)?;
        return Ok((model, state));
    }
    let model = config::load_model(&args.model.model, &set)?;
    let state = State::init(&model);
    Ok((model, state))
}

fn train(run: &mut Run, corpus: &Corpus, folder: &Path, out: &Output) -> Result<Exit, Problems> {
    let cancel = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&cancel);
    // Without a handler Ctrl+C ends the program; the last checkpoint stands then.
    let handler = ctrlc::set_handler(move || seen.store(true, Ordering::Relaxed));
    if handler.is_err() {
        out.note("Ctrl+C will stop without saving");
    }
    let total = run.trainer().model().total_steps;
    let bar = out.progress(u64::from(total), "steps");
    let report = run
        .train(corpus, &cancel, |progress| match progress {
            Progress::Step(step, loss) => {
                bar.set_position(u64::from(step));
                if step.is_multiple_of(16) {
                    bar.set_message(format!("loss {loss:.3}"));
                }
            }
            Progress::Logged(line) => bar.suspend(|| out.note(describe(line))),
        })
        .map_err(problems)?;
    bar.finish_and_clear();
    out.object(&json!({ "report": report, "folder": folder }));
    let best = match (report.best_val_loss, report.best_step) {
        (Some(loss), Some(step)) => format!(", best validation loss {loss:.4} at step {step}"),
        _ => String::new(),
    };
    out.say(format!(
        "{} of {} steps done{best}, {:.2} ms per sample; saved in {}",
        report.steps,
        report.total_steps,
        report.ms_per_sample,
        folder.display()
    ));
    if !report.finished {
        out.note("continue with --resume");
    }
    Ok(Exit::Done)
}

fn describe(line: &LogLine) -> String {
    format!(
        "step {:>6}  loss {:.4}  validation {:.4}  accuracy {:.2} %  {:.4} bits per character  lr {:.2e}  {:.2} ms/sample",
        line.step,
        line.train_loss,
        line.val_loss,
        100.0 * line.val_accuracy,
        line.val_bpc,
        line.lr,
        line.ms_per_sample
    )
}

/// Trains on windows from a file, for comparison with other programs.
fn run_windows(args: &TrainArgs, path: &Path, out: &Output) -> Result<Exit, Problems> {
    let (model, state) = beginning(args)?;
    let bytes = read_bytes(path, MOST_DATA).map_err(|e| Diagnostic::cannot_read(path, &e))?;
    let width = model.seq_len + 1;
    let samples = args.samples.unwrap_or((bytes.len() / width) as u64) as usize;
    if samples == 0 || bytes.len() < samples.saturating_mul(width) {
        return Err(Diagnostic::new(
            "nf::reference::window_length",
            format!(
                "`{}` has {} bytes; {samples} windows of {width} were asked for",
                path.display(),
                bytes.len()
            ),
            format!("give at least {width} bytes per window"),
        )
        .into());
    }
    let tokens: Vec<u32> = bytes.iter().map(|&b| u32::from(b)).collect();
    let windows: Vec<&[u32]> = tokens.chunks_exact(width).take(samples).collect();
    let mut trainer = Trainer::new(&model, state, threads(args.threads)).map_err(problems)?;
    if let Some(file) = &args.dump_grads {
        let (_, grads) = trainer.gradients(windows[0]).map_err(problems)?;
        dump(file, &model, &grads)?;
    }
    let mut losses = Vec::new();
    for batch in windows.chunks(args.batch.max(1)) {
        losses.push(trainer.step_batch(batch).map_err(problems)?.loss);
    }
    if let Some(file) = &args.dump_weights {
        let weights: Vec<Vec<f32>> = trainer
            .state()
            .tensors
            .iter()
            .map(|t| t.w.clone())
            .collect();
        dump(file, &model, &weights)?;
    }
    out.object(&json!({ "steps": losses.len(), "loss": losses }));
    let text: Vec<String> = losses.iter().map(|l| format!("{l:.6}")).collect();
    out.say(text.join("\n"));
    Ok(Exit::Done)
}

/// Writes FP32 tensors by the names of the checkpoint.
fn dump(path: &Path, model: &ModelConfig, values: &[Vec<f32>]) -> Result<(), Problems> {
    use safetensors::tensor::{Dtype, TensorView, serialize};
    let wrong = |e: safetensors::SafeTensorError| {
        Problems::from(Diagnostic::new(
            "nf::reference::invalid",
            e.to_string(),
            "this is a defect of the program",
        ))
    };
    let list: Vec<(String, Vec<usize>, Vec<u8>)> = TensorId::all(model)
        .into_iter()
        .zip(values)
        .map(|(id, x)| {
            let bytes = x.iter().flat_map(|x| x.to_le_bytes()).collect();
            let shape = id.shape(model);
            (
                id.name(),
                if id.matrix().is_some() {
                    shape.to_vec()
                } else {
                    vec![shape[1]]
                },
                bytes,
            )
        })
        .collect();
    let views = list
        .iter()
        .map(|(name, shape, bytes)| {
            TensorView::new(Dtype::F32, shape.clone(), bytes).map(|v| (name, v))
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(wrong)?;
    let bytes = serialize(views, None).map_err(wrong)?;
    write_atomically(path, &bytes).map_err(problems)
}
