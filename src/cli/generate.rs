//! `nfgen generate` and `nfgen chat`: text from a checkpoint.

use std::io::{BufRead, Write};
use std::path::PathBuf;

use serde_json::json;

use super::reference::{load_checkpoint, problems, threads};
use super::{Exit, Output};
use crate::diag::Problems;
use crate::reference::Trainer;
use crate::reference::generate::Generator;

#[derive(Debug, clap::Args)]
struct Sampling {
    /// Checkpoint: safetensors of this program, or .neuro
    #[arg(value_name = "CKPT")]
    checkpoint: PathBuf,
    /// 0 takes the likeliest character; higher is more varied
    #[arg(
        long,
        default_value_t = 0.8,
        value_name = "X",
        allow_negative_numbers = true
    )]
    temperature: f64,
    /// Characters to write (per answer in a chat)
    #[arg(long, default_value_t = 300, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    length: u64,
    #[arg(long, default_value_t = 42, value_name = "N")]
    seed: u64,
    /// Set any key of the model; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

impl Sampling {
    fn open(&self) -> Result<(Trainer, Generator), Problems> {
        let (model, state, _) = load_checkpoint(&self.checkpoint, &self.set)?;
        let trainer = Trainer::new(&model, state, threads(self.threads)).map_err(problems)?;
        let generator = Generator::new(self.seed, self.temperature).map_err(problems)?;
        Ok((trainer, generator))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    nfgen generate run/checkpoint.safetensors --prompt \"ROMEO:\" --length 300\n  \
    nfgen generate gpu.neuro --prompt \"To be\" --temperature 0.5 --seed 7")]
pub struct GenerateArgs {
    #[command(flatten)]
    sampling: Sampling,
    /// Text to continue
    #[arg(long, default_value = "\n", value_name = "TEXT")]
    prompt: String,
}

pub fn run(args: GenerateArgs, out: &Output) -> Result<Exit, Problems> {
    let (mut trainer, mut generator) = args.sampling.open()?;
    generator
        .feed(&trainer, args.prompt.as_bytes())
        .map_err(problems)?;
    let mut text = Vec::new();
    for _ in 0..args.sampling.length {
        text.push(generator.next(&mut trainer).map_err(problems)? as u8);
    }
    let text = String::from_utf8_lossy(&text).replace('\r', "");
    out.object(&json!({ "prompt": args.prompt, "text": text }));
    out.say(format!("{}{text}", args.prompt));
    Ok(Exit::Done)
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nfgen chat run/checkpoint.safetensors --length 120")]
pub struct ChatArgs {
    #[command(flatten)]
    sampling: Sampling,
}

/// Reads lines until the end of the input; each is continued by the model.
pub fn chat(args: ChatArgs, out: &Output) -> Result<Exit, Problems> {
    let (mut trainer, mut generator) = args.sampling.open()?;
    out.note("Type a line and the model goes on; Ctrl+D ends.");
    let mut turns = Vec::new();
    let mut lines = std::io::stdin().lock().split(b'\n');
    loop {
        if !out.is_json() {
            let prompt = std::io::stderr().write_all(b"> ");
            drop(prompt);
        }
        let Some(Ok(mut line)) = lines.next() else {
            break;
        };
        line.push(b'\n');
        if let Err(error) = generator.feed(&trainer, &line) {
            out.note(error.to_string());
            continue;
        }
        let mut text = Vec::new();
        for _ in 0..args.sampling.length {
            text.push(generator.next(&mut trainer).map_err(problems)? as u8);
        }
        let text = String::from_utf8_lossy(&text).replace('\r', "");
        out.say(&text);
        turns.push(json!({ "prompt": String::from_utf8_lossy(&line), "text": text }));
    }
    out.object(&json!({ "turns": turns }));
    Ok(Exit::Done)
}
