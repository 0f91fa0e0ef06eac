//! Compares the words of a state read from the hardware with the reference's state.

use serde::Serialize;

use crate::config::model::{ModelConfig, MomentFormat};
use crate::num::moments8::{BLOCK, blocks_per_row};
use crate::reference::{State, TensorId};
use crate::trainer::layout::{RawParameter, TrainerState};

/// The first word in which hardware and reference differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Sample in which it was found, 1-based.
    pub step: u32,
    /// Tensor name, or `schedule`.
    pub tensor: String,
    /// `weight`, `m`, `v`, `m scale`, `v scale`, or the schedule word's name.
    pub word: &'static str,
    /// Row and column (of a scale: of the first element of its block).
    pub row: usize,
    pub column: usize,
    /// Stored bits as hexadecimal digits.
    pub expected_bits: String,
    pub got_bits: String,
    pub expected: f32,
    pub got: f32,
    /// Distance in units of the last stored place.
    pub ulps: u64,
}

/// Outcome of one comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    pub words: u64,
    pub mismatches: u64,
    pub first: Option<Difference>,
}

impl Comparison {
    /// Counts a word; the first that differs is kept.
    fn word(&mut self, expected: u32, got: u32, difference: impl FnOnce() -> Difference) {
        self.words += 1;
        if expected != got {
            self.mismatches += 1;
            self.first.get_or_insert_with(difference);
        }
    }

    /// Adds another comparison, keeping the earlier first difference.
    pub fn merge(&mut self, other: Comparison) {
        self.words += other.words;
        self.mismatches += other.mismatches;
        if self.first.is_none() {
            self.first = other.first;
        }
    }
}

/// The tensors in the order of the state stream: matrices, then LayerNorm vectors.
fn stream_order(model: &ModelConfig) -> (Vec<TensorId>, Vec<TensorId>) {
    let mut matrices = vec![TensorId::Embedding];
    let mut vectors = vec![];
    for l in 0..model.layers {
        matrices.extend([
            TensorId::Wqkv(l),
            TensorId::Wo(l),
            TensorId::W1(l),
            TensorId::W2(l),
        ]);
        vectors.extend([
            TensorId::Ln1Gamma(l),
            TensorId::Ln1Beta(l),
            TensorId::Ln2Gamma(l),
            TensorId::Ln2Beta(l),
        ]);
    }
    (matrices, vectors)
}

/// The reference's state as the words that the hardware stores.
pub fn to_words(model: &ModelConfig, state: &State) -> TrainerState {
    TrainerState::from_reference(model, state)
}

/// The reference state that holds the given words.
pub fn from_words(model: &ModelConfig, words: &TrainerState) -> State {
    let mut state = State::init(model);
    words.to_reference(model, &mut state);
    state
}

/// Compares every weight, both moments, the scales of moment blocks and the schedule words.
pub fn compare(
    model: &ModelConfig,
    step: u32,
    expected: &TrainerState,
    got: &TrainerState,
) -> Comparison {
    let mut out = Comparison::default();
    let (matrices, vectors) = stream_order(model);
    let d = model.embed_dim;
    let weight_bits = model.weight_format.bits();
    let moment_bits = match model.moment_format {
        MomentFormat::Int8 => 8,
        MomentFormat::Bf16 => 16,
        MomentFormat::Fp32 => 32,
    };
    let mut tensor = |id: TensorId, want: &[RawParameter], have: &[RawParameter]| {
        let columns = id.shape(model)[1];
        let (wb, mb) = match id.matrix() {
            Some(_) => (weight_bits, moment_bits),
            None => (32, 32),
        };
        for (i, (e, g)) in want.iter().zip(have).enumerate() {
            for (word, bits, e, g) in [
                ("weight", wb, e.w, g.w),
                ("m", mb, e.m, g.m),
                ("v", mb, e.v, g.v),
            ] {
                out.word(e, g, || {
                    let digits = bits as usize / 4;
                    let value = |x: u32| match (bits, word) {
                        (8, "m") => f32::from(x as u8 as i8),
                        (8, _) => x as f32,
                        _ => f32::from_bits(x << (32 - bits)),
                    };
                    Difference {
                        step,
                        tensor: id.name(),
                        word,
                        row: i / columns,
                        column: i % columns,
                        expected_bits: format!("{e:0digits$x}"),
                        got_bits: format!("{g:0digits$x}"),
                        expected: value(e),
                        got: value(g),
                        ulps: match bits {
                            8 => (value(e) - value(g)).abs() as u64,
                            _ => ulps(e, g, bits),
                        },
                    }
                });
            }
        }
    };
    for (k, id) in matrices.iter().enumerate() {
        tensor(*id, &expected.tensors[k], &got.tensors[k]);
    }
    for (k, id) in vectors.iter().enumerate() {
        let range = k * d..(k + 1) * d;
        tensor(
            *id,
            &expected.layernorm[range.clone()],
            &got.layernorm[range],
        );
    }
    let whole = |tensor, word, (row, column), e: u32, g: u32| Difference {
        step,
        tensor,
        word,
        row,
        column,
        expected_bits: format!("{e:08x}"),
        got_bits: format!("{g:08x}"),
        expected: f32::from_bits(e),
        got: f32::from_bits(g),
        ulps: ulps(e, g, 32),
    };
    for (k, id) in matrices.iter().enumerate() {
        let per_row = blocks_per_row(id.shape(model)[1]);
        for (i, (want, have)) in expected.scales[k].iter().zip(&got.scales[k]).enumerate() {
            for (word, e, g) in [("m scale", want[0], have[0]), ("v scale", want[1], have[1])] {
                let first = (i / per_row, i % per_row * BLOCK);
                out.word(e, g, || whole(id.name(), word, first, e, g));
            }
        }
    }
    for (word, e, g) in [
        ("step", expected.step, got.step),
        ("beta1^step", expected.p1, got.p1),
        ("beta2^step", expected.p2, got.p2),
        ("seed", expected.seed, got.seed),
    ] {
        out.word(e, g, || whole("schedule".into(), word, (0, 0), e, g));
    }
    out
}

/// Distance of two stored floats in units of their last place, counted across zero.
fn ulps(a: u32, b: u32, bits: u32) -> u64 {
    let order = |x: u32| {
        let magnitude = i64::from(x & ((1u64 << (bits - 1)) - 1) as u32);
        if x >> (bits - 1) & 1 == 1 {
            -magnitude
        } else {
            magnitude
        }
    };
    order(a).abs_diff(order(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load_model;

    #[test]
    fn words_and_state_are_inverse_and_a_flipped_bit_is_found() {
        for name in ["tiny", "shakespeare-334k-7b", "shakespeare-334k-5b"] {
            let mut model = load_model(name, &[]).expect("built-in model");
            model.layers = 2;
            let state = State::init(&model);
            let words = to_words(&model, &state);
            assert_eq!(from_words(&model, &words), state);
            let same = compare(&model, 1, &words, &words);
            let scales = words.scales.iter().map(|s| 2 * s.len()).sum::<usize>();
            assert_eq!(scales > 0, name == "shakespeare-334k-5b");
            assert_eq!(
                same.words,
                3 * model.parameters() as u64 + scales as u64 + 4
            );
            assert_eq!(same.mismatches, 0);

            let mut other = words.clone();
            other.tensors[2][5].w ^= 2;
            other.layernorm[model.embed_dim].v ^= 1;
            let different = compare(&model, 3, &words, &other);
            assert_eq!(different.mismatches, 2);
            let first = different.first.expect("a difference");
            assert_eq!(
                (first.tensor.as_str(), first.word),
                ("layers.0.wo", "weight")
            );
            assert_eq!((first.row, first.column, first.ulps), (0, 5, 2));
            if scales > 0 {
                let mut other = words.clone();
                other.scales[1][7][1] ^= 4;
                let first = compare(&model, 3, &words, &other).first;
                let first = first.expect("a difference");
                // Six blocks in a row of Wqkv.
                assert_eq!((first.word, first.row, first.column), ("v scale", 1, 44));
            }
        }
    }

    #[test]
    fn ulps_count_across_zero() {
        assert_eq!(ulps(1f32.to_bits(), 1f32.to_bits() + 3, 32), 3);
        assert_eq!(ulps(0x8001, 0x0001, 16), 2);
    }
}
