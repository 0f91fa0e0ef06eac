//! Whole programs: every pass, several sizes, tiles overlapping.

use super::harness::{Rng, Run, run};
use super::model::{Machine, State};
use super::passes::{CONSTANTS, Family, GROUPS, PARAMETERS, ROWS};
use crate::config::model::Gelu;
use crate::dsl::ModuleDef;
use crate::hw::trainer::vec::{
    VectorSpec, start_to_ready, start_to_retire, supported, vector_unit,
};
use crate::sim::cosim::{self, Stimulus};
use crate::trainer::encode::{Encoded, encode_vec};
use crate::trainer::isa::*;
use std::sync::Arc;

/// Families that run interleaved.
const CHUNK: usize = 2;
const VOCAB: usize = 300;
const EPS: f32 = 1e-5;
const INV_T: f32 = 1.0 / 29.0;

struct Bench {
    def: Arc<ModuleDef>,
    program: Vec<VecInstr>,
    encoded: Encoded,
    state: State,
    machine: Machine,
}

fn bench(b: usize, lengths: &[usize], gelu: Gelu, seed: u64) -> Bench {
    let mut rng = Rng(seed | 1);
    // Two and a half tiles; the families of a chunk run interleaved.
    let tokens = 2 * b + b.div_ceil(2);
    let mut program = vec![];
    let mut base = 1;
    for chunk in lengths.chunks(CHUNK) {
        let mut families = vec![];
        for &n in chunk {
            let j0 = rng.below(b + 2);
            let family = Family {
                b,
                n,
                tokens,
                base,
                j0,
            };
            base += family.words();
            families.push(family);
        }
        program.extend(Family::program(&families, program.len(), &mut rng));
    }
    let scalar_rows = ROWS * CHUNK * tokens.div_ceil(b);
    let spec = VectorSpec {
        lanes: b,
        gelu,
        groups: GROUPS,
        group_depth: base + b,
        scalar_rows,
        exps: 8,
        layernorm_words: PARAMETERS,
        constants: CONSTANTS.iter().map(|c| c.to_bits()).collect(),
        seq_len: tokens,
        vocab: VOCAB,
        eps: EPS,
        inv_t: INV_T,
    };
    for (k, i) in program.iter().enumerate() {
        supported(&spec, i).unwrap_or_else(|e| panic!("pass {k}: {e}"));
    }
    let encoded = encode_vec(&program);
    let def = vector_unit(&spec, &encoded.layout).unwrap();
    let shortest = lengths.iter().copied().min().unwrap_or(1);
    let mut values = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.value()).collect() };
    let state = State {
        b,
        groups: (0..GROUPS).map(|_| values((base + b) * b)).collect(),
        scalars: vec![vec![None; b]; scalar_rows],
        exps: vec![0; 8],
        params: values(PARAMETERS),
        targets: vec![],
        logit_position: rng.below(tokens),
        logits: vec![0.0; VOCAB],
        loss_q24: 0,
        correct: 0,
    };
    Bench {
        def,
        program,
        encoded,
        state: State {
            targets: (0..tokens).map(|_| rng.below(shortest)).collect(),
            ..state
        },
        machine: Machine::new(gelu, &CONSTANTS, EPS, INV_T),
    }
}

impl Bench {
    /// Runs the program on the hardware and on the model and compares everything.
    fn check(&self, pause: impl FnMut(usize) -> usize) -> Run {
        let mut want = self.state.clone();
        self.program
            .iter()
            .for_each(|i| self.machine.run(&mut want, i));
        let mut got = self.state.clone();
        let run = run(&self.def, &self.program, &self.encoded, &mut got, pause);
        for (g, (a, b)) in got.groups.iter().zip(&want.groups).enumerate() {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                assert_eq!(
                    a.to_bits(),
                    b.to_bits(),
                    "group {g} address {} bank {}: {a} for {b}",
                    at / want.b,
                    at % want.b
                );
            }
        }
        for (r, (a, b)) in got.scalars.iter().zip(&want.scalars).enumerate() {
            for (l, (a, b)) in a.iter().zip(b).enumerate() {
                if let (Some(a), Some(b)) = (a, b) {
                    assert_eq!(
                        a.to_bits(),
                        b.to_bits(),
                        "scalar row {r} lane {l}: {a} for {b}"
                    );
                }
            }
        }
        assert_eq!(got.exps, want.exps);
        assert_eq!(got.loss_q24, want.loss_q24);
        assert_eq!(got.correct, want.correct);
        assert!(want.correct > 0 || want.loss_q24 > 0);
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&got.logits), bits(&want.logits));
        assert_eq!(run.errors, 0);
        self.check_times(&run);
        run
    }

    /// The formulas of the cycle model hold exactly.
    fn check_times(&self, run: &Run) {
        let b = self.state.b;
        let mut before = 0;
        for (k, (i, t)) in self.program.iter().zip(&run.times).enumerate() {
            if k + 1 < self.program.len() {
                assert_eq!(
                    t.ready - t.start,
                    start_to_ready(b, i),
                    "ready of {k}: {i:?}"
                );
            }
            let alone = t.start + start_to_retire(b, i);
            assert_eq!(t.retire, alone.max(before + 1), "retire of {k}: {i:?}");
            before = t.retire;
        }
    }

    fn stimulus(&self, run: &Run) -> Stimulus {
        let mut s = Stimulus::zero(&self.def, run.rows.len());
        let instr = self.def.input_index("instr").unwrap();
        for (cycle, row) in run.rows.iter().enumerate() {
            let ports = &row[..self.def.inputs.len()];
            for (k, value) in ports.iter().enumerate() {
                if k != instr {
                    s.set(cycle, k, *value);
                }
            }
            let word = row[self.def.inputs.len()] as usize;
            s.set_limbs(cycle, instr, &self.encoded.words[word]);
        }
        s
    }
}

#[test]
fn every_pass_equals_the_model_for_short_and_long_rows() {
    let all: Vec<usize> = (1..=40).collect();
    let cases: [(usize, Gelu, &[usize]); 3] = [
        (4, Gelu::Erf, &all),
        (
            8,
            Gelu::Tanh,
            &[1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 33, 40, 97],
        ),
        (11, Gelu::Erf, &[1, 3, 8, 10, 11, 12, 21, 23, 39, 264]),
    ];
    for (b, gelu, lengths) in cases {
        bench(b, lengths, gelu, 77).check(|_| 0);
    }
}

#[test]
fn pauses_between_instructions_change_nothing() {
    let mut rng = Rng(5);
    let bench = bench(5, &[3, 9, 30, 64], Gelu::Erf, 9);
    bench.check(|_| rng.below(4) * rng.below(40));
}

#[test]
fn verilator_agrees_with_the_interpreter() {
    if cosim::skip_without_verilator("nf_vector_unit") {
        return;
    }
    for b in [4, 8, 11] {
        let bench = bench(b, &[2, 8, 17, 33], Gelu::Erf, 40 + b as u64);
        let run = bench.check(|_| 0);
        let report = cosim::compare(&bench.def, &bench.stimulus(&run)).unwrap();
        assert!(report.words_compared > 100_000, "{report:?}");
    }
}
