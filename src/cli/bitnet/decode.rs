//! `nfgen bitnet decode`: tokens from a prompt.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use serde_json::json;

use super::super::{Exit, Output};
use super::arguments::{ArrayArgs, BackendKind, LayoutArgs};
use crate::bitnet::backend::{Backend, BackendStats};
use crate::bitnet::cpu::CpuReference;
use crate::bitnet::decoder::{Decoder, DecoderOptions, FeedForward};
use crate::bitnet::gguf::GgufFile;
use crate::bitnet::kernels::TernaryKernel;
use crate::bitnet::model::{Model, ModelConfig};
use crate::bitnet::quant::{Activations, Epilogue, Quantiser};
use crate::bitnet::sample::{Sampler, Sampling};
use crate::bitnet::ternary::TernaryMatrix;
use crate::bitnet::tokenizer::Tokenizer;
use crate::diag::{Diagnostic, Problems};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nfgen bitnet decode tiny.gguf --prompt 'the cat' --tokens 32 --backend rtl --compare\n  \
                  nfgen bitnet decode model.gguf --prompt 'the cat' --temperature 0.8 --top-k 40 --seed 7\n  \
                  nfgen bitnet decode model.gguf --tokens 16 --ignore-end --bandwidth --json"
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
    #[arg(long, allow_negative_numbers = true)]
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
    /// Of `decode_seconds`, in projections and in the output matrix.
    projection_seconds: f64,
    head_seconds: f64,
}

/// Measures the time that projections take.
struct Timed<'a> {
    inner: &'a mut dyn Backend,
    spent: Duration,
}

impl Backend for Timed<'_> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn project(
        &mut self,
        weights: &TernaryMatrix,
        acts: &Activations,
    ) -> crate::bitnet::Result<Vec<i32>> {
        let started = Instant::now();
        let result = self.inner.project(weights, acts);
        self.spent += started.elapsed();
        result
    }

    fn stats(&self) -> BackendStats {
        self.inner.stats()
    }
}

fn decode(
    args: &Args,
    model: &Model,
    prompt: &[u32],
    stops: &[u32],
    backend: &mut dyn Backend,
    out: &Output,
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
    let mut backend = Timed {
        inner: backend,
        spent: Duration::ZERO,
    };
    let bar = out.progress(args.tokens as u64, "tokens");
    let started = Instant::now();
    let mut logits = decoder.advance(prompt, &mut backend)?;
    let prompt_seconds = started.elapsed().as_secs_f64();
    let (head_before, spent_before) = (decoder.head_time(), backend.spent);
    let mut result = Decoded {
        tokens: vec![],
        logits: vec![],
        prompt_seconds,
        decode_seconds: 0.0,
        projection_seconds: 0.0,
        head_seconds: 0.0,
    };
    while result.tokens.len() < args.tokens {
        let token = sampler.pick(&logits)?;
        result.tokens.push(token);
        result.logits.push(logits);
        bar.inc(1);
        let ended = stops.contains(&token) && !args.ignore_end;
        if ended || result.tokens.len() == args.tokens {
            break;
        }
        logits = decoder.advance(&[token], &mut backend)?;
    }
    bar.finish_and_clear();
    result.decode_seconds = started.elapsed().as_secs_f64() - prompt_seconds;
    result.projection_seconds = (backend.spent - spent_before).as_secs_f64();
    result.head_seconds = (decoder.head_time() - head_before).as_secs_f64();
    Ok(result)
}

/// Bytes per second of all threads summing a buffer larger than the caches, best of three.
fn read_bandwidth() -> f64 {
    let buffer = vec![1u64; 1 << 26];
    let bytes = (buffer.len() * 8) as f64;
    (0..3)
        .map(|_| {
            let started = Instant::now();
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
    let named = |error: crate::bitnet::Error| error.in_file(&args.file);
    // What kind of file it is comes first: the tokenizer of another architecture is no help.
    let context = ModelConfig::from_gguf(&file).map_err(named)?.context;
    let tokenizer = Tokenizer::from_gguf(&file).map_err(named)?;
    let mut prompt = tokenizer.encode(&args.prompt)?;
    if prompt.is_empty() {
        prompt.push(tokenizer.bos.unwrap_or(0));
    }
    if args.tokens == 0 || args.tokens.saturating_add(prompt.len() - 1) > context {
        return Err(Diagnostic::new(
            "nf::bitnet::refused",
            format!(
                "{} tokens behind a prompt of {}; the model's context is {context}",
                args.tokens,
                prompt.len()
            ),
            match (context + 1).saturating_sub(prompt.len()) {
                0 => "shorten the prompt".to_string(),
                room => format!("--tokens takes 1 to {room} here"),
            },
        )
        .into());
    }
    let model = Model::from_gguf(&file, args.layout.layout).map_err(named)?;
    args.array.config()?;
    let mut backend = args.array.backend(args.backend)?;
    let bandwidth_before = args.bandwidth.then(read_bandwidth);
    let got = decode(
        &args,
        &model,
        &prompt,
        &tokenizer.stops,
        backend.as_mut(),
        out,
    )?;
    let mut same = None;
    if args.compare {
        let mut reference = CpuReference::new();
        let stops = &tokenizer.stops;
        let want = decode(&args, &model, &prompt, stops, &mut reference, out)?;
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
    // Other programs come and go: the better of before and after.
    let bandwidth = bandwidth_before.map(|before| before.max(read_bandwidth()));
    let bytes = model.weight_bytes_per_token();
    let rate = steps as f64 / got.decode_seconds.max(1e-9);
    let achieved = bytes as f64 * rate;
    out.object(&json!({
        "backend": backend.name(),
        "kernel": (args.backend == BackendKind::Cpu).then(|| TernaryKernel::best().name()),
        "weight_bytes_per_token": bytes,
        "weight_bytes_per_second": (steps > 0).then_some(achieved),
        "host_read_bytes_per_second": bandwidth,
        "share_of_host_bandwidth": bandwidth.filter(|_| steps > 0).map(|b| achieved / b),
        "decode_seconds": got.decode_seconds,
        "projection_seconds": got.projection_seconds,
        "head_seconds": got.head_seconds,
        "prompt_tokens": prompt,
        "tokens": got.tokens,
        "text": text,
        "same_tokens_as_reference": same.map(|s| s.0),
        "same_logits_as_reference": same.map(|s| s.1),
        "projections": stats.projections,
        "ternary_macs": stats.macs,
        "cycles": (args.backend != BackendKind::Cpu).then_some(stats.phases),
        "prompt_seconds": got.prompt_seconds,
        "tokens_per_second_here": (steps > 0).then_some(rate),
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
            "{rate:.2} tokens/s here after the prompt: {:.2} GB/s of weights, {:.0} % of the {:.2} \
             GB/s that memory reads reach; {:.0} % of the time in projections, {:.0} % in the \
             output matrix",
            achieved / 1e9,
            100.0 * achieved / bandwidth,
            bandwidth / 1e9,
            100.0 * got.projection_seconds / got.decode_seconds.max(1e-9),
            100.0 * got.head_seconds / got.decode_seconds.max(1e-9),
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
