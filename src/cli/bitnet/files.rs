//! `inspect`, `convert` and `make-model`.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::json;

use super::super::{Exit, Output};
use super::arguments::LayoutArgs;
use super::cannot_write;
use crate::bitnet::gguf::{GgufFile, TensorType};
use crate::bitnet::make::{Given, MakeOptions, make_model_with, read_given};
use crate::bitnet::shapes::Shape;
use crate::bitnet::ternary::I2sLayout;
use crate::bitnet::{Error, convert as conversion, inspect as inspection};
use crate::diag::Problems;

/// Container on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Container {
    #[default]
    #[value(name = "i2_s")]
    I2S,
    #[value(name = "tq1_0")]
    Tq1,
    #[value(name = "tq2_0")]
    Tq2,
    F16,
    F32,
}

impl Container {
    fn dtype(self) -> TensorType {
        match self {
            Self::I2S => TensorType::I2S,
            Self::Tq1 => TensorType::Tq1_0,
            Self::Tq2 => TensorType::Tq2_0,
            Self::F16 => TensorType::F16,
            Self::F32 => TensorType::F32,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nfgen bitnet inspect model.gguf\n  \
                        nfgen bitnet inspect model.gguf --layout 64 --json")]
pub struct InspectArgs {
    /// GGUF file
    file: PathBuf,
    #[command(flatten)]
    layout: LayoutArgs,
}

pub fn inspect(args: InspectArgs, out: &Output) -> Result<Exit, Problems> {
    let file = GgufFile::open(&args.file)?;
    let report =
        inspection::inspect(&file, args.layout.layout).map_err(|e| e.in_file(&args.file))?;
    out.object(&report);
    out.say(format!(
        "{} bytes, GGUF version 3, {} keys, {} tensors, {} ternary weights",
        report.file_bytes,
        report.keys.len(),
        report.tensors.len(),
        report.ternary_weights
    ));
    for (key, value) in &report.keys {
        out.say(format!("  {} = {value}", key.escape_debug()));
    }
    for t in &report.tensors {
        // Names from a file must not steer the terminal.
        let name = t.name.escape_debug().to_string();
        let mut line = format!("  {name:<32} {:<6} {:?}", t.dtype, t.dims);
        if let (Some(scale), Some(trits)) = (t.scale, t.trits) {
            line.push_str(&format!(
                "  scale {scale}  -1/0/+1: {}/{}/{}",
                trits[0], trits[1], trits[2]
            ));
        }
        out.say(line);
    }
    if let Some(why) = &report.not_decodable {
        out.say(format!("cannot be decoded: {}", why.escape_debug()));
    }
    for warning in &report.warnings {
        out.note(format!("warning: {warning}"));
    }
    Ok(Exit::Done)
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nfgen bitnet convert model.gguf tq1.gguf --to tq1_0\n  \
                  nfgen bitnet convert arm.gguf x86.gguf --layout 64 --to-layout 128"
)]
pub struct ConvertArgs {
    /// GGUF file to read
    input: PathBuf,
    /// GGUF file to write
    output: PathBuf,
    /// Container of the ternary tensors
    #[arg(long, value_enum, default_value_t)]
    to: Container,
    #[command(flatten)]
    layout: LayoutArgs,
    /// Byte order of written I2_S tensors
    #[arg(long, value_enum, default_value_t)]
    to_layout: I2sLayout,
}

pub fn convert(args: ConvertArgs, out: &Output) -> Result<Exit, Problems> {
    let file = GgufFile::open(&args.input)?;
    let bar = out.progress(file.tensors.len() as u64, "tensors");
    let (writer, report) = conversion::convert_with(
        &file,
        args.layout.layout,
        args.to.dtype(),
        args.to_layout,
        &mut || bar.inc(1),
    )
    .map_err(|e| e.in_file(&args.input))?;
    bar.finish_and_clear();
    write(&writer, &args.output)?;
    out.object(&report);
    out.say(format!(
        "{} tensors as {}, {} copied",
        report.converted,
        args.to.dtype().name(),
        report.copied
    ));
    for (name, before, after) in &report.rounded_scales {
        out.note(format!(
            "warning: scale of `{name}` rounded to half precision, {before} to {after}"
        ));
    }
    Ok(Exit::Done)
}

fn write(writer: &crate::bitnet::gguf::GgufWriter, path: &std::path::Path) -> Result<(), Problems> {
    writer.write(path).map_err(|error| match error {
        Error::Io { path, source } => cannot_write(&path, &source),
        other => other.into(),
    })
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nfgen bitnet make-model tiny.gguf --layers 2 --width 256 --seed 7\n  \
                  nfgen bitnet make-model big.gguf --like 2b-4t\n  \
                  nfgen bitnet make-model mine.gguf --given tensors.safetensors"
)]
pub struct MakeArgs {
    /// GGUF file to write
    output: PathBuf,
    /// Sizes of a published model instead of the options below
    #[arg(long, value_parser = ["2b-4t"])]
    like: Option<String>,
    #[arg(long, default_value_t = 256)]
    width: usize,
    #[arg(long, default_value_t = 640)]
    feed_forward: usize,
    #[arg(long, default_value_t = 2)]
    layers: usize,
    #[arg(long, default_value_t = 4)]
    heads: usize,
    #[arg(long, default_value_t = 2)]
    kv_heads: usize,
    #[arg(long, default_value_t = 512)]
    vocab: usize,
    #[arg(long, default_value_t = 256)]
    context: usize,
    /// Architecture string
    #[arg(long, default_value = "bitnet-b1.58")]
    architecture: String,
    /// Container of the ternary tensors
    #[arg(long, value_enum, default_value_t)]
    container: Container,
    #[command(flatten)]
    layout: LayoutArgs,
    /// Share of zeros among random trits
    #[arg(long, default_value_t = 0.33, allow_negative_numbers = true)]
    zeros: f64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Safetensors file whose tensors bear GGUF names; they replace random ones
    #[arg(long, value_name = "FILE")]
    given: Option<PathBuf>,
}

pub fn make(args: MakeArgs, out: &Output) -> Result<Exit, Problems> {
    let shape = args
        .like
        .as_deref()
        .and_then(Shape::named)
        .unwrap_or(Shape {
            width: args.width,
            feed_forward: args.feed_forward,
            layers: args.layers,
            heads: args.heads,
            kv_heads: args.kv_heads,
            vocab: args.vocab,
        });
    let given = match &args.given {
        Some(path) => read_given(path)?,
        None => Given::new(),
    };
    let options = MakeOptions {
        shape,
        context: args.context,
        architecture: args.architecture,
        dtype: args.container.dtype(),
        layout: args.layout.layout,
        zeros: args.zeros,
        seed: args.seed,
    };
    let bar = out.progress(7 * shape.layers as u64, "projections");
    let writer = make_model_with(&options, given, &mut || bar.inc(1))?;
    bar.finish_and_clear();
    write(&writer, &args.output)?;
    out.object(&json!({ "file": args.output, "shape": shape, "ternary_weights": shape.trits() }));
    out.say(format!(
        "wrote {} with {} ternary weights in {} layers",
        args.output.display(),
        shape.trits(),
        shape.layers
    ));
    Ok(Exit::Done)
}
