//! The project's own checkpoints: safetensors with every tensor at its stored width, and all that
//! a run needs to continue to the same bit. The same state gives the same bytes.

use super::corpus::{LineEndings, Order};
use super::error::{ReferenceError, Result};
use super::neuro::NeuroFile;
use super::state::{Moments, State, TensorState};
use super::tensors::TensorId;
use crate::config::check_model;
use crate::config::model::{ModelConfig, WeightFormat};
use crate::files::{MOST_DATA, read_bytes, write_whole};
use crate::num::schedule::Schedule;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;

/// Key of this program's entry in the file's metadata.
const KEY: &str = "nfgen";
const VERSION: u32 = 1;

/// How a run draws its windows, and what it has counted since its last log line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    pub order: Order,
    pub batch: usize,
    pub line_endings: LineEndings,
    /// Of the text after line endings were converted.
    pub corpus_sha256: String,
    /// Sum of token losses (units of 2^-24 nats) since the last log line.
    pub loss_q24: i64,
    /// Tokens in that sum.
    pub loss_tokens: u64,
    /// Best validation loss so far and its step.
    pub best: Option<(f64, u32)>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    model: ModelConfig,
    step: u32,
    /// FP32 bits.
    p1: u32,
    p2: u32,
    seed: u32,
    run: Option<RunInfo>,
}

/// A model with its state, and the run it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    pub model: ModelConfig,
    pub state: State,
    pub run: Option<RunInfo>,
}

fn invalid(problem: impl Into<String>) -> ReferenceError {
    ReferenceError::Invalid(problem.into())
}

/// Refuses a safetensors file that is shorter or longer than its header says. Whatever else is wrong with it is left
/// to the reader of the format.
fn whole(bytes: &[u8]) -> Result<()> {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Ok(());
    };
    let announced = u64::from_le_bytes(*length);
    let header = usize::try_from(announced).ok().and_then(|n| rest.get(..n));
    let Some(header) = header else {
        return Err(invalid(format!(
            "cut off: a header of {announced} bytes is announced; {} follow",
            rest.len()
        )));
    };
    let Ok(serde_json::Value::Object(entries)) = serde_json::from_slice(header) else {
        return Ok(());
    };
    let ends = entries
        .values()
        .filter_map(|e| e["data_offsets"][1].as_u64());
    let data = (rest.len() - header.len()) as u64;
    match ends.max().unwrap_or(0) {
        end if end > data => Err(invalid(format!(
            "cut off: {} bytes; its header announces {} more",
            bytes.len(),
            end - data
        ))),
        end if end < data => Err(invalid(format!(
            "{} bytes stand behind the last tensor",
            data - end
        ))),
        _ => Ok(()),
    }
}

/// Bytes of 32-bit words, cut to the width of a weight format.
fn weight_bytes(tensor: &TensorState) -> Vec<u8> {
    let width = tensor.format.bits() as usize / 8;
    let words = (0..tensor.w.len()).map(|i| tensor.weight_bits(i).to_le_bytes());
    words.flat_map(|b| b.into_iter().take(width)).collect()
}

fn float_bytes(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn bf16_bytes(x: &[f32]) -> Vec<u8> {
    x.iter()
        .flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes())
        .collect()
}

/// Name, type, shape and bytes of everything that one tensor's state stores.
fn stored(tensor: &TensorState) -> Vec<(String, Dtype, Vec<usize>, Vec<u8>)> {
    let name = tensor.id.name();
    let shape = match tensor.id.matrix() {
        Some(_) => tensor.shape.to_vec(),
        None => vec![tensor.shape[1]],
    };
    let (dtype, weight_shape) = match tensor.format {
        WeightFormat::Fp32 => (Dtype::F32, shape.clone()),
        WeightFormat::Bf16 => (Dtype::BF16, shape.clone()),
        // No such type exists: three little-endian bytes per weight.
        WeightFormat::Fp24 => (Dtype::U8, [&shape[..], &[3]].concat()),
    };
    let mut list = vec![(name.clone(), dtype, weight_shape, weight_bytes(tensor))];
    let mut put = |suffix: &str, dtype, shape: &[usize], bytes| {
        list.push((format!("{name}.{suffix}"), dtype, shape.to_vec(), bytes));
    };
    match &tensor.moments {
        Moments::None => {}
        Moments::Fp32 { m, v } => {
            put("m", Dtype::F32, &shape, float_bytes(m));
            put("v", Dtype::F32, &shape, float_bytes(v));
        }
        Moments::Bf16 { m, v } => {
            put("m", Dtype::BF16, &shape, bf16_bytes(m));
            put("v", Dtype::BF16, &shape, bf16_bytes(v));
        }
        Moments::Int8 {
            m,
            v,
            m_scale,
            v_scale,
        } => {
            let blocks = [tensor.shape[0], m_scale.len() / tensor.shape[0].max(1)];
            put("m", Dtype::I8, &shape, m.iter().map(|&x| x as u8).collect());
            put("v", Dtype::U8, &shape, v.clone());
            put("m_scale", Dtype::F32, &blocks, float_bytes(m_scale));
            put("v_scale", Dtype::F32, &blocks, float_bytes(v_scale));
        }
    }
    list
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(N).map(|b| {
        let mut word = [0; 4];
        word[..N].copy_from_slice(b);
        u32::from_le_bytes(word)
    })
}

/// Fills one stored part of a tensor from its bytes.
fn fill(tensor: &mut TensorState, suffix: &str, bytes: &[u8]) {
    let floats = |out: &mut [f32]| {
        for (x, bits) in out.iter_mut().zip(words::<4>(bytes)) {
            *x = f32::from_bits(bits);
        }
    };
    let halves = |out: &mut [f32]| {
        for (x, bits) in out.iter_mut().zip(words::<2>(bytes)) {
            *x = f32::from_bits(bits << 16);
        }
    };
    match (suffix, &mut tensor.moments) {
        ("", _) => {
            let bits: Vec<u32> = match tensor.format {
                WeightFormat::Fp32 => words::<4>(bytes).collect(),
                WeightFormat::Bf16 => words::<2>(bytes).collect(),
                WeightFormat::Fp24 => words::<3>(bytes).collect(),
            };
            for (i, bits) in bits.into_iter().enumerate() {
                tensor.set_weight_bits(i, bits);
            }
        }
        ("m", Moments::Fp32 { m, .. }) => floats(m),
        ("v", Moments::Fp32 { v, .. }) => floats(v),
        ("m", Moments::Bf16 { m, .. }) => halves(m),
        ("v", Moments::Bf16 { v, .. }) => halves(v),
        ("m", Moments::Int8 { m, .. }) => {
            for (x, &b) in m.iter_mut().zip(bytes) {
                *x = b as i8;
            }
        }
        ("v", Moments::Int8 { v, .. }) => v.copy_from_slice(bytes),
        ("m_scale", Moments::Int8 { m_scale, .. }) => floats(m_scale),
        ("v_scale", Moments::Int8 { v_scale, .. }) => floats(v_scale),
        _ => {}
    }
}

impl Checkpoint {
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let header = Header {
            version: VERSION,
            model: self.model.clone(),
            step: self.state.schedule.step,
            p1: self.state.schedule.p1.to_bits(),
            p2: self.state.schedule.p2.to_bits(),
            seed: self.state.seed,
            run: self.run.clone(),
        };
        let header = serde_json::to_string(&header).map_err(|e| invalid(e.to_string()))?;
        let list: Vec<_> = self.state.tensors.iter().flat_map(stored).collect();
        let views = list
            .iter()
            .map(|(name, dtype, shape, bytes)| {
                let view = TensorView::new(*dtype, shape.clone(), bytes);
                view.map(|view| (name.as_str(), view))
                    .map_err(|e| invalid(e.to_string()))
            })
            .collect::<Result<Vec<_>>>()?;
        // One entry only: the order of several would vary.
        let metadata = HashMap::from([(KEY.to_string(), header)]);
        serialize(views, Some(metadata)).map_err(|e| invalid(e.to_string()))
    }

    /// Reads a checkpoint's bytes. Allocates no more than the bytes justify.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let wrong =
            |e: safetensors::SafeTensorError| invalid(format!("not a safetensors file: {e}"));
        whole(bytes)?;
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(wrong)?;
        let text = metadata.metadata().as_ref().and_then(|m| m.get(KEY));
        let text =
            text.ok_or_else(|| invalid("a safetensors file, but not a checkpoint of nfgen"))?;
        let header: Header = serde_json::from_str(text)
            .map_err(|e| invalid(format!("the checkpoint's header is not as expected: {e}")))?;
        if header.version != VERSION {
            return Err(invalid(format!(
                "checkpoint version {}; only {VERSION} is known",
                header.version
            )));
        }
        check_model(&header.model).map_err(|problems| {
            let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
            invalid(format!(
                "the checkpoint's model is not valid: {}",
                text.join("; ")
            ))
        })?;
        let least = header.model.matrix_parameters() as u64
            * u64::from(header.model.weight_format.bits() / 8);
        if least > bytes.len() as u64 {
            return Err(invalid(format!(
                "{} bytes cannot hold the model's weights of {least} bytes",
                bytes.len()
            )));
        }
        let file = SafeTensors::deserialize(bytes).map_err(wrong)?;
        let mut state = State {
            tensors: Vec::new(),
            schedule: Schedule {
                step: header.step,
                p1: f32::from_bits(header.p1),
                p2: f32::from_bits(header.p2),
            },
            seed: header.seed,
        };
        let mut known = 0;
        for id in TensorId::all(&header.model) {
            let mut tensor = TensorState::zeroed(id, &header.model);
            for (name, dtype, shape, expected) in stored(&tensor) {
                let view = file
                    .tensor(&name)
                    .map_err(|_| invalid(format!("no tensor {name}")))?;
                if view.dtype() != dtype
                    || view.shape() != shape
                    || view.data().len() != expected.len()
                {
                    return Err(invalid(format!(
                        "tensor {name} is {:?} {:?}; the model has {dtype:?} {shape:?}",
                        view.dtype(),
                        view.shape()
                    )));
                }
                let suffix = name[id.name().len()..].trim_start_matches('.').to_string();
                fill(&mut tensor, &suffix, view.data());
                known += 1;
            }
            state.tensors.push(tensor);
        }
        if file.len() != known {
            return Err(invalid(format!(
                "{} tensors; the model has {known}",
                file.len()
            )));
        }
        let powers = [state.schedule.p1, state.schedule.p2];
        if powers.iter().any(|p| !(0.0..=1.0).contains(p)) {
            return Err(invalid(
                "the powers of Adam's betas are not between 0 and 1",
            ));
        }
        state.check(&header.model)?;
        Ok(Self {
            model: header.model,
            state,
            run: header.run,
        })
    }

    pub fn load(path: &Path) -> Result<Self> {
        let bytes = read_bytes(path, MOST_DATA).map_err(|e| ReferenceError::read(path, e))?;
        Self::parse(&bytes).map_err(|e| ReferenceError::file(path, e))
    }

    /// Writes the checkpoint so that the old file or the new one stands at `path`, never a part.
    pub fn save(&self, path: &Path) -> Result<()> {
        write_atomically(path, &self.to_bytes()?)
    }

    /// Reads a checkpoint of this program or a `.neuro` file.
    pub fn load_any(path: &Path) -> Result<Self> {
        let bytes = read_bytes(path, MOST_DATA).map_err(|e| ReferenceError::read(path, e))?;
        let read = || match (bytes.get(4), bytes.get(8)) {
            (_, Some(b'{')) => Self::parse(&bytes),
            (Some(b'{'), _) => {
                let file = NeuroFile::parse(&bytes)?;
                let model = file.model()?;
                let state = file.state(&model)?;
                Ok(Self {
                    model,
                    state,
                    run: None,
                })
            }
            _ => Err(invalid(format!(
                "{} bytes that are neither a safetensors checkpoint nor a .neuro file",
                bytes.len()
            ))),
        };
        read().map_err(|e| ReferenceError::file(path, e))
    }

    /// The same weights and moments in the formats of `model`, which must have the same shape.
    pub fn into_model(self, model: &ModelConfig) -> Result<State> {
        let mut state = self.state;
        for tensor in &mut state.tensors {
            let mut other = TensorState::zeroed(tensor.id, model);
            if other.shape != tensor.shape {
                return Err(ReferenceError::State {
                    tensor: tensor.id.name(),
                    problem: format!("shape {:?}; the model has {:?}", tensor.shape, other.shape),
                });
            }
            let same_moments =
                std::mem::discriminant(&other.moments) == std::mem::discriminant(&tensor.moments);
            for (i, &w) in tensor.w.iter().enumerate() {
                other.set_weight(i, w);
            }
            if same_moments {
                other.moments = tensor.moments.clone();
            } else {
                let [m, v] = tensor.moment_values();
                other.set_moments(&m, &v);
            }
            *tensor = other;
        }
        state.check(model)?;
        Ok(state)
    }
}

/// Writes a file whole or not at all ([`write_whole`]).
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole(path, |file| file.write_all(bytes)).map_err(|e| ReferenceError::write(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::{LayerNormOptimizer, MomentFormat, Rounding};
    use crate::reference::Trainer;
    use crate::reference::tests::{odd_model, window};
    use proptest::prelude::*;

    fn trained(weight_format: WeightFormat, moment_format: MomentFormat, steps: u32) -> Checkpoint {
        let model = ModelConfig {
            weight_format,
            moment_format,
            rounding: Rounding::Stochastic,
            layernorm_optimizer: if moment_format == MomentFormat::Fp32 {
                LayerNormOptimizer::Sgd
            } else {
                LayerNormOptimizer::Adam
            },
            ..odd_model()
        };
        let mut trainer = Trainer::new(&model, State::init(&model), 1).unwrap();
        for i in 0..steps {
            trainer.step(&window(&model, i)).unwrap();
        }
        Checkpoint {
            model,
            state: trainer.into_state(),
            run: None,
        }
    }

    #[test]
    fn every_format_survives_and_continues_to_the_same_bit() {
        for weight in [WeightFormat::Fp32, WeightFormat::Bf16, WeightFormat::Fp24] {
            for moment in [MomentFormat::Fp32, MomentFormat::Bf16, MomentFormat::Int8] {
                let half = trained(weight, moment, 4);
                let bytes = half.to_bytes().unwrap();
                assert!(bytes == half.to_bytes().unwrap());
                let back = Checkpoint::parse(&bytes).unwrap();
                assert!(back == half, "{weight:?} {moment:?}");
                let mut trainer = Trainer::new(&back.model, back.state, 2).unwrap();
                for i in 4..8 {
                    trainer.step(&window(&half.model, i)).unwrap();
                }
                assert!(
                    *trainer.state() == trained(weight, moment, 8).state,
                    "{weight:?} {moment:?}"
                );
            }
        }
    }

    #[test]
    fn formats_can_be_changed() {
        let wide = trained(WeightFormat::Fp32, MomentFormat::Bf16, 3);
        let model = ModelConfig {
            weight_format: WeightFormat::Bf16,
            moment_format: MomentFormat::Int8,
            ..wide.model.clone()
        };
        let state = wide.clone().into_model(&model).unwrap();
        for (a, b) in wide.state.tensors.iter().zip(&state.tensors) {
            for (x, y) in a.w.iter().zip(&b.w) {
                assert!((x - y).abs() <= x.abs() / 256.0);
            }
            let (a, b) = (a.moment_values(), b.moment_values());
            let largest = a[0].iter().fold(0f32, |m, x| m.max(x.abs()));
            for (x, y) in a[0].iter().zip(&b[0]) {
                assert!((x - y).abs() <= largest / 250.0);
            }
        }
        let other = ModelConfig {
            ff_dim: 40,
            ..model
        };
        assert!(
            wide.into_model(&other)
                .unwrap_err()
                .to_string()
                .contains("layers.0.w1: shape [18, 37]")
        );
    }

    #[test]
    fn files_are_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint.safetensors");
        let checkpoint = trained(WeightFormat::Fp24, MomentFormat::Int8, 1);
        checkpoint.save(&path).unwrap();
        checkpoint.save(&path).unwrap();
        assert!(Checkpoint::load_any(&path).unwrap() == checkpoint);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(
            checkpoint
                .save(&folder.path().join("none/c.safetensors"))
                .is_err()
        );
    }

    #[test]
    fn damaged_files_are_errors_with_a_reason() {
        let good = trained(WeightFormat::Bf16, MomentFormat::Fp32, 1)
            .to_bytes()
            .unwrap();
        let error = |bytes: &[u8]| {
            Checkpoint::parse(bytes)
                .map(|_| ())
                .unwrap_err()
                .to_string()
        };
        let replaced = |from: &str, to: &str| {
            assert_eq!(from.len(), to.len());
            let at = good
                .windows(from.len())
                .position(|w| w == from.as_bytes())
                .unwrap();
            let mut bytes = good.clone();
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            bytes
        };
        assert!(error(&good[..good.len() - 1]).ends_with("its header announces 1 more"));
        assert!(error(&good[..100]).starts_with("cut off: a header of"));
        assert!(error(&[&good[..], b"ab"].concat()).starts_with("2 bytes stand behind"));
        assert!(error(b"").contains("not a safetensors file"));
        assert!(error(&replaced("\"nfgen\"", "\"ngfen\"")).contains("not a checkpoint"));
        assert!(error(&replaced("\\\"version\\\":1", "\\\"version\\\":9")).contains("version 9"));
        assert!(
            error(&replaced("layers.0.w1.m", "layers.0.wx.m")).contains("no tensor layers.0.w1.m")
        );
        assert!(error(&replaced("\\\"vocab\\\":29", "\\\"vocab\\\":28")).contains("embedding"));
        assert!(error(&replaced("\\\"heads\\\":3", "\\\"heads\\\":4")).contains("heads"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        /// Any damage gives a checkpoint or an error, never a panic.
        #[test]
        fn any_damage_is_survived(position in 0usize..5000, value: u8, cut in 0usize..200) {
            let mut bytes = trained(WeightFormat::Fp24, MomentFormat::Int8, 0).to_bytes().unwrap();
            let at = position % bytes.len();
            bytes[at] = value;
            bytes.truncate(bytes.len() - cut / 100 * cut);
            let _ = Checkpoint::parse(&bytes);
        }
    }
}
