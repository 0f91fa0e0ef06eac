//! Everything that training changes: weights and moments in their storage formats, and the schedule.

use super::error::{ReferenceError, Result};
use super::tensors::TensorId;
use crate::config::model::{LayerNormOptimizer, ModelConfig, MomentFormat, WeightFormat};
use crate::num::formats;
use crate::num::schedule::Schedule;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Standard deviation of the initial embedding.
const EMBEDDING_SIGMA: f64 = 0.05;

/// Adam's moments of one tensor.
///
/// FP32 and BF16 moments are held as the FP32 values that their stored bits decode to.
#[derive(Clone, Debug, PartialEq)]
pub enum Moments {
    /// Plain gradient descent keeps none.
    None,
    Fp32 {
        m: Vec<f32>,
        v: Vec<f32>,
    },
    Bf16 {
        m: Vec<f32>,
        v: Vec<f32>,
    },
}

/// One tensor with its moments.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorState {
    pub id: TensorId,
    /// Rows and columns.
    pub shape: [usize; 2],
    pub format: WeightFormat,
    /// FP32 values that the stored weights decode to, row-major.
    pub w: Vec<f32>,
    pub moments: Moments,
}

/// The whole training state. Two equal states continue equally.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub tensors: Vec<TensorState>,
    pub schedule: Schedule,
    /// Seed of stochastic rounding.
    pub seed: u32,
}

impl State {
    /// Fresh weights: Xavier normal for the matrices (per head for Q, K, V and the output projection),
    /// `sigma = 0.05` for the embedding, gain 1 and bias 0; zero moments.
    pub fn init(model: &ModelConfig) -> Self {
        let mut rng = Pcg64::seed_from_u64(u64::from(model.seed));
        let (d, f, dh) = (model.embed_dim, model.ff_dim, model.head_dim());
        let tensors = TensorId::all(model)
            .into_iter()
            .map(|id| {
                let xavier = |a: usize, b: usize| (2.0 / (a + b) as f64).sqrt();
                let sigma = match id {
                    TensorId::Embedding => EMBEDDING_SIGMA,
                    TensorId::Wqkv(_) | TensorId::Wo(_) => xavier(d, dh),
                    TensorId::W1(_) | TensorId::W2(_) => xavier(d, f),
                    _ => 0.0,
                };
                let mut tensor = TensorState::zeroed(id, model);
                let constant = match id {
                    TensorId::Ln1Gamma(_) | TensorId::Ln2Gamma(_) => Some(1.0),
                    TensorId::Ln1Beta(_) | TensorId::Ln2Beta(_) => Some(0.0),
                    _ => None,
                };
                for i in 0..tensor.w.len() {
                    let x = constant.unwrap_or_else(|| (normal(&mut rng) * sigma) as f32);
                    tensor.set_weight(i, x);
                }
                tensor
            })
            .collect();
        Self {
            tensors,
            schedule: Schedule::default(),
            seed: model.seed,
        }
    }

    pub fn tensor(&self, id: TensorId) -> &TensorState {
        &self.tensors[id.index()]
    }

    pub fn tensor_mut(&mut self, id: TensorId) -> &mut TensorState {
        &mut self.tensors[id.index()]
    }

    /// Checks that the state has the shapes and formats of `model` and finite contents.
    pub fn check(&self, model: &ModelConfig) -> Result<()> {
        let ids = TensorId::all(model);
        if ids.len() != self.tensors.len() {
            return Err(ReferenceError::Invalid(format!(
                "the state has {} tensors; the model has {}",
                self.tensors.len(),
                ids.len()
            )));
        }
        for (tensor, id) in self.tensors.iter().zip(ids) {
            let problem = |problem: String| ReferenceError::State {
                tensor: id.name(),
                problem,
            };
            if tensor.id != id || tensor.shape != id.shape(model) {
                return Err(problem(format!(
                    "shape {:?}; the model has {:?}",
                    tensor.shape,
                    id.shape(model)
                )));
            }
            let zero = TensorState::zeroed(id, model);
            if tensor.format != zero.format
                || std::mem::discriminant(&tensor.moments) != std::mem::discriminant(&zero.moments)
            {
                return Err(problem("stored in a format other than the model's".into()));
            }
            if let Some(i) = tensor.w.iter().position(|x| !x.is_finite()) {
                return Err(problem(format!("element {i} is {}", tensor.w[i])));
            }
        }
        Ok(())
    }
}

impl TensorState {
    /// All weights and moments zero, in the model's formats.
    pub fn zeroed(id: TensorId, model: &ModelConfig) -> Self {
        let shape = id.shape(model);
        let n = shape[0] * shape[1];
        let zeros = || vec![0f32; n];
        let (format, moments) = if id.matrix().is_some() {
            let moments = match model.moment_format {
                MomentFormat::Fp32 => Moments::Fp32 {
                    m: zeros(),
                    v: zeros(),
                },
                MomentFormat::Bf16 | MomentFormat::Int8 => Moments::Bf16 {
                    m: zeros(),
                    v: zeros(),
                },
            };
            (model.weight_format, moments)
        } else {
            let moments = match model.layernorm_optimizer {
                LayerNormOptimizer::Adam => Moments::Fp32 {
                    m: zeros(),
                    v: zeros(),
                },
                LayerNormOptimizer::Sgd => Moments::None,
            };
            (WeightFormat::Fp32, moments)
        };
        Self {
            id,
            shape,
            format,
            w: zeros(),
            moments,
        }
    }

    /// Stores `x` rounded to nearest in the tensor's format.
    pub fn set_weight(&mut self, i: usize, x: f32) {
        let x = crate::num::fp32::ftz(x);
        let bits = self
            .format
            .encode(crate::config::model::Rounding::Nearest, x, 0);
        self.w[i] = self.format.decode(bits);
    }

    /// Stores FP32 moments of element `i` (rounded to nearest where narrower).
    pub fn set_moments(&mut self, i: usize, m: f32, v: f32) {
        let (m, v) = (crate::num::fp32::ftz(m), crate::num::fp32::ftz(v));
        match &mut self.moments {
            Moments::None => {}
            Moments::Fp32 { m: ms, v: vs } => {
                ms[i] = m;
                vs[i] = v;
            }
            Moments::Bf16 { m: ms, v: vs } => {
                ms[i] = formats::bf16_decode(formats::bf16_nearest(m));
                vs[i] = formats::bf16_decode(formats::bf16_nearest(v));
            }
        }
    }

    /// Stored bits of weight `i`, low aligned in the format's width.
    pub fn weight_bits(&self, i: usize) -> u32 {
        self.w[i].to_bits() >> (32 - self.format.bits())
    }

    /// Replaces weight `i` by stored bits.
    pub fn set_weight_bits(&mut self, i: usize, bits: u32) {
        self.w[i] = self.format.decode(bits);
    }

    /// Stored bits of both moments of element `i` (zero where there are none).
    pub fn moment_bits(&self, i: usize) -> [u32; 2] {
        match &self.moments {
            Moments::None => [0, 0],
            Moments::Fp32 { m, v } => [m[i].to_bits(), v[i].to_bits()],
            Moments::Bf16 { m, v } => [m[i].to_bits() >> 16, v[i].to_bits() >> 16],
        }
    }

    /// Replaces both moments of element `i` by stored bits.
    pub fn set_moment_bits(&mut self, i: usize, bits: [u32; 2]) {
        match &mut self.moments {
            Moments::None => {}
            Moments::Fp32 { m, v } => {
                m[i] = f32::from_bits(bits[0]);
                v[i] = f32::from_bits(bits[1]);
            }
            Moments::Bf16 { m, v } => {
                m[i] = formats::bf16_decode(bits[0]);
                v[i] = formats::bf16_decode(bits[1]);
            }
        }
    }
}

/// A standard normal number (Box-Muller; portable functions, so the same on every host).
fn normal(rng: &mut Pcg64) -> f64 {
    let u: f64 = 1.0 - rng.random::<f64>();
    let angle = 2.0 * std::f64::consts::PI * rng.random::<f64>();
    (-2.0 * libm::log(u)).sqrt() * libm::cos(angle)
}
