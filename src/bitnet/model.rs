//! A decoder's sizes and weights, read from a GGUF file.

use super::gguf::{Bytes, GgufFile, TensorInfo, TensorType};
use super::kernels::{dot_f16, dot_f32};
use super::shapes::Shape;
use super::ternary::{I2sLayout, Scales, TernaryMatrix, check_scale};
use super::{Error, Result};

/// Architectures that are this decoder.
pub const ARCHITECTURES: [&str; 3] = ["bitnet-b1.58", "bitnet-25", "bitnet"];

/// Sizes and constants of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Value of `general.architecture`.
    pub architecture: String,
    /// Layer sizes.
    pub shape: Shape,
    /// Longest sequence the model was made for.
    pub context: usize,
    /// Added to the mean square in every norm.
    pub norm_epsilon: f32,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
}

impl ModelConfig {
    /// Reads the keys `<architecture>.*`.
    pub fn from_gguf(file: &GgufFile) -> Result<Self> {
        let architecture = file
            .get("general.architecture")
            .and_then(|v| v.as_str())
            .ok_or_else(|| Error::Format("key `general.architecture` is missing".into()))?;
        if !ARCHITECTURES.contains(&architecture) {
            return Err(Error::Unsupported(format!(
                "architecture `{architecture}`; accepted: {}",
                ARCHITECTURES.join(", ")
            )));
        }
        let number = |key: &str| -> Result<usize> {
            let name = format!("{architecture}.{key}");
            file.get(&name)
                .and_then(|v| v.as_u64())
                .filter(|&v| (1..=1 << 24).contains(&v))
                .map(|v| v as usize)
                .ok_or_else(|| {
                    Error::Format(format!(
                        "key `{name}` is missing or not a whole number from 1 to 16777216"
                    ))
                })
        };
        let float = |key: &str, default: Option<f32>| -> Result<f32> {
            let name = format!("{architecture}.{key}");
            match (file.get(&name), default) {
                (None, Some(default)) => Ok(default),
                (value, _) => value
                    .and_then(|v| v.as_f32())
                    .filter(|v| v.is_finite() && *v > 0.0)
                    .ok_or_else(|| {
                        Error::Format(format!("key `{name}` is missing or not a positive number"))
                    }),
            }
        };
        let heads = number("attention.head_count")?;
        let width = number("embedding_length")?;
        let kv_heads = number("attention.head_count_kv").unwrap_or(heads);
        let embedding = require(file, "token_embd.weight")?;
        let shape = Shape {
            width,
            feed_forward: number("feed_forward_length")?,
            layers: number("block_count")?,
            heads,
            kv_heads,
            vocab: embedding.matrix().0 as usize,
        };
        if width % heads != 0 || heads % kv_heads != 0 || width / heads % 2 != 0 {
            return Err(Error::Shape(format!(
                "width {width} with {heads} heads and {kv_heads} key/value heads; needed: heads \
                 divide the width into even parts, key/value heads divide heads"
            )));
        }
        if let Ok(rotary) = number("rope.dimension_count")
            && rotary != width / heads
        {
            return Err(Error::Unsupported(format!(
                "rotary dimension {rotary}; accepted: the whole head, {}",
                width / heads
            )));
        }
        Ok(Self {
            architecture: architecture.to_owned(),
            shape,
            context: number("context_length")?,
            norm_epsilon: float("attention.layer_norm_rms_epsilon", None)?,
            rope_base: float("rope.freq_base", Some(10_000.0))?,
        })
    }

    /// Dimension of a head.
    pub fn head_dim(&self) -> usize {
        self.shape.width / self.shape.heads
    }
}

/// Weights of one layer; field names follow the tensors `blk.N.*`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Layer {
    pub attn_norm: Vec<f32>,
    pub attn_q: TernaryMatrix,
    pub attn_k: TernaryMatrix,
    pub attn_v: TernaryMatrix,
    pub attn_sub_norm: Vec<f32>,
    pub attn_output: TernaryMatrix,
    pub ffn_norm: Vec<f32>,
    pub ffn_gate: TernaryMatrix,
    pub ffn_up: TernaryMatrix,
    pub ffn_sub_norm: Vec<f32>,
    pub ffn_down: TernaryMatrix,
}

impl Layer {
    /// The projection with this short name (see [`Shape::projections`]).
    pub fn projection(&self, name: &str) -> Option<&TernaryMatrix> {
        Some(match name {
            "attn_q" => &self.attn_q,
            "attn_k" => &self.attn_k,
            "attn_v" => &self.attn_v,
            "attn_output" => &self.attn_output,
            "ffn_gate" => &self.ffn_gate,
            "ffn_up" => &self.ffn_up,
            "ffn_down" => &self.ffn_down,
            _ => return None,
        })
    }
}

/// A float matrix used where it lies in the file.
#[derive(Debug)]
pub struct FloatMatrix {
    rows: usize,
    cols: usize,
    half: bool,
    data: Bytes,
}

impl FloatMatrix {
    fn from_gguf(file: &GgufFile, tensor: &TensorInfo) -> Result<Self> {
        if tensor.dtype.is_ternary() {
            return Err(Error::Unsupported(format!(
                "tensor `{}` is {}; accepted here: F16, F32",
                tensor.name,
                tensor.dtype.name()
            )));
        }
        let (rows, cols) = tensor.matrix();
        Ok(Self {
            rows: rows as usize,
            cols: cols as usize,
            half: tensor.dtype == TensorType::F16,
            data: file.data(tensor)?,
        })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Dot product of row `row` with `x`, in the order of [`dot_f32`].
    pub fn dot_row(&self, row: usize, x: &[f32]) -> f32 {
        if self.half {
            let bytes = 2 * self.cols;
            return dot_f16(x, &self.data[row * bytes..(row + 1) * bytes]);
        }
        let mut values = vec![0.0; self.cols];
        self.read_row(row, &mut values);
        dot_f32(x, &values)
    }

    /// Bytes of the matrix.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Writes row `row` as single precision.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        use half::slice::HalfFloatSliceExt;
        let size = if self.half { 2 } else { 4 };
        let bytes = &self.data[row * self.cols * size..(row + 1) * self.cols * size];
        if !self.half {
            for (out, raw) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                *out = f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
            }
            return;
        }
        // Converted in pieces so that the vector conversion of `half` applies.
        for (out, raw) in out.chunks_mut(64).zip(bytes.chunks(128)) {
            let mut piece = [half::f16::ZERO; 64];
            for (value, raw) in piece.iter_mut().zip(raw.chunks_exact(2)) {
                *value = half::f16::from_le_bytes([raw[0], raw[1]]);
            }
            piece[..out.len()].convert_to_f32_slice(out);
        }
    }
}

/// A model ready to decode.
#[derive(Debug)]
pub struct Model {
    /// Sizes and constants.
    pub config: ModelConfig,
    /// Token embedding, `vocab x width`.
    pub embedding: FloatMatrix,
    /// Output matrix when it is not tied to the embedding.
    pub output: Option<FloatMatrix>,
    /// Norm before the output matrix.
    pub output_norm: Vec<f32>,
    /// Layers.
    pub layers: Vec<Layer>,
}

impl Model {
    /// Bytes of weights that a token reads: packed trits of every projection, and the output
    /// matrix.
    pub fn weight_bytes_per_token(&self) -> u64 {
        let ternary: usize = self
            .layers
            .iter()
            .flat_map(|l| {
                [
                    &l.attn_q,
                    &l.attn_k,
                    &l.attn_v,
                    &l.attn_output,
                    &l.ffn_gate,
                    &l.ffn_up,
                    &l.ffn_down,
                ]
            })
            .map(|m| m.rows() * m.row_bytes())
            .sum();
        (ternary + self.output.as_ref().unwrap_or(&self.embedding).bytes()) as u64
    }

    /// Reads every weight; ternary tensors are checked code by code.
    pub fn from_gguf(file: &GgufFile, layout: I2sLayout) -> Result<Self> {
        let config = ModelConfig::from_gguf(file)?;
        let shape = config.shape;
        let embedding = require(file, "token_embd.weight")?;
        expect_dims(embedding, shape.vocab, shape.width)?;
        let output = match file.tensor("output.weight") {
            None => None,
            Some(tensor) => {
                expect_dims(tensor, shape.vocab, shape.width)?;
                Some(FloatMatrix::from_gguf(file, tensor)?)
            }
        };
        // The count is checked by the tensors themselves: a layer that is not there is an error.
        let mut layers = Vec::new();
        for index in 0..shape.layers {
            layers.push(read_layer(file, &shape, index, layout)?);
        }
        Ok(Self {
            embedding: FloatMatrix::from_gguf(file, embedding)?,
            output,
            output_norm: read_norm(file, "output_norm.weight", shape.width)?,
            layers,
            config,
        })
    }
}

fn read_layer(file: &GgufFile, shape: &Shape, index: usize, layout: I2sLayout) -> Result<Layer> {
    let norm = |name: &str, width| read_norm(file, &format!("blk.{index}.{name}.weight"), width);
    let projections = shape.projections();
    let ternary = |position: usize| -> Result<TernaryMatrix> {
        let p = projections[position];
        let base = format!("blk.{index}.{}", p.name);
        let tensor = require(file, &format!("{base}.weight"))?;
        expect_dims(tensor, p.rows, p.cols)?;
        let mut matrix = TernaryMatrix::from_gguf(file, tensor, layout)?;
        // Some converters store the weight scale beside a matrix of -1, 0, 1.
        if let Some(extra) = file.tensor(&format!("{base}.scale")) {
            if extra.elements() != 1 {
                return Err(Error::Shape(format!(
                    "tensor `{}` has dimensions {:?}; accepted: one element",
                    extra.name, extra.dims
                )));
            }
            let factor = float_values(file, extra)?[0];
            check_scale(factor, &extra.name)?;
            matrix.scales = match matrix.scales {
                Scales::Tensor(s) => Scales::Tensor(s * factor),
                Scales::PerRow(s) => Scales::PerRow(s.iter().map(|s| s * factor).collect()),
            };
            for row in 0..matrix.rows() {
                check_scale(matrix.scales.of(row), &extra.name)?;
            }
        }
        Ok(matrix)
    };
    Ok(Layer {
        attn_norm: norm("attn_norm", shape.width)?,
        attn_q: ternary(0)?,
        attn_k: ternary(1)?,
        attn_v: ternary(2)?,
        attn_sub_norm: norm("attn_sub_norm", shape.width)?,
        attn_output: ternary(3)?,
        ffn_norm: norm("ffn_norm", shape.width)?,
        ffn_gate: ternary(4)?,
        ffn_up: ternary(5)?,
        ffn_sub_norm: norm("ffn_sub_norm", shape.feed_forward)?,
        ffn_down: ternary(6)?,
    })
}

fn require<'a>(file: &'a GgufFile, name: &str) -> Result<&'a TensorInfo> {
    file.tensor(name)
        .ok_or_else(|| Error::Format(format!("tensor `{name}` is missing")))
}

fn expect_dims(tensor: &TensorInfo, rows: usize, cols: usize) -> Result<()> {
    if tensor.matrix() != (rows as u64, cols as u64) {
        return Err(Error::Shape(format!(
            "tensor `{}` has dimensions {:?}; the model's keys ask for [{cols}, {rows}]",
            tensor.name, tensor.dims
        )));
    }
    Ok(())
}

fn read_norm(file: &GgufFile, name: &str, width: usize) -> Result<Vec<f32>> {
    let tensor = require(file, name)?;
    expect_dims(tensor, 1, width)?;
    let values = float_values(file, tensor)?;
    match values.iter().position(|v| !v.is_finite()) {
        Some(at) => Err(Error::Data(format!(
            "tensor `{name}`: element {at} is {}",
            values[at]
        ))),
        None => Ok(values),
    }
}

/// All elements of an F32 or F16 tensor.
pub fn float_values(file: &GgufFile, tensor: &TensorInfo) -> Result<Vec<f32>> {
    let matrix = FloatMatrix::from_gguf(file, tensor)?;
    let mut out = vec![0.0; matrix.rows * matrix.cols];
    for (row, out) in out.chunks_exact_mut(matrix.cols).enumerate() {
        matrix.read_row(row, out);
    }
    Ok(out)
}
