//! Everything that training changes: weights and moments in their storage formats, and the schedule.

use super::error::{ReferenceError, Result};
use super::tensors::TensorId;
use crate::config::model::{LayerNormOptimizer, ModelConfig, MomentFormat, WeightFormat};
use crate::num::fp32::ftz;
use crate::num::schedule::Schedule;
use crate::num::{formats, moments8};
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
    /// Codes per element, scales per block (`docs/arithmetic.md` section 6).
    Int8 {
        m: Vec<i8>,
        v: Vec<u8>,
        m_scale: Vec<f32>,
        v_scale: Vec<f32>,
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
                MomentFormat::Bf16 => Moments::Bf16 {
                    m: zeros(),
                    v: zeros(),
                },
                MomentFormat::Int8 => {
                    let blocks = shape[0] * moments8::blocks_per_row(shape[1]);
                    Moments::Int8 {
                        m: vec![0; n],
                        v: vec![0; n],
                        m_scale: vec![0.0; blocks],
                        v_scale: vec![0.0; blocks],
                    }
                }
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
        let x = ftz(x);
        let bits = self
            .format
            .encode(crate::config::model::Rounding::Nearest, x, 0);
        self.w[i] = self.format.decode(bits);
    }

    /// Stores FP32 moments of the whole tensor, rounded to nearest where narrower.
    pub fn set_moments(&mut self, m: &[f32], v: &[f32]) {
        let columns = self.shape[1];
        match &mut self.moments {
            Moments::None => {}
            Moments::Fp32 { m: ms, v: vs } => {
                for (to, &x) in ms.iter_mut().zip(m).chain(vs.iter_mut().zip(v)) {
                    *to = ftz(x);
                }
            }
            Moments::Bf16 { m: ms, v: vs } => {
                for (to, &x) in ms.iter_mut().zip(m).chain(vs.iter_mut().zip(v)) {
                    *to = formats::bf16_decode(formats::bf16_nearest(ftz(x)));
                }
            }
            Moments::Int8 {
                m: ms,
                v: vs,
                m_scale,
                v_scale,
            } => {
                /// Half a step, which makes the stochastic code the nearest.
                const HALF: u32 = 0x8000;
                for (block, range) in moments8::blocks(m.len(), columns).enumerate() {
                    let largest = |x: &mut dyn Iterator<Item = f32>| x.fold(0f32, f32::max);
                    let (sm, im) = moments8::scale(
                        largest(&mut m[range.clone()].iter().map(|x| ftz(*x).abs())),
                        moments8::M_MAX,
                    );
                    let root = |x: f32| ftz(x).sqrt();
                    let (sv, iv) = moments8::scale(
                        largest(&mut v[range.clone()].iter().map(|x| root(*x))),
                        moments8::V_MAX,
                    );
                    m_scale[block] = sm;
                    v_scale[block] = sv;
                    for i in range {
                        ms[i] = moments8::encode_m(ftz(m[i]), im, HALF);
                        vs[i] = moments8::encode_v(root(v[i]), iv, HALF);
                    }
                }
            }
        }
    }

    /// FP32 values of both moments of the whole tensor (zero where there are none).
    pub fn moment_values(&self) -> [Vec<f32>; 2] {
        let zeros = || vec![0.0; self.w.len()];
        match &self.moments {
            Moments::None => [zeros(), zeros()],
            Moments::Fp32 { m, v } | Moments::Bf16 { m, v } => [m.clone(), v.clone()],
            Moments::Int8 {
                m,
                v,
                m_scale,
                v_scale,
            } => {
                let [mut ms, mut vs] = [zeros(), zeros()];
                for (block, range) in moments8::blocks(m.len(), self.shape[1]).enumerate() {
                    for i in range {
                        ms[i] = moments8::decode_m(m[i], m_scale[block]);
                        vs[i] = moments8::decode_v(v[i], v_scale[block]);
                    }
                }
                [ms, vs]
            }
        }
    }

    /// Stored scales of a block of 8-bit moments, as FP32 bits.
    pub fn scale_bits(&self, block: usize) -> Option<[u32; 2]> {
        match &self.moments {
            Moments::Int8 {
                m_scale, v_scale, ..
            } => Some([m_scale.get(block)?.to_bits(), v_scale.get(block)?.to_bits()]),
            _ => None,
        }
    }

    /// Replaces the stored scales of a block of 8-bit moments.
    pub fn set_scale_bits(&mut self, block: usize, bits: [u32; 2]) {
        if let Moments::Int8 {
            m_scale, v_scale, ..
        } = &mut self.moments
        {
            m_scale[block] = f32::from_bits(bits[0]);
            v_scale[block] = f32::from_bits(bits[1]);
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
            Moments::Int8 { m, v, .. } => [u32::from(m[i] as u8), u32::from(v[i])],
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
            Moments::Int8 { m, v, .. } => {
                m[i] = bits[0] as u8 as i8;
                v[i] = bits[1] as u8;
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
