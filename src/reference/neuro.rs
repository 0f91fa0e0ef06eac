//! The authors' `.neuro` checkpoints: a length, a JSON header, then FP32 tensors in header order.
//!
//! Three layouts exist, each with or without `appVersion` in its header: without optimiser state
//! (GPU runs), with empty embedding moments and step counters (CPU BF16W runs), and with all moments
//! (CPU FP32 runs). A file that was read is written back byte for byte.

use super::error::{ReferenceError, Result};
use super::neuro_header::header_text;
use super::state::State;
use super::tensors::TensorId;
use crate::config::model::*;
use crate::files::{MOST_DATA, read_bytes};
use crate::num::schedule::{Schedule, power_after};
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;

/// Longest header that is read. A header describes some dozens of bytes per tensor.
const MAX_HEADER: usize = 64 << 20;
pub(super) const VERSION: u64 = 1;

/// What a file holds beside weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeuroKind {
    /// Weights only.
    Gpu,
    /// Step counters and empty embedding moments.
    CpuBf16,
    /// Weights and all moments.
    CpuFp32,
}

/// The header's `config` object.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NeuroConfig {
    pub seq_len: usize,
    pub embed_dim: usize,
    pub num_heads: usize,
    pub ff_dim: usize,
    pub num_layers: usize,
    pub vocab_size: usize,
    pub global_step: u64,
    pub initial_lr: f64,
    pub current_lr: f64,
    #[serde(default)]
    pub lr_patience: u64,
    #[serde(default)]
    pub lr_schedule: String,
    #[serde(default)]
    pub warmup_steps: u64,
    #[serde(default)]
    pub total_steps: u64,
    pub app_version: Option<String>,
}

#[derive(Deserialize)]
struct Header {
    version: u64,
    config: NeuroConfig,
    tensors: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    shape: Vec<usize>,
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct NeuroTensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub data: Vec<f32>,
}

/// A whole file.
#[derive(Clone, Debug, PartialEq)]
pub struct NeuroFile {
    /// Header text as it stands in the file.
    pub header: Vec<u8>,
    pub config: NeuroConfig,
    pub tensors: Vec<NeuroTensor>,
}

fn invalid(problem: impl Into<String>) -> ReferenceError {
    ReferenceError::Invalid(problem.into())
}

impl NeuroFile {
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = read_bytes(path, MOST_DATA).map_err(|e| ReferenceError::read(path, e))?;
        Self::parse(&bytes).map_err(|e| ReferenceError::file(path, e))
    }

    /// Reads a file's bytes. Allocates no more than the bytes justify.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
            return Err(invalid("shorter than the four bytes of its header length"));
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > rest.len() || length > MAX_HEADER {
            return Err(invalid(format!(
                "a header of {length} bytes is announced; {} follow",
                rest.len()
            )));
        }
        let (text, mut data) = rest.split_at(length);
        let header: Header = serde_json::from_slice(text)
            .map_err(|e| invalid(format!("the header is not as expected: {e}")))?;
        if header.version != VERSION {
            return Err(invalid(format!(
                "format version {}; only {VERSION} is known",
                header.version
            )));
        }
        let mut tensors = Vec::new();
        for entry in header.tensors {
            let count = entry
                .shape
                .iter()
                .try_fold(1usize, |n, &s| n.checked_mul(s));
            let size = count.and_then(|n| n.checked_mul(4));
            let Some(size) = size.filter(|&s| s <= data.len()) else {
                return Err(invalid(format!(
                    "tensor {} of shape {:?} does not fit in the remaining {} bytes",
                    entry.name,
                    entry.shape,
                    data.len()
                )));
            };
            let (own, others) = data.split_at(size);
            data = others;
            let values = own
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect();
            tensors.push(NeuroTensor {
                name: entry.name,
                shape: entry.shape,
                data: values,
            });
        }
        if !data.is_empty() {
            return Err(invalid(format!(
                "{} bytes follow the last tensor",
                data.len()
            )));
        }
        Ok(Self {
            header: text.to_vec(),
            config: header.config,
            tensors,
        })
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = (self.header.len() as u32).to_le_bytes().to_vec();
        out.extend(&self.header);
        for tensor in &self.tensors {
            for x in &tensor.data {
                out.extend(x.to_le_bytes());
            }
        }
        out
    }

    /// A new file with a header in the authors' layout.
    pub fn new(config: NeuroConfig, tensors: Vec<NeuroTensor>) -> Self {
        Self {
            header: header_text(&config, &tensors).into_bytes(),
            config,
            tensors,
        }
    }

    pub fn kind(&self) -> NeuroKind {
        let has = |name: &str| self.tensors.iter().any(|t| t.name == name);
        match (has("embedding.adam_m"), has("layers.0.Wff1.adam_m")) {
            (_, true) => NeuroKind::CpuFp32,
            (true, false) => NeuroKind::CpuBf16,
            (false, false) => NeuroKind::Gpu,
        }
    }

    /// The model of a file. The header does not say which GeLU was used (erf is assumed), which
    /// Adam constants (the paper's) or which formats (FP32, as stored).
    pub fn model(&self) -> Result<ModelConfig> {
        let c = &self.config;
        let small = |x: u64, what: &str| {
            u32::try_from(x).map_err(|_| invalid(format!("{what} of {x} is above 32 bits")))
        };
        let sizes = [
            c.seq_len,
            c.embed_dim,
            c.num_heads,
            c.ff_dim,
            c.num_layers,
            c.vocab_size,
        ];
        if sizes.contains(&0)
            || sizes.iter().any(|&s| s > 1 << 24)
            || !c.embed_dim.is_multiple_of(c.num_heads)
        {
            return Err(invalid(format!(
                "a model of V {}, T {}, d {}, H {}, f {}, L {} cannot be",
                c.vocab_size, c.seq_len, c.embed_dim, c.num_heads, c.ff_dim, c.num_layers
            )));
        }
        let total = small(c.total_steps.max(c.global_step), "a run")?;
        Ok(ModelConfig {
            name: "neuro".into(),
            vocab: c.vocab_size,
            seq_len: c.seq_len,
            embed_dim: c.embed_dim,
            heads: c.num_heads,
            ff_dim: c.ff_dim,
            layers: c.num_layers,
            gelu: Gelu::Erf,
            head_combine: HeadCombine::Mean,
            weight_format: WeightFormat::Fp32,
            moment_format: MomentFormat::Fp32,
            rounding: Rounding::Nearest,
            compute: Compute::Block18,
            layernorm_optimizer: match self.kind() {
                NeuroKind::Gpu => LayerNormOptimizer::Adam,
                NeuroKind::CpuBf16 | NeuroKind::CpuFp32 => LayerNormOptimizer::Sgd,
            },
            adam_beta1: 0.9,
            adam_beta2: 0.999,
            adam_eps: 1e-8,
            lr_peak: if c.initial_lr > 0.0 && c.initial_lr < 1.0 {
                c.initial_lr as f32
            } else {
                0.003
            },
            lr_floor: 0.01,
            warmup_steps: small(c.warmup_steps, "a warm-up")?.max(if c.total_steps == 0 {
                200
            } else {
                0
            }),
            total_steps: total.max(1),
            seed: 42,
        })
    }

    /// The state of a file, stored in the formats of `model`; moments that the file lacks are zero.
    pub fn state(&self, model: &ModelConfig) -> Result<State> {
        // A model many times larger than the file must not be allocated before its tensors are missed.
        let stored: usize = self.tensors.iter().map(|t| t.data.len()).sum();
        if model.parameters() > stored {
            return Err(invalid(format!(
                "the file holds {stored} numbers; the model has {} parameters",
                model.parameters()
            )));
        }
        let by_name: HashMap<&str, &NeuroTensor> =
            self.tensors.iter().map(|t| (t.name.as_str(), t)).collect();
        let find = |name: &str, shape: &[usize]| -> Result<&[f32]> {
            let tensor = by_name
                .get(name)
                .ok_or_else(|| invalid(format!("no tensor {name}")))?;
            if tensor.shape != shape {
                return Err(invalid(format!(
                    "tensor {name} is {:?}; the model has {shape:?}",
                    tensor.shape
                )));
            }
            if let Some(i) = tensor.data.iter().position(|x| !x.is_finite()) {
                return Err(invalid(format!(
                    "element {i} of tensor {name} is {}",
                    tensor.data[i]
                )));
            }
            Ok(&tensor.data)
        };
        let mut state = State::init(model);
        let with_moments = self.kind() == NeuroKind::CpuFp32;
        for id in TensorId::all(model) {
            let size = id.shape(model).iter().product();
            let mut whole = [vec![0f32; size], vec![0f32; size]];
            for part in parts(model, id) {
                let weights = find(&part.name, &part.shape)?;
                let moments = if with_moments && id.matrix().is_some() {
                    let m = find(&part.moment("m"), &part.shape)?;
                    Some((m, find(&part.moment("v"), &part.shape)?))
                } else {
                    None
                };
                let tensor = state.tensor_mut(id);
                for (i, &w) in weights.iter().enumerate() {
                    let at = part.place(i);
                    tensor.set_weight(at, w);
                    if let Some((m, v)) = moments {
                        whole[0][at] = m[i];
                        whole[1][at] = v[i];
                    }
                }
            }
            state.tensor_mut(id).set_moments(&whole[0], &whole[1]);
        }
        let steps = u32::try_from(self.config.global_step).map_err(|_| {
            invalid(format!(
                "{} steps are above 32 bits",
                self.config.global_step
            ))
        })?;
        state.schedule = Schedule {
            step: steps,
            p1: power_after(model.adam_beta1, steps),
            p2: power_after(model.adam_beta2, steps),
        };
        Ok(state)
    }

    /// A file of a given kind from a state; see [`NeuroFile::cannot_hold`] for what is lost.
    pub fn from_state(
        model: &ModelConfig,
        state: &State,
        kind: NeuroKind,
        app_version: Option<String>,
    ) -> Self {
        let mut tensors = Vec::new();
        let mut put = |name: String, shape: Vec<usize>, data: Vec<f32>| {
            tensors.push(NeuroTensor { name, shape, data });
        };
        let cpu = kind != NeuroKind::Gpu;
        let step = state.schedule.step as f32;
        let gather = |part: &Part, x: &[f32]| -> Vec<f32> {
            (0..part.len()).map(|i| x[part.place(i)]).collect()
        };
        let values = |part: &Part| gather(part, &state.tensor(part.id).w);
        let moments: Vec<[Vec<f32>; 2]> = state.tensors.iter().map(|t| t.moment_values()).collect();
        let moment = |part: &Part, second: bool| {
            gather(part, &moments[part.id.index()][usize::from(second)])
        };
        let mut embedding = parts(model, TensorId::Embedding);
        let embedding = embedding.remove(0);
        put(
            embedding.name.clone(),
            embedding.shape.clone(),
            values(&embedding),
        );
        if cpu {
            for (suffix, second) in [("m", false), ("v", true)] {
                let data = match kind {
                    NeuroKind::CpuFp32 => moment(&embedding, second),
                    _ => vec![0.0; embedding.len()],
                };
                put(embedding.moment(suffix), embedding.shape.clone(), data);
            }
            put("embedding.adam_step".into(), vec![1], vec![step]);
        }
        for l in 0..model.layers {
            for id in [TensorId::Ln1Gamma(l), TensorId::Ln1Beta(l)] {
                let part = &parts(model, id)[0];
                put(part.name.clone(), part.shape.clone(), values(part));
            }
            let qkv = parts(model, TensorId::Wqkv(l));
            let wo = parts(model, TensorId::Wo(l));
            for h in 0..model.heads {
                let own = [
                    &qkv[h],
                    &qkv[model.heads + h],
                    &qkv[2 * model.heads + h],
                    &wo[h],
                ];
                for part in own {
                    put(part.name.clone(), part.shape.clone(), values(part));
                }
                if kind == NeuroKind::CpuFp32 {
                    for part in own {
                        put(part.moment("m"), part.shape.clone(), moment(part, false));
                        put(part.moment("v"), part.shape.clone(), moment(part, true));
                    }
                }
                if cpu {
                    put(
                        format!("layers.{l}.heads.{h}.adam_step"),
                        vec![1],
                        vec![0.0],
                    );
                }
            }
            let list = [
                TensorId::W1(l),
                TensorId::W2(l),
                TensorId::Ln2Gamma(l),
                TensorId::Ln2Beta(l),
            ];
            let list: Vec<Part> = list
                .into_iter()
                .map(|id| parts(model, id).remove(0))
                .collect();
            for part in &list {
                put(part.name.clone(), part.shape.clone(), values(part));
            }
            if kind == NeuroKind::CpuFp32 {
                for part in &list[..2] {
                    put(part.moment("m"), part.shape.clone(), moment(part, false));
                    put(part.moment("v"), part.shape.clone(), moment(part, true));
                }
            }
            if cpu {
                put(format!("layers.{l}.ff_adam_step"), vec![1], vec![step]);
            }
        }
        let wide = |x: f32| x.to_string().parse::<f64>().unwrap_or(f64::from(x));
        let lr = crate::num::schedule::learning_rate(
            &crate::num::constants::Constants::new(model),
            state.schedule.step.max(1),
        );
        let config = NeuroConfig {
            seq_len: model.seq_len,
            embed_dim: model.embed_dim,
            num_heads: model.heads,
            ff_dim: model.ff_dim,
            num_layers: model.layers,
            vocab_size: model.vocab,
            global_step: u64::from(state.schedule.step),
            initial_lr: if cpu { wide(model.lr_peak) } else { 0.0 },
            current_lr: if cpu { wide(lr) } else { 0.0 },
            lr_patience: 0,
            lr_schedule: if cpu { "linear" } else { "constant" }.into(),
            warmup_steps: if cpu {
                u64::from(model.warmup_steps)
            } else {
                0
            },
            total_steps: if cpu { u64::from(model.total_steps) } else { 0 },
            app_version,
        };
        Self::new(config, tensors)
    }

    /// What a `.neuro` file of this kind loses of a state.
    pub fn cannot_hold(model: &ModelConfig, kind: NeuroKind) -> Vec<String> {
        let mut lost = vec![
            "rounding seed, data order and corpus hash".to_string(),
            "the GeLU form, Adam's constants and the schedule's floor".to_string(),
        ];
        if model.weight_format != WeightFormat::Fp32 {
            lost.push("the weights' width: they are written as FP32 (the values are kept)".into());
        }
        if kind != NeuroKind::CpuFp32 {
            lost.push("any moments".into());
        } else if model.moment_format != MomentFormat::Fp32 {
            lost.push("the moments' width: they are written as FP32 (the values are kept)".into());
        }
        if kind == NeuroKind::CpuFp32 && model.layernorm_optimizer == LayerNormOptimizer::Adam {
            lost.push("moments of LayerNorm's gain and bias".into());
        }
        if model.head_combine == HeadCombine::Sum {
            lost.push("that heads are summed (the format implies their mean)".into());
        }
        lost
    }
}

/// A tensor of the file as a rectangle of one of the trainer's tensors.
struct Part {
    id: TensorId,
    name: String,
    shape: Vec<usize>,
    first_row: usize,
    first_column: usize,
    columns: usize,
    /// Columns of the trainer's tensor.
    stride: usize,
}

impl Part {
    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Row-major index in the trainer's tensor of element `i` of this part.
    fn place(&self, i: usize) -> usize {
        (self.first_row + i / self.columns) * self.stride + self.first_column + i % self.columns
    }

    fn moment(&self, which: &str) -> String {
        if self.id == TensorId::Embedding {
            format!("embedding.adam_{which}")
        } else {
            format!("{}.adam_{which}", self.name)
        }
    }
}

/// The file's tensors that make up one of the trainer's.
fn parts(model: &ModelConfig, id: TensorId) -> Vec<Part> {
    let (d, heads, dh) = (model.embed_dim, model.heads, model.head_dim());
    let [rows, columns] = id.shape(model);
    let whole = |name: String, shape: Vec<usize>| {
        vec![Part {
            id,
            name,
            shape,
            first_row: 0,
            first_column: 0,
            columns,
            stride: columns,
        }]
    };
    match id {
        TensorId::Embedding => whole("embedding.weights".into(), vec![rows, columns]),
        TensorId::W1(l) => whole(format!("layers.{l}.Wff1"), vec![rows, columns]),
        TensorId::W2(l) => whole(format!("layers.{l}.Wff2"), vec![rows, columns]),
        TensorId::Ln1Gamma(l) => whole(format!("layers.{l}.ln1.gamma"), vec![columns]),
        TensorId::Ln1Beta(l) => whole(format!("layers.{l}.ln1.beta"), vec![columns]),
        TensorId::Ln2Gamma(l) => whole(format!("layers.{l}.ln2.gamma"), vec![columns]),
        TensorId::Ln2Beta(l) => whole(format!("layers.{l}.ln2.beta"), vec![columns]),
        TensorId::Wqkv(l) => (0..3 * heads)
            .map(|i| Part {
                id,
                name: format!(
                    "layers.{l}.heads.{}.{}",
                    i % heads,
                    ["Wq", "Wk", "Wv"][i / heads]
                ),
                shape: vec![d, dh],
                first_row: 0,
                first_column: i / heads * d + i % heads * dh,
                columns: dh,
                stride: columns,
            })
            .collect(),
        TensorId::Wo(l) => (0..heads)
            .map(|h| Part {
                id,
                name: format!("layers.{l}.heads.{h}.Wo"),
                shape: vec![dh, d],
                first_row: h * dh,
                first_column: 0,
                columns,
                stride: columns,
            })
            .collect(),
    }
}

#[cfg(test)]
#[path = "neuro_tests.rs"]
mod tests;
