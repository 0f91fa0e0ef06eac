//! The logical state, its stream order and its relation to the reference's state.

use super::{Matrix, WeightLayout};
use crate::config::model::ModelConfig;
use crate::num::moments8::blocks_per_row;
use crate::reference::{Moments, State, TensorId};

/// Raw storage bits of one parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawParameter {
    pub w: u32,
    pub m: u32,
    pub v: u32,
}

/// Everything the state stream carries, in logical order.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainerState {
    /// Row-major matrices: E, then Wqkv, Wo, W1, W2 of each layer.
    pub tensors: Vec<Vec<RawParameter>>,
    /// FP32 bits [sm, sv] of every moment block of each matrix, row by row; empty in other formats.
    pub scales: Vec<Vec<[u32; 2]>>,
    /// Index `p*d + j`, FP32 bits.
    pub layernorm: Vec<RawParameter>,
    /// Steps done.
    pub step: u32,
    /// FP32 bits of beta1^step and beta2^step.
    pub p1: u32,
    pub p2: u32,
    pub seed: u32,
}

/// One 128-bit beat, least significant word first.
pub type Beat = [u32; 4];

/// The state stream of `docs/machine.md` section 6; positions that hold no weight carry zero.
pub fn state_to_beats(layout: &WeightLayout, state: &TrainerState) -> Vec<Beat> {
    let beat = |p: RawParameter| [p.w, p.m, p.v, 0];
    let mut beats = Vec::with_capacity(layout.depth * layout.b + state.layernorm.len() + 1);
    for address in 0..layout.depth {
        for bank in 0..layout.b {
            let p = layout
                .locate(bank, address)
                .map_or_else(RawParameter::default, |(t, e)| state.tensors[t][e]);
            beats.push(beat(p));
        }
    }
    if let Some(scales) = &layout.scales {
        for address in 0..scales.depth {
            for bank in 0..layout.b {
                let [m, v] = scales
                    .locate(layout.b, &layout.tensors, bank, address)
                    .map_or([0, 0], |(t, k)| state.scales[t][k]);
                beats.push([m, v, 0, 0]);
            }
        }
    }
    beats.extend(state.layernorm.iter().map(|&p| beat(p)));
    beats.push([state.step, state.p1, state.p2, state.seed]);
    beats
}

/// Inverse of [`state_to_beats`]; an error names the length that was expected.
pub fn beats_to_state(
    model: &ModelConfig,
    layout: &WeightLayout,
    beats: &[Beat],
) -> Result<TrainerState, String> {
    let matrix_beats = layout.depth * layout.b;
    let scale_beats = matrix_beats + layout.scale_words() * layout.b;
    let expected = layout.state_beats(model);
    if beats.len() != expected {
        return Err(format!(
            "state stream has {} beats, this model on this array has {expected}",
            beats.len()
        ));
    }
    let raw = |beat: &Beat| RawParameter {
        w: beat[0],
        m: beat[1],
        v: beat[2],
    };
    let mut tensors: Vec<Vec<RawParameter>> = layout
        .tensors
        .iter()
        .map(|m| vec![RawParameter::default(); m.rows * m.cols])
        .collect();
    for (n, beat) in beats[..matrix_beats].iter().enumerate() {
        if let Some((t, e)) = layout.locate(n % layout.b, n / layout.b) {
            tensors[t][e] = raw(beat);
        }
    }
    let mut scales = no_scales(layout);
    if let Some(places) = &layout.scales {
        for (n, beat) in beats[matrix_beats..scale_beats].iter().enumerate() {
            let (bank, address) = (n % layout.b, n / layout.b);
            if let Some((t, k)) = places.locate(layout.b, &layout.tensors, bank, address) {
                scales[t][k] = [beat[0], beat[1]];
            }
        }
    }
    let last = &beats[expected - 1];
    Ok(TrainerState {
        tensors,
        scales,
        layernorm: beats[scale_beats..expected - 1].iter().map(raw).collect(),
        step: last[0],
        p1: last[1],
        p2: last[2],
        seed: last[3],
    })
}

/// Scales of zero for every moment block of a layout.
pub fn no_scales(layout: &WeightLayout) -> Vec<Vec<[u32; 2]>> {
    let blocks = |m: &Matrix| match layout.scales {
        Some(_) => m.rows * blocks_per_row(m.cols),
        None => 0,
    };
    layout
        .tensors
        .iter()
        .map(|m| vec![[0; 2]; blocks(m)])
        .collect()
}

impl TrainerState {
    /// The reference's state in storage bits.
    pub fn from_reference(model: &ModelConfig, state: &State) -> Self {
        let mut tensors = vec![];
        let mut scales = vec![];
        let mut layernorm = vec![];
        for id in TensorId::all(model) {
            let t = state.tensor(id);
            let raw = (0..t.w.len()).map(|i| {
                let [m, v] = t.moment_bits(i);
                RawParameter {
                    w: t.weight_bits(i),
                    m,
                    v,
                }
            });
            match id.matrix() {
                Some(_) => {
                    tensors.push(raw.collect());
                    scales.push(match &t.moments {
                        Moments::Int8 {
                            m_scale, v_scale, ..
                        } => m_scale
                            .iter()
                            .zip(v_scale)
                            .map(|(m, v)| [m.to_bits(), v.to_bits()])
                            .collect(),
                        _ => vec![],
                    });
                }
                None => layernorm.extend(raw),
            }
        }
        Self {
            tensors,
            scales,
            layernorm,
            step: state.schedule.step,
            p1: state.schedule.p1.to_bits(),
            p2: state.schedule.p2.to_bits(),
            seed: state.seed,
        }
    }

    /// Writes the storage bits into a reference state of the same model.
    pub fn to_reference(&self, model: &ModelConfig, state: &mut State) {
        let mut matrices = self.tensors.iter();
        let mut scales = self.scales.iter();
        let mut vectors = self.layernorm.chunks(model.embed_dim);
        for id in TensorId::all(model) {
            let source = match id.matrix() {
                Some(_) => matrices.next().map(Vec::as_slice),
                None => vectors.next(),
            };
            let t = state.tensor_mut(id);
            for (i, p) in source.unwrap_or_default().iter().enumerate() {
                t.set_weight_bits(i, p.w);
                t.set_moment_bits(i, [p.m, p.v]);
            }
            let blocks = id.matrix().and_then(|_| scales.next());
            if let (
                Moments::Int8 {
                    m_scale, v_scale, ..
                },
                Some(blocks),
            ) = (&mut t.moments, blocks)
            {
                for (k, &[m, v]) in blocks.iter().enumerate() {
                    m_scale[k] = f32::from_bits(m);
                    v_scale[k] = f32::from_bits(v);
                }
            }
        }
        state.schedule.step = self.step;
        state.schedule.p1 = f32::from_bits(self.p1);
        state.schedule.p2 = f32::from_bits(self.p2);
        state.seed = self.seed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::MomentFormat;
    use crate::trainer::layout::weight_shapes;
    use crate::trainer::testing::odd_model;

    #[test]
    fn state_survives_the_stream() {
        for moment_format in [MomentFormat::Bf16, MomentFormat::Int8] {
            stream_of(&ModelConfig {
                moment_format,
                ..odd_model()
            });
        }
    }

    fn stream_of(model: &ModelConfig) {
        let layout = WeightLayout::new(model, 11);
        let mut n = 0u32;
        let mut next = || {
            n += 1;
            RawParameter {
                w: n,
                m: n ^ 0x5555,
                v: n << 8,
            }
        };
        let mut scales = no_scales(&layout);
        for (k, s) in scales.iter_mut().flatten().enumerate() {
            *s = [k as u32 + 1, 7 * k as u32 + 3];
        }
        let state = TrainerState {
            scales,
            tensors: weight_shapes(model)
                .into_iter()
                .map(|(r, c)| (0..r * c).map(|_| next()).collect())
                .collect(),
            layernorm: (0..model.layernorm_parameters()).map(|_| next()).collect(),
            step: 7,
            p1: 1,
            p2: 2,
            seed: 3,
        };
        let beats = state_to_beats(&layout, &state);
        assert_eq!(beats_to_state(model, &layout, &beats), Ok(state));
        assert!(beats_to_state(model, &layout, &beats[1..]).is_err());
    }

    #[test]
    fn state_goes_to_the_reference_and_back() {
        let model = odd_model();
        let state = State::init(&model);
        let raw = TrainerState::from_reference(&model, &state);
        let mut blank = State::init(&ModelConfig {
            seed: model.seed + 1,
            ..model.clone()
        });
        assert_ne!(TrainerState::from_reference(&model, &blank), raw);
        raw.to_reference(&model, &mut blank);
        assert_eq!(TrainerState::from_reference(&model, &blank), raw);
        assert_eq!(blank, state);
    }
}
