//! `nfgen bench`: time of a training step.

use std::time::Instant;

use serde_json::json;

use super::reference::{CorpusArgs, problems, threads};
use super::{Exit, ModelArgs, Output};
use crate::diag::Problems;
use crate::reference::corpus::{Order, Sampler};
use crate::reference::simd::Level;
use crate::reference::{State, Trainer};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    nfgen bench --model shakespeare-334k --corpus text.txt --threads 2 --json\n  \
    nfgen bench --model shakespeare-334k --corpus text.txt --set compute=fp32 --steps 1000")]
pub struct BenchArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    corpus: CorpusArgs,
    /// Steps to time, after 5 that are not
    #[arg(long, default_value_t = 300, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    steps: u32,
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// Steps before the clock starts.
const WARM_UP: u64 = 5;

pub fn run(args: BenchArgs, out: &Output) -> Result<Exit, Problems> {
    let model = args.model.resolve()?;
    let corpus = args.corpus.load(model.vocab)?;
    let threads = threads(args.threads);
    let mut trainer = Trainer::new(&model, State::init(&model), threads).map_err(problems)?;
    let tokens = corpus.train();
    let mut sampler =
        Sampler::new(Order::Random, model.seed, model.seq_len, tokens.len()).map_err(problems)?;
    let mut times = Vec::new();
    let mut loss = 0.0;
    for n in 0..WARM_UP + u64::from(args.steps) {
        let first = sampler.start(n);
        let start = Instant::now();
        let result = trainer
            .step(&tokens[first..first + model.seq_len + 1])
            .map_err(problems)?;
        let time = start.elapsed().as_secs_f64() * 1e3;
        if n >= WARM_UP {
            times.push(time);
        }
        loss = result.loss;
    }
    times.sort_by(f64::total_cmp);
    let (min, p10, median) = (times[0], times[times.len() / 10], times[times.len() / 2]);
    let compute = model.compute.name();
    let level = Level::detect().name();
    out.object(&json!({
        "ms_per_sample": { "min": min, "p10": p10, "median": median },
        "threads": threads,
        "compute": compute,
        "instructions": level,
        "steps": args.steps,
        "loss": loss,
    }));
    out.say(format!(
        "{compute}, {threads} threads, {level}: ms/sample min {min:.2}, p10 {p10:.2}, median {median:.2}"
    ));
    Ok(Exit::Done)
}
