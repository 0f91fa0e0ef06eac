//! `nfgen bitnet project`: one projection, compared with the exact integer dot product.

use std::path::PathBuf;

use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::super::{Exit, Output};
use super::arguments::{ArrayArgs, BackendKind, LayoutArgs};
use crate::bitnet::cpu::project_by_definition;
use crate::bitnet::gguf::GgufFile;
use crate::bitnet::make::random_matrix;
use crate::bitnet::quant::Activations;
use crate::bitnet::ternary::TernaryMatrix;
use crate::cgla::bench::bits_per_weight;
use crate::diag::{Diagnostic, Problems};

/// Weights, activations or results of one projection; each takes some bytes of memory.
const MOST: usize = 1 << 29;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nfgen bitnet project --shape 2560x6912 --backend rtl --json\n  \
                  nfgen bitnet project --model tiny.gguf --tensor blk.0.ffn_down.weight --backend model"
)]
pub struct Args {
    /// Outputs x inputs of a synthetic ternary matrix
    #[arg(long, value_name = "NxK", required_unless_present = "model", value_parser = parse_shape)]
    shape: Option<(usize, usize)>,
    /// GGUF file to take the matrix from
    #[arg(long, requires = "tensor", conflicts_with = "shape")]
    model: Option<PathBuf>,
    /// Name of the tensor, e.g. blk.0.ffn_down.weight
    #[arg(long, conflicts_with = "shape")]
    tensor: Option<String>,
    /// Activation rows
    #[arg(long, default_value_t = 1)]
    tokens: usize,
    /// All weights this trit instead of random ones
    #[arg(long, allow_hyphen_values = true, value_parser = clap::value_parser!(i8).range(-1..=1))]
    weights: Option<i8>,
    /// All activations this value instead of random ones over the whole int8 range
    #[arg(long, allow_hyphen_values = true)]
    activations: Option<i8>,
    /// Where the projection runs
    #[arg(long, value_enum, default_value_t)]
    backend: BackendKind,
    #[command(flatten)]
    array: ArrayArgs,
    #[command(flatten)]
    layout: LayoutArgs,
}

fn parse_shape(text: &str) -> Result<(usize, usize), String> {
    text.split_once('x')
        .and_then(|(n, k)| Some((n.parse().ok()?, k.parse().ok()?)))
        .filter(|&(n, k): &(usize, usize)| n > 0 && k > 0 && n.saturating_mul(k) <= MOST)
        .ok_or_else(|| "accepted: outputs x inputs such as 2560x6912, up to 2^29 weights".into())
}

/// Refuses a projection whose activations or results would fill the memory.
fn bounded(tokens: usize, n: usize, k: usize) -> Result<(), Problems> {
    if tokens.saturating_mul(n.max(k)) <= MOST {
        return Ok(());
    }
    Err(Diagnostic::new(
        "nf::bitnet::refused",
        format!("{tokens} tokens of {k} inputs and {n} outputs"),
        format!("tokens x inputs and tokens x outputs may each be up to {MOST}"),
    )
    .into())
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    if args.tokens == 0 || args.tokens > 4096 {
        return Err(Diagnostic::new(
            "nf::bitnet::refused",
            format!("{} tokens", args.tokens),
            "--tokens takes 1 to 4096",
        )
        .into());
    }
    // The build is an argument like the others, also where the backend does not need it.
    args.array.config()?;
    let mut rng = rand_pcg::Pcg64::seed_from_u64(args.array.seed.into());
    let weights = match (&args.model, args.shape) {
        (Some(path), _) => {
            let file = GgufFile::open(path)?;
            let name = args.tensor.as_deref().unwrap_or_default();
            let tensor = file.tensor(name).ok_or_else(|| {
                Problems::from(Diagnostic::new(
                    "nf::bitnet::refused",
                    format!("no tensor `{name}` in {}", path.display()),
                    "`nfgen bitnet inspect` lists the tensors",
                ))
            })?;
            TernaryMatrix::from_gguf(&file, tensor, args.layout.layout)
                .map_err(|e| e.in_file(path))?
        }
        (None, shape) => {
            let (n, k) = shape.unwrap_or((1, 1));
            bounded(args.tokens, n, k)?;
            match args.weights {
                Some(trit) => TernaryMatrix::from_trits(n, k, &vec![trit; n * k], 1.0)?,
                None => random_matrix(n, k, 0.33, &mut rng)?,
            }
        }
    };
    let (n, k) = (weights.rows(), weights.cols());
    bounded(args.tokens, n, k)?;
    let values = (0..args.tokens * k)
        .map(|_| args.activations.unwrap_or_else(|| rng.random()))
        .collect();
    let acts = Activations::from_int8(args.tokens, k, values)?;
    let mut backend = args.array.backend(args.backend)?;
    let started = std::time::Instant::now();
    let got = backend.project(&weights, &acts)?;
    let seconds = started.elapsed().as_secs_f64();
    let expected = project_by_definition(&weights, &acts);
    let differs = |(index, (g, e)): (usize, (&i32, &i32))| (g != e).then_some((index, *g, *e));
    let wrong: Vec<(usize, i32, i32)> = got
        .iter()
        .zip(&expected)
        .enumerate()
        .filter_map(differs)
        .collect();
    let verdict = if wrong.is_empty() {
        "match"
    } else {
        "mismatch"
    };
    let stats = backend.stats();
    let on_array = args.backend != BackendKind::Cpu;
    let macs = stats.macs as f64;
    let bits = bits_per_weight(args.array.format, k);
    let memory = args.array.memory()?;
    let limit = memory.macs_per_cycle(args.array.ports, bits) * args.tokens as f64;
    let rate = macs / stats.phases.total.max(1) as f64;
    out.object(&json!({
        "verdict": verdict,
        "backend": backend.name(),
        "outputs": n,
        "k": k,
        "tokens": args.tokens,
        "mismatches": wrong.len(),
        "first_mismatch": wrong.first().map(|w| json!({"index": w.0, "got": w.1, "want": w.2})),
        "macs_per_cycle": on_array.then_some(rate),
        "memory_limit_macs_per_cycle": on_array.then_some(limit),
        "share_of_memory_limit": on_array.then_some(rate / limit),
        "cycles": on_array.then_some(stats.phases),
        "rows": on_array.then_some(args.array.rows),
        "format": args.array.format.name(),
        "memory_model": on_array.then_some(memory),
        "seed": args.array.seed,
        "seconds": seconds,
    }));
    out.say(format!(
        "{verdict}: {n} outputs of {k} inputs, {} tokens on {}, {} mismatches",
        args.tokens,
        backend.name(),
        wrong.len()
    ));
    if on_array {
        let p = stats.phases;
        out.say(format!(
            "{rate:.1} MACs per cycle of {limit:.1} that the memory allows ({:.1} %); cycles: \
             total {}, conf {}, load {}, exec {}, drain {}",
            100.0 * rate / limit,
            p.total,
            p.conf,
            p.load,
            p.exec,
            p.drain
        ));
    }
    for (index, got, want) in wrong.iter().take(1) {
        out.say(format!("first mismatch at {index}: got {got}, want {want}"));
    }
    Ok(if wrong.is_empty() {
        Exit::Done
    } else {
        Exit::Difference
    })
}
