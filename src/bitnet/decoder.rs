//! The transformer: norms, rotary positions, grouped attention, squared-ReLU feed-forward, and
//! every `BitLinear` through a [`Backend`].

use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::backend::Backend;
use super::kernels::dot_f32;
use super::model::{FloatMatrix, Model};
use super::quant::{Activations, Epilogue, Quantiser, apply_epilogue, quantise};
use super::ternary::TernaryMatrix;
use super::{Error, Result};

/// Function between the two feed-forward projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum FeedForward {
    /// `relu(gate)^2 * up`, which BitNet b1.58 2B 4T was trained with.
    #[default]
    #[value(name = "relu2")]
    SquaredRelu,
    /// `silu(gate) * up`.
    #[value(name = "silu")]
    Silu,
}

/// Choices that are not in the file.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecoderOptions {
    /// Activation quantiser.
    pub quantiser: Quantiser,
    /// Order of the scalings.
    pub epilogue: Epilogue,
    /// Feed-forward function.
    pub feed_forward: FeedForward,
}

/// A sequence in progress: the model and its keys and values so far.
pub struct Decoder<'m> {
    model: &'m Model,
    options: DecoderOptions,
    /// Per layer, `positions x (kv_heads * head_dim)`.
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
    position: usize,
    head_time: Duration,
}

impl<'m> Decoder<'m> {
    /// An empty sequence.
    pub fn new(model: &'m Model, options: DecoderOptions) -> Self {
        let layers = model.layers.len();
        Self {
            model,
            options,
            keys: vec![Vec::new(); layers],
            values: vec![Vec::new(); layers],
            position: 0,
            head_time: Duration::ZERO,
        }
    }

    /// Time spent so far in the output matrix, which no backend takes.
    pub fn head_time(&self) -> Duration {
        self.head_time
    }

    /// Tokens consumed so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Appends `tokens` and returns the logits (one per vocabulary entry) after the last.
    pub fn advance(&mut self, tokens: &[u32], backend: &mut dyn Backend) -> Result<Vec<f32>> {
        let model = self.model;
        let config = &model.config;
        let width = config.shape.width;
        if tokens.is_empty() {
            return Err(Error::Shape("no tokens to decode".into()));
        }
        if self.position + tokens.len() > config.context {
            return Err(Error::Shape(format!(
                "{} tokens after position {} exceed the context of {}",
                tokens.len(),
                self.position,
                config.context
            )));
        }
        let mut x = vec![0f32; tokens.len() * width];
        for (&token, row) in tokens.iter().zip(x.chunks_exact_mut(width)) {
            if token as usize >= config.shape.vocab {
                return Err(Error::Shape(format!(
                    "token {token}; the vocabulary has {}",
                    config.shape.vocab
                )));
            }
            model.embedding.read_row(token as usize, row);
        }
        for layer in 0..model.layers.len() {
            self.attention(layer, &mut x, backend)?;
            self.feed_forward(layer, &mut x, backend)?;
        }
        self.position += tokens.len();
        let last = &x[x.len() - width..];
        let hidden = rms_norm(last, &model.output_norm, config.norm_epsilon);
        let started = Instant::now();
        let logits = logits(model.output.as_ref().unwrap_or(&model.embedding), &hidden);
        self.head_time += started.elapsed();
        Ok(logits)
    }

    fn attention(&mut self, index: usize, x: &mut [f32], backend: &mut dyn Backend) -> Result<()> {
        let layer = &self.model.layers[index];
        let config = &self.model.config;
        let head_dim = config.head_dim();
        let (width, kv_width) = (config.shape.width, config.shape.kv_heads * head_dim);
        let acts = self.normed(x, &layer.attn_norm)?;
        let mut q = self.bit_linear(&layer.attn_q, &acts, backend)?;
        let mut k = self.bit_linear(&layer.attn_k, &acts, backend)?;
        let v = self.bit_linear(&layer.attn_v, &acts, backend)?;
        for (offset, row) in q.chunks_exact_mut(width).enumerate() {
            rotate(row, head_dim, self.position + offset, config.rope_base);
        }
        for (offset, row) in k.chunks_exact_mut(kv_width).enumerate() {
            rotate(row, head_dim, self.position + offset, config.rope_base);
        }
        self.keys[index].extend_from_slice(&k);
        self.values[index].extend_from_slice(&v);
        let group = config.shape.heads / config.shape.kv_heads;
        let (keys, values) = (&self.keys[index], &self.values[index]);
        let position = self.position;
        let mut mixed = vec![0f32; x.len()];
        mixed
            .par_chunks_exact_mut(head_dim)
            .zip(q.par_chunks_exact(head_dim))
            .enumerate()
            .for_each(|(part, (out, q))| {
                let (token, head) = (part / config.shape.heads, part % config.shape.heads);
                let seen = position + token + 1;
                attend(
                    q,
                    keys,
                    values,
                    kv_width,
                    head / group * head_dim,
                    seen,
                    out,
                );
            });
        let acts = self.normed(&mixed, &layer.attn_sub_norm)?;
        let out = self.bit_linear(&layer.attn_output, &acts, backend)?;
        x.iter_mut().zip(out).for_each(|(x, y)| *x += y);
        Ok(())
    }

    fn feed_forward(
        &mut self,
        index: usize,
        x: &mut [f32],
        backend: &mut dyn Backend,
    ) -> Result<()> {
        let layer = &self.model.layers[index];
        let acts = self.normed(x, &layer.ffn_norm)?;
        let mut hidden = self.bit_linear(&layer.ffn_gate, &acts, backend)?;
        let up = self.bit_linear(&layer.ffn_up, &acts, backend)?;
        for (gate, up) in hidden.iter_mut().zip(up) {
            let g = *gate;
            *gate = up
                * match self.options.feed_forward {
                    FeedForward::SquaredRelu => g.max(0.0) * g.max(0.0),
                    FeedForward::Silu => g / (1.0 + (-g).exp()),
                };
        }
        let acts = self.normed(&hidden, &layer.ffn_sub_norm)?;
        let out = self.bit_linear(&layer.ffn_down, &acts, backend)?;
        x.iter_mut().zip(out).for_each(|(x, y)| *x += y);
        Ok(())
    }

    /// Norm, then int8 per token.
    fn normed(&self, rows: &[f32], weight: &[f32]) -> Result<Activations> {
        let epsilon = self.model.config.norm_epsilon;
        let normed: Vec<f32> = rows
            .chunks_exact(weight.len())
            .flat_map(|row| rms_norm(row, weight, epsilon))
            .collect();
        quantise(&normed, weight.len(), self.options.quantiser)
    }

    fn bit_linear(
        &self,
        weights: &TernaryMatrix,
        acts: &Activations,
        backend: &mut dyn Backend,
    ) -> Result<Vec<f32>> {
        let dots = backend.project(weights, acts)?;
        let epilogue = self.options.epilogue;
        Ok(dots
            .iter()
            .enumerate()
            .map(|(at, &dot)| {
                let (token, row) = (at / weights.rows(), at % weights.rows());
                apply_epilogue(dot, acts.scales[token], weights.scales.of(row), epilogue)
            })
            .collect())
    }
}

/// `x / sqrt(mean(x^2) + epsilon) * weight`; the sum of squares in double precision.
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    let sum: f64 = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
    let mean = (sum / x.len() as f64) as f32;
    let scale = 1.0 / (mean + epsilon).sqrt();
    x.iter().zip(weight).map(|(v, w)| v * scale * w).collect()
}

/// Rotary positions on every head of a row, pairs `(i, i + head_dim / 2)`.
fn rotate(row: &mut [f32], head_dim: usize, position: usize, base: f32) {
    let half = head_dim / 2;
    for pair in 0..half {
        let exponent = -2.0 * pair as f32 / head_dim as f32;
        let (sin, cos) = (position as f32 * base.powf(exponent)).sin_cos();
        for head in row.chunks_exact_mut(head_dim) {
            let (a, b) = (head[pair], head[pair + half]);
            head[pair] = a * cos - b * sin;
            head[pair + half] = a * sin + b * cos;
        }
    }
}

/// One head over `seen` positions; `offset` selects its key/value head within a row.
fn attend(
    q: &[f32],
    keys: &[f32],
    values: &[f32],
    stride: usize,
    offset: usize,
    seen: usize,
    out: &mut [f32],
) {
    let scale = 1.0 / (q.len() as f32).sqrt();
    let of = |rows: &'_ [f32], position: usize| {
        let start = position * stride + offset;
        start..(start + q.len()).min(rows.len())
    };
    let mut scores: Vec<f32> = (0..seen)
        .map(|p| dot_f32(q, &keys[of(keys, p)]) * scale)
        .collect();
    let largest = scores.iter().fold(f32::NEG_INFINITY, |m, &s| m.max(s));
    let mut sum = 0.0;
    for score in &mut scores {
        *score = (*score - largest).exp();
        sum += *score;
    }
    for (position, score) in scores.iter().enumerate() {
        let weight = score / sum;
        for (out, v) in out.iter_mut().zip(&values[of(values, position)]) {
            *out += weight * v;
        }
    }
}

fn logits(matrix: &FloatMatrix, hidden: &[f32]) -> Vec<f32> {
    let mut out = vec![0f32; matrix.rows()];
    out.par_chunks_mut(256)
        .enumerate()
        .for_each(|(chunk, out)| {
            for (offset, out) in out.iter_mut().enumerate() {
                *out = matrix.dot_row(chunk * 256 + offset, hidden);
            }
        });
    out
}
