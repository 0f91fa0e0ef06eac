//! `nfgen bitnet decode`: tokens from a prompt.

use std::path::PathBuf;

use rayon::prelude::*;
use serde_json::json;

use super::super::{Exit, Output};
use super::arguments::{ArrayArgs, BackendKind, LayoutArgs};
use crate::bitnet::backend::Backend;
use crate::bitnet::cpu::CpuReference;
use crate::bitnet::decoder::{Decoder, DecoderOptions, FeedForward};
use crate::bitnet::gguf::GgufFile;
use crate::bitnet::model::Model;
use crate::bitnet::quant::{Epilogue, Quantiser};
use crate::bitnet::sample::{Sampler, Sampling};
use crate::bitnet::tokenizer::Tokenizer;
use crate::diag::Problems;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nfgen bitnet decode tiny.gguf --prompt 'the cat' --tokens 32 --backend rtl --compare"
)]
pub struct Args {
    /// GGUF file
    file: PathBuf,
    /// Prompt; control tokens such as <|eot_id|> are recognised
    #[arg(long, default_value = "")]
    prompt: String,
    /// Most tokens to decode
    #[arg(long, default_value_t = 32)]
    tokens: usize,
    /// Go on after a token that ends a turn
    #[arg(long)]
    ignore_end: bool,
    /// Sample at this temperature instead of taking the largest logit
    #[arg(long)]
    temperature: Option<f32>,
    /// Sample among this many largest logits (0: all)
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Where every BitLinear runs
    #[arg(long, value_enum, default_value_t)]
    backend: BackendKind,
    /// Decode on the CPU reference as well and compare tokens and logits
    #[arg(long)]
    compare: bool,
    /// Measure this machine's memory read bandwidth as well
    #[arg(long)]
    bandwidth: bool,
    /// Activation quantiser
    #[arg(long, value_enum, default_value_t)]
    quantiser: Quantiser,
    /// Order of the scalings behind the integer dot product
    #[arg(long, value_enum, default_value_t)]
    epilogue: Epilogue,
    /// Feed-forward function
    #[arg(long, value_enum, default_value_t)]
    activation: FeedForward,
    #[command(flatten)]
    layout: LayoutArgs,
    #[command(flatten)]
    array: ArrayArgs,
}

struct Decoded {
    tokens: Vec<u32>,
    logits: Vec<Vec<f32>>,
    prompt_seconds: f64,
    decode_seconds: f64,
}

fn decode(
    args: &Args,
    model: &Model,
    prompt: &[u32],
    stops: &[u32],
    backend: &mut dyn Backend,
) -> Result<Decoded, Problems> {
    let sampling = match args.temperature {
        None => Sampling::Greedy,
        Some(temperature) => Sampling::Random {
            temperature,
            top_k: args.top_k,
            seed: args.array.seed.into(),
        },
    };
    let options = DecoderOptions {
        quantiser: args.quantiser,
        epilogue: args.epilogue,
        feed_forward: args.activation,
    };
    let mut sampler = Sampler::new(sampling)?;
    let mut decoder = Decoder::new(model, options);
    let started = std::time::Instant::now();
    let mut logits = decoder.advance(prompt, backend)?;
    let prompt_seconds = started.elapsed().as_secs_f64();
    let mut result = Decoded {
        tokens: vec![],
        logits: vec![],
        prompt_seconds,
        decode_seconds: 0.0,
    };
    while result.tokens.len() < args.tokens {
        let token = sampler.pick(&logits)?;
        result.tokens.push(token);
        result.logits.push(logits);
        let ended = stops.contains(&token) && !args.ignore_end;
        if ended || result.tokens.len() == args.tokens {
            break;
        }
        logits = decoder.advance(&[token], backend)?;
    }
    result.decode_seconds = started.elapsed().as_secs_f64() - prompt_seconds;
    Ok(result)
}

/// Bytes per second of all threads summing a buffer larger than the caches, best of three.
fn read_bandwidth() -> f64 {
    let buffer = vec![1u64; 1 << 26];
    let bytes = (buffer.len() * 8) as f64;
    (0..3)
        .map(|_| {
            let started = std::time::Instant::now();
            let sum: u64 = buffer
                .par_chunks(1 << 16)
                .map(|chunk| chunk.iter().fold(0u64, |s, v| s.wrapping_add(*v)))
                .sum();
            std::hint::black_box(sum);
            bytes / started.elapsed().as_secs_f64()
        })
        .fold(0.0, f64::max)
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let file = GgufFile::open(&args.file)?;
    let tokenizer = Tokenizer::from_gguf(&file)?;
    let model = Model::from_gguf(&file, args.layout.layout)?;
    let mut prompt = tokenizer.encode(&args.prompt)?;
    if prompt.is_empty() {
        prompt.push(tokenizer.bos.unwrap_or(0));
    }
    let mut backend = args.array.backend(args.backend)?;
    let got = decode(&args, &model, &prompt, &tokenizer.stops, backend.as_mut())?;
    let mut same = None;
    if args.compare {
        let mut reference = CpuReference::new();
        let want = decode(&args, &model, &prompt, &tokenizer.stops, &mut reference)?;
        let bits = |logits: &[Vec<f32>]| -> Vec<Vec<u32>> {
            logits
                .iter()
                .map(|l| l.iter().map(|v| v.to_bits()).collect())
                .collect()
        };
        same = Some((
            got.tokens == want.tokens,
            bits(&got.logits) == bits(&want.logits),
        ));
    }
    let text = tokenizer.decode(&got.tokens);
    let stats = backend.stats();
    let steps = got.tokens.len().saturating_sub(1);
    let bandwidth = args.bandwidth.then(read_bandwidth);
    out.object(&json!({
        "backend": backend.name(),
        "host_read_bytes_per_second": bandwidth,
        "prompt_tokens": prompt,
        "tokens": got.tokens,
        "text": text,
        "same_tokens_as_reference": same.map(|s| s.0),
        "same_logits_as_reference": same.map(|s| s.1),
        "projections": stats.projections,
        "ternary_macs": stats.macs,
        "cycles": (args.backend != BackendKind::Cpu).then_some(stats.phases),
        "prompt_seconds": got.prompt_seconds,
        "tokens_per_second_here": (steps > 0).then(|| steps as f64 / got.decode_seconds),
    }));
    out.say(text);
    out.note(format!(
        "{} tokens on {}, {} projections, {} ternary MACs, {} array cycles",
        got.tokens.len(),
        backend.name(),
        stats.projections,
        stats.macs,
        stats.phases.total
    ));
    if let Some(bandwidth) = bandwidth {
        out.note(format!(
            "{:.2} tokens/s here after the prompt; memory reads {:.1} GB/s",
            steps as f64 / got.decode_seconds.max(1e-9),
            bandwidth / 1e9
        ));
    }
    if let Some((tokens, logits)) = same {
        let word = |same| if same { "equal" } else { "DIFFERENT" };
        out.note(format!(
            "against the CPU reference: tokens {}, logits {} (bit by bit)",
            word(tokens),
            word(logits)
        ));
        if !(tokens && logits) {
            return Ok(Exit::Difference);
        }
    }
    Ok(Exit::Done)
}
