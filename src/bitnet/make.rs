//! Small models in GGUF, random or from given ternary tensors: for tests, and for users without
//! the gigabyte file.

use std::collections::BTreeMap;

use rand::{Rng, RngExt, SeedableRng};

use super::gguf::{GgufWriter, TensorType, Value};
use super::shapes::Shape;
use super::ternary::{I2sLayout, TernaryMatrix};
use super::tokenizer::byte_alphabet;
use super::{Error, Result};

/// Largest size that the reader takes.
const MOST: usize = 1 << 24;

/// Bytes of a model that is made.
const MOST_BYTES: u128 = 1 << 33;

/// What to make.
#[derive(Debug, Clone)]
pub struct MakeOptions {
    /// Layer sizes; the vocabulary needs at least 259 tokens (bytes and three control tokens).
    pub shape: Shape,
    /// Longest sequence.
    pub context: usize,
    /// Architecture string.
    pub architecture: String,
    /// Container of the ternary tensors.
    pub dtype: TensorType,
    /// Byte order when the container is `I2_S`.
    pub layout: I2sLayout,
    /// Share of zeros among random trits, 0 to 1.
    pub zeros: f64,
    /// Seed of everything random.
    pub seed: u64,
}

/// Float tensors by GGUF name with their dimensions (contiguous first), used instead of random
/// ones. Projections must be ternary.
pub type Given = BTreeMap<String, (Vec<u64>, Vec<f32>)>;

/// Reads given tensors from a safetensors file whose tensors bear GGUF names.
pub fn read_given(path: &std::path::Path) -> Result<Given> {
    let bytes = super::gguf::Bytes::map(path)?;
    let tensors = safetensors::SafeTensors::deserialize(&bytes)
        .map_err(|e| Error::Data(format!("{}: not a safetensors file: {e}", path.display())))?;
    let mut given = Given::new();
    for (name, view) in tensors.tensors() {
        let data = view.data();
        let values: Vec<f32> = match view.dtype() {
            safetensors::Dtype::F32 => data
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            safetensors::Dtype::F16 => data
                .chunks_exact(2)
                .map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
            safetensors::Dtype::BF16 => data
                .chunks_exact(2)
                .map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
            safetensors::Dtype::I8 => data.iter().map(|&b| f32::from(b as i8)).collect(),
            other => {
                return Err(Error::Unsupported(format!(
                    "tensor `{name}` has type {other:?}; accepted: F32, F16, BF16, I8"
                )));
            }
        };
        let dims = view.shape().iter().rev().map(|&d| d as u64).collect();
        given.insert(name.to_owned(), (dims, values));
    }
    Ok(given)
}

/// Makes the file.
pub fn make_model(options: &MakeOptions, given: Given) -> Result<GgufWriter> {
    make_model_with(options, given, &mut || {})
}

/// [`make_model`], calling `made` behind each of the `7 * layers` projections.
pub fn make_model_with(
    options: &MakeOptions,
    mut given: Given,
    made: &mut dyn FnMut(),
) -> Result<GgufWriter> {
    check(options)?;
    let shape = options.shape;
    let mut rng = rand_pcg::Pcg64::seed_from_u64(options.seed);
    let mut writer = GgufWriter::new();
    put_keys(&mut writer, options);
    let width = shape.width as u64;
    let dims = [width, shape.vocab as u64];
    let values = match take_given(&mut given, "token_embd.weight", &dims)? {
        Some(found) => found,
        None => (0..shape.vocab * shape.width)
            .map(|_| rng.random::<f32>() * 2.0 - 1.0)
            .collect(),
    };
    if let Some(at) = values
        .iter()
        .position(|&v| !half::f16::from_f32(v).is_finite())
    {
        return Err(Error::Numeric(format!(
            "given tensor `token_embd.weight`: element {at} is {}; it is stored in half precision, up to 65504",
            values[at]
        )));
    }
    let data = values
        .iter()
        .flat_map(|&v| half::f16::from_f32(v).to_le_bytes())
        .collect();
    writer.tensor("token_embd.weight", &dims, TensorType::F16, data)?;
    put_norm(
        &mut writer,
        &mut given,
        &mut rng,
        "output_norm.weight",
        shape.width,
    )?;
    for layer in 0..shape.layers {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        for (norm, length) in [
            ("attn_norm", shape.width),
            ("attn_sub_norm", shape.width),
            ("ffn_norm", shape.width),
            ("ffn_sub_norm", shape.feed_forward),
        ] {
            put_norm(&mut writer, &mut given, &mut rng, &name(norm), length)?;
        }
        for p in shape.projections() {
            let name = name(p.name);
            let dims = [p.cols as u64, p.rows as u64];
            let matrix = match take_given(&mut given, &name, &dims)? {
                Some(values) => TernaryMatrix::from_floats(p.rows, p.cols, &values, &name)?,
                None => random_matrix(p.rows, p.cols, options.zeros, &mut rng)?,
            };
            let data = matrix.encode(options.dtype, options.layout, &name)?;
            writer.tensor(name, &dims, options.dtype, data)?;
            made();
        }
    }
    if let Some(name) = given.keys().next() {
        return Err(Error::Shape(format!(
            "given tensor `{name}` has no place in a model of {} layers",
            shape.layers
        )));
    }
    Ok(writer)
}

/// Takes a given tensor, which must have these dimensions (contiguous first) and finite elements.
fn take_given(given: &mut Given, name: &str, dims: &[u64]) -> Result<Option<Vec<f32>>> {
    let Some((found, values)) = given.remove(name) else {
        return Ok(None);
    };
    if found != dims {
        return Err(Error::Shape(format!(
            "given tensor `{name}` is {found:?}, expected {dims:?} (contiguous dimension first)"
        )));
    }
    match values.iter().position(|v| !v.is_finite()) {
        Some(at) => Err(Error::Data(format!(
            "given tensor `{name}`: element {at} is {}; accepted: finite numbers",
            values[at]
        ))),
        None => Ok(Some(values)),
    }
}

/// Random trits; the scale keeps the variance of unit activations.
pub fn random_matrix(
    rows: usize,
    cols: usize,
    zeros: f64,
    rng: &mut impl Rng,
) -> Result<TernaryMatrix> {
    let threshold = (zeros * f64::from(u32::MAX)) as u32;
    let trits: Vec<i8> = (0..rows * cols)
        .map(|_| {
            let raw = rng.next_u64();
            if ((raw >> 32) as u32) < threshold {
                0
            } else {
                (raw & 2) as i8 - 1
            }
        })
        .collect();
    let scale = 1.0 / (cols as f64 * (1.0 - zeros).max(0.01)).sqrt();
    TernaryMatrix::from_trits(rows, cols, &trits, scale as f32)
}

fn check(options: &MakeOptions) -> Result<()> {
    let s = options.shape;
    if s.width == 0
        || s.heads == 0
        || s.kv_heads == 0
        || !s.width.is_multiple_of(s.heads)
        || !s.heads.is_multiple_of(s.kv_heads)
        || !(s.width / s.heads).is_multiple_of(2)
    {
        return Err(Error::Shape(format!(
            "width {} with {} heads and {} key/value heads; needed: heads divide the width into \
             even parts, key/value heads divide heads",
            s.width, s.heads, s.kv_heads
        )));
    }
    if s.vocab < 259 || s.layers == 0 || s.feed_forward == 0 || options.context == 0 {
        return Err(Error::Shape(format!(
            "vocabulary {}, {} layers, feed-forward {}, context {}; needed: at least 259 tokens, \
             1 layer, 1, 1",
            s.vocab, s.layers, s.feed_forward, options.context
        )));
    }
    for (name, value) in [
        ("width", s.width),
        ("feed-forward", s.feed_forward),
        ("layers", s.layers),
        ("vocabulary", s.vocab),
        ("context", options.context),
    ] {
        if value > MOST {
            return Err(Error::Shape(format!(
                "{name} {value}; accepted: up to {MOST}"
            )));
        }
    }
    // With sizes up to 2^24 the products below stay within 128 bits.
    let (w, f) = (s.width as u128, s.feed_forward as u128);
    let per_layer = 2 * w * w + 2 * w * (w / s.heads as u128 * s.kv_heads as u128) + 3 * w * f;
    let bits = match options.dtype {
        TensorType::F32 => 32,
        TensorType::F16 => 16,
        TensorType::I2S | TensorType::Tq1_0 | TensorType::Tq2_0 => 2,
    };
    let bytes = s.layers as u128 * per_layer * bits / 8 + 2 * w * s.vocab as u128;
    if bytes > MOST_BYTES {
        return Err(Error::Shape(format!(
            "a model of about {bytes} bytes; it is made in memory, accepted: up to {MOST_BYTES}"
        )));
    }
    if !(0.0..=1.0).contains(&options.zeros) {
        return Err(Error::Numeric(format!(
            "share of zeros {}; accepted: 0 to 1",
            options.zeros
        )));
    }
    if !super::model::ARCHITECTURES.contains(&options.architecture.as_str()) {
        return Err(Error::Unsupported(format!(
            "architecture `{}`; accepted: {}",
            options.architecture,
            super::model::ARCHITECTURES.join(", ")
        )));
    }
    Ok(())
}

fn put_norm(
    writer: &mut GgufWriter,
    given: &mut Given,
    rng: &mut impl Rng,
    name: &str,
    length: usize,
) -> Result<()> {
    let values = match take_given(given, name, &[length as u64])? {
        Some(values) => values,
        None => (0..length)
            .map(|_| 0.8 + 0.4 * rng.random::<f32>())
            .collect(),
    };
    let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    writer.tensor(name, &[length as u64], TensorType::F32, data)?;
    Ok(())
}

/// `general.file_type` of a container, as bitnet.cpp and llama.cpp number it.
pub fn file_type(dtype: TensorType) -> u32 {
    match dtype {
        TensorType::F32 => 0,
        TensorType::F16 => 1,
        TensorType::Tq1_0 => 36,
        TensorType::Tq2_0 => 37,
        TensorType::I2S => 40,
    }
}

fn put_keys(writer: &mut GgufWriter, options: &MakeOptions) {
    let shape = options.shape;
    let arch = &options.architecture;
    writer.key("general.architecture", Value::String(arch.clone()));
    writer.key(
        "general.name",
        Value::String(format!("synthetic seed {}", options.seed)),
    );
    for (name, value) in [
        ("vocab_size", shape.vocab),
        ("context_length", options.context),
        ("embedding_length", shape.width),
        ("block_count", shape.layers),
        ("feed_forward_length", shape.feed_forward),
        ("rope.dimension_count", shape.width / shape.heads),
        ("attention.head_count", shape.heads),
        ("attention.head_count_kv", shape.kv_heads),
    ] {
        writer.key(format!("{arch}.{name}"), Value::U32(value as u32));
    }
    writer.key(
        format!("{arch}.attention.layer_norm_rms_epsilon"),
        Value::F32(1e-5),
    );
    writer.key(format!("{arch}.rope.freq_base"), Value::F32(500_000.0));
    writer.key("general.file_type", Value::U32(file_type(options.dtype)));
    put_tokenizer(writer, shape.vocab);
    writer.key("general.quantization_version", Value::U32(2));
}

/// A byte-level vocabulary: 256 bytes, three control tokens, then merges of letter pairs, then
/// unused tokens.
fn put_tokenizer(writer: &mut GgufWriter, vocab: usize) {
    let alphabet = byte_alphabet();
    let mut tokens: Vec<String> = alphabet.iter().map(char::to_string).collect();
    let mut types = vec![1i32; 256];
    for control in ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"] {
        tokens.push(control.into());
        types.push(3);
    }
    let space = alphabet[usize::from(b' ')].to_string();
    let letters: Vec<String> = ('a'..='z').map(String::from).collect();
    let firsts = std::iter::once(space).chain(letters.iter().cloned());
    let mut merges = Vec::new();
    for first in firsts {
        for second in &letters {
            if tokens.len() < vocab {
                merges.push(format!("{first} {second}"));
                tokens.push(format!("{first}{second}"));
                types.push(1);
            }
        }
    }
    while tokens.len() < vocab {
        tokens.push(format!("<|unused_{}|>", tokens.len()));
        types.push(5);
    }
    writer.key("tokenizer.ggml.model", Value::String("gpt2".into()));
    writer.key("tokenizer.ggml.pre", Value::String("llama-bpe".into()));
    writer.key("tokenizer.ggml.tokens", Value::strings(tokens));
    let types = types.into_iter().map(Value::I32).collect();
    writer.key("tokenizer.ggml.token_type", Value::Array(5, types));
    writer.key("tokenizer.ggml.merges", Value::strings(merges));
    writer.key("tokenizer.ggml.bos_token_id", Value::U32(256));
    writer.key("tokenizer.ggml.eos_token_id", Value::U32(257));
    writer.key("tokenizer.ggml.add_bos_token", Value::Bool(true));
}
