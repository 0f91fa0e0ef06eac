//! The whole core against the model.

use super::Random;
use super::bench::Bench;
use super::model::Machine;
use crate::config::model::WeightFormat;
use crate::dsl::ModuleDef;
use crate::hw::trainer::mat::*;
use crate::sim::cosim::Stimulus;
use crate::trainer::encode::{Encoded, encode_mat, exp_number};
use crate::trainer::isa::*;
use std::sync::Arc;

const GROUPS: usize = 4;
const TOKENS: usize = 40;
const VOCAB: usize = 29;
const MAT_EXPS: usize = 5;

fn shape(b: usize) -> Shape {
    Shape {
        b,
        adam_lanes: 1,
        gradient_tiles: 2,
        group_depth: (0..GROUPS).map(|g| 100.max(4 * b) + 7 * g).collect(),
        position_depth: 90,
        weight_depth: 130.max(5 * b),
        layernorm_words: 4,
        scalar_rows: 4,
        mat_exps: MAT_EXPS,
        vec_exps: 2,
        weight_exps: 3,
        constants: vec![0x3f80_0000, 0x3e80_0000, 0x3eaa_aaab],
    }
}

/// Memories full of random values with exponents that exercise all shifts of the aligner.
fn machine(shape: &Shape, format: WeightFormat, random: &mut Random) -> Machine {
    let mut banks = |depth: usize, cut: u32| -> Vec<Vec<u32>> {
        (0..shape.b)
            .map(|_| (0..depth).map(|_| random.float(110, 131) >> cut).collect())
            .collect()
    };
    let acts = shape.group_depth.iter().map(|d| banks(*d, 0)).collect();
    let position = banks(shape.position_depth, 0);
    let weights = banks(shape.weight_depth, 32 - format.bits());
    let grads = vec![vec![0; 2 * shape.b]; shape.b];
    let exps = 1 + shape.mat_exps + shape.vec_exps + shape.weight_exps;
    Machine {
        b: shape.b,
        format,
        acts,
        position,
        weights,
        grads,
        tokens: (0..TOKENS).map(|_| random.below(VOCAB)).collect(),
        exps: (0..exps)
            .map(|n| {
                if n == 0 {
                    127
                } else {
                    128 + random.below(8) as u32
                }
            })
            .collect(),
        constants: shape.constants.clone(),
        error: false,
    }
}

/// A random operand stream that stays inside `depth` words for k steps of B lanes.
fn stream(random: &mut Random, b: usize, mode: Mode, k: usize, depth: usize) -> Stream {
    let turns = (k - 1) / b;
    let (reach, pitch) = match mode {
        Mode::V => (k - 1, random.below(50)),
        Mode::H => {
            let room = depth.saturating_sub(b + 1);
            let most = room.checked_div(turns).unwrap_or(50);
            let pitch = random.below(most.min(50) + 1);
            (turns * pitch + b - 1, pitch)
        }
    };
    Stream {
        addr: random.below(depth - reach),
        rot: random.below(b),
        pitch,
    }
}

fn mode(random: &mut Random) -> Mode {
    if random.one_in(2) { Mode::V } else { Mode::H }
}

/// A random instruction that reads `reads` (groups) and writes group `writes` or the gradients.
fn instruction(random: &mut Random, shape: &Shape, reads: &[usize], writes: usize) -> MatInstr {
    let b = shape.b;
    let mut k = match random.below(4) {
        0 => 1,
        1 => 1 + random.below(3),
        _ => 1 + random.below(3 * b),
    };
    let nr = if random.one_in(3) {
        1
    } else {
        1 + random.below(b)
    };
    let nc = 1 + random.below(b);
    let pick = |random: &mut Random| reads[random.below(reads.len())];
    let (row_mode, col_mode) = (mode(random), mode(random));
    let hot = random.one_in(4);
    if hot {
        k = match col_mode {
            Mode::V => VOCAB,
            Mode::H => TOKENS.min(3 * b),
        };
    }
    let (row_source, row_depth) = match random.below(5) {
        0 => (RowSource::Ones, shape.weight_depth),
        1 | 2 => (RowSource::Weights, shape.weight_depth),
        _ => {
            let g = pick(random);
            (RowSource::Act(g), shape.group_depth[g])
        }
    };
    let (col_source, mut col) = match hot {
        true => {
            let addr = match col_mode {
                Mode::V => random.below(TOKENS.div_ceil(b)),
                Mode::H => random.below(VOCAB.div_ceil(b)) * b,
            };
            let rot = random.below(b);
            (
                ColSource::OneHot,
                Stream {
                    addr,
                    rot,
                    pitch: 3,
                },
            )
        }
        false => {
            let g = pick(random);
            let s = stream(random, b, col_mode, k, shape.group_depth[g]);
            (ColSource::Act(g), s)
        }
    };
    let nc = match (hot, col_mode) {
        // Lanes inside the tensor only.
        (true, Mode::V) => nc.min(TOKENS - (col.addr * b).min(TOKENS - 1)),
        (true, Mode::H) => nc.min(VOCAB - col.addr),
        _ => nc,
    };
    if hot {
        col.pitch = random.below(9);
    }
    let (add_source, add_depth) = match random.below(3) {
        0 => (AddSource::None, 50),
        1 => (AddSource::Position, shape.position_depth),
        _ => {
            let g = pick(random);
            (AddSource::Act(g), shape.group_depth[g])
        }
    };
    let grad = random.one_in(4);
    let exp = |random: &mut Random| match random.below(3) {
        0 => ExpId::Mat(random.below(MAT_EXPS - 1)),
        1 => ExpId::Vec(random.below(2)),
        _ => ExpId::Weight(random.below(3)),
    };
    MatInstr {
        phase: Phase::Forward,
        wait: [0; 3],
        row_source,
        row_mode,
        row: stream(random, b, row_mode, k, row_depth),
        row_exp: match row_source {
            RowSource::Ones => ExpId::One,
            _ => exp(random),
        },
        col_source,
        col_mode,
        col,
        col_exp: if hot { ExpId::One } else { exp(random) },
        k,
        nr,
        nc,
        scale: (!random.one_in(2)).then(|| random.below(3)),
        add_source,
        add: stream(random, b, Mode::V, nr, add_depth),
        dest: match grad {
            true => MatDest::Grad(random.below(2)),
            false => MatDest::Act(writes),
        },
        dst: stream(random, b, Mode::V, nr, shape.group_depth[writes]),
        // The last register is written by all, so it is no operand of a running instruction.
        dst_exp: (!grad && !random.one_in(4)).then_some(MAT_EXPS - 1),
        dst_first: random.one_in(2),
    }
}

/// Half of the instructions run back to back (they write group 3 and read the others), the
/// others wait for all before them and write what others read.
fn program(random: &mut Random, shape: &Shape, n: usize) -> (Vec<MatInstr>, Vec<usize>) {
    let mut waits = vec![];
    let mut list = vec![];
    let mut dirty = false;
    for k in 0..n {
        let alone = random.one_in(8);
        waits.push(if alone || dirty { k } else { 0 });
        dirty = alone;
        list.push(match alone {
            true => {
                let writes = random.below(GROUPS);
                let reads: Vec<usize> = (0..GROUPS).filter(|g| *g != writes).collect();
                let mut i = instruction(random, shape, &reads, writes);
                if random.one_in(2) {
                    // Accumulate in place: every row is read before it is written.
                    i.add_source = AddSource::Act(writes);
                    i.dest = MatDest::Act(writes);
                    i.add = i.dst;
                }
                i
            }
            false => instruction(random, shape, &[0, 1, 2], 3),
        });
    }
    (list, waits)
}

pub fn config<'a>(shape: &'a Shape, words: &'a Encoded, format: WeightFormat) -> MatConfig<'a> {
    MatConfig {
        shape,
        layout: &words.layout,
        format,
        tokens: TOKENS,
        vocab: VOCAB,
        scale: Scale::Multiplier,
    }
}

fn compare(b: usize, format: WeightFormat, n: usize, seed: u64) -> Bench {
    let random = &mut Random(seed);
    let shape = shape(b);
    let (program, waits) = program(random, &shape, n);
    let words = encode_mat(&shape, &program);
    let def = attention_core(&config(&shape, &words, format)).unwrap();
    let start = machine(&shape, format, random);
    let mut bench = Bench::new(&def, &start);
    let mut gaps = Random(seed + 1);
    bench.run(
        &program,
        &words,
        |_| if gaps.one_in(4) { gaps.below(6) } else { 0 },
        |k| waits[k],
    );
    let mut want = start.clone();
    for i in &program {
        let number = |id| exp_number(&shape, id);
        want.execute(i, number(i.row_exp), number(i.col_exp));
    }
    assert!(!want.error, "the test's values overflow");
    assert_eq!(bench.errors, 0);
    for (g, group) in want.acts.iter().enumerate() {
        for (bank, words) in group.iter().enumerate() {
            for (at, word) in words.iter().enumerate() {
                let got = bench.state.acts[g][bank][at];
                assert_eq!(got, *word, "B = {b}: group {g} bank {bank} word {at}");
            }
        }
    }
    assert_eq!(bench.state.grads, want.grads);
    assert_eq!(bench.state.exps, want.exps);
    assert_eq!(bench.weights(), start.weights);
    let timing = MatTiming::new(b);
    for (k, (p, i)) in bench.passages.iter().zip(&program).enumerate() {
        let cost = timing.start_to_retire(i.k, i.nr);
        assert_eq!(p.retire - p.start, cost, "retire of instruction {k}: {i:?}");
        let ready = timing.start_to_ready(i.k, i.tail(b, program.get(k + 1)));
        assert_eq!(p.ready - p.start, ready, "ready of instruction {k}: {i:?}");
    }
    bench
}

/// A short program and its shape.
pub fn small_program(b: usize) -> (Shape, Encoded) {
    let shape = shape(b);
    let (program, _) = program(&mut Random(3), &shape, 12);
    let words = encode_mat(&shape, &program);
    (shape, words)
}

/// A core and the inputs of a random program of `n` instructions, checked against the model.
pub fn recorded(b: usize, format: WeightFormat, n: usize) -> (Arc<ModuleDef>, Stimulus) {
    let bench = compare(b, format, n, 77 + b as u64);
    let mut stimulus = Stimulus::zero(&bench.def, bench.frames.len());
    for (cycle, frame) in bench.frames.iter().enumerate() {
        for (input, limbs) in frame.iter().enumerate() {
            stimulus.set_limbs(cycle, input, limbs);
        }
    }
    (bench.def.clone(), stimulus)
}

/// One instruction: the product of groups 0 (rows) and 1 (columns) into group 3.
fn single(k: usize, nr: usize, nc: usize) -> MatInstr {
    MatInstr {
        phase: Phase::Forward,
        wait: [0; 3],
        row_source: RowSource::Act(0),
        row_mode: Mode::V,
        row: Stream::default(),
        row_exp: ExpId::Mat(0),
        col_source: ColSource::Act(1),
        col_mode: Mode::V,
        col: Stream::default(),
        col_exp: ExpId::Mat(1),
        k,
        nr,
        nc,
        scale: None,
        add_source: AddSource::None,
        add: Stream::default(),
        dest: MatDest::Act(3),
        dst: Stream::default(),
        dst_exp: Some(4),
        dst_first: true,
    }
}

/// Runs one instruction after `prepare` changed memories and exponents; compares with the model.
fn run_single(i: MatInstr, prepare: impl Fn(&mut Machine)) -> (Bench, Machine) {
    let shape = shape(4);
    let mut start = machine(&shape, WeightFormat::Bf16, &mut Random(8));
    prepare(&mut start);
    let words = encode_mat(&shape, std::slice::from_ref(&i));
    let def = attention_core(&config(&shape, &words, WeightFormat::Bf16)).unwrap();
    let mut bench = Bench::new(&def, &start);
    bench.run(std::slice::from_ref(&i), &words, |_| 0, |_| 0);
    let number = |id| exp_number(&shape, id);
    start.execute(&i, number(i.row_exp), number(i.col_exp));
    (bench, start)
}

#[test]
fn an_all_zero_tensor_gives_zero() {
    let i = single(9, 4, 3);
    let (bench, want) = run_single(i, |m| {
        m.exps[1] = 0;
        for bank in &mut m.acts[0] {
            // A zero of either sign.
            bank.iter_mut().for_each(|x| *x &= 0x8000_0000);
        }
    });
    assert_eq!(bench.state.acts, want.acts);
    assert!((0..4).all(|bank| (0..4).all(|r| want.acts[3][bank][r] == 0)));
    assert_eq!((bench.state.exps[5], bench.errors), (0, 0));
}

#[test]
fn infinities_raise_the_error_pulse() {
    // An operand tensor with exponent 255: once per step.
    let (bench, want) = run_single(single(3, 1, 4), |m| m.exps[2] = 255);
    assert!(want.error);
    assert!(bench.errors >= 1);
    // A product that leaves the range.
    let (bench, want) = run_single(single(4, 2, 4), |m| {
        (m.exps[1], m.exps[2]) = (250, 250);
        for g in 0..2 {
            for bank in &mut m.acts[g] {
                bank.iter_mut().for_each(|x| *x = 0x7d00_0000);
            }
        }
    });
    assert!(want.error);
    assert_eq!(bench.state.acts[3], want.acts[3]);
    assert_eq!((bench.state.exps[5], bench.errors), (255, 2));
    // The same values in a lane outside the matrix do no harm.
    let (bench, want) = run_single(single(4, 2, 1), |m| {
        (m.exps[1], m.exps[2]) = (120, 120);
        for (bank, words) in m.acts[1].iter_mut().enumerate() {
            for (at, x) in words.iter_mut().enumerate() {
                // Lane 0 of step s is in bank s.
                *x = if bank == at % 4 {
                    0x3c00_0000
                } else {
                    0x7f80_0000
                };
            }
        }
        for bank in &mut m.acts[0] {
            bank.iter_mut().for_each(|x| *x = 0x3c10_0000);
        }
    });
    assert!(!want.error);
    assert_eq!(bench.state.acts[3], want.acts[3]);
    assert_eq!(bench.errors, 0);
}

#[test]
fn one_row_tiles_follow_each_other_without_a_gap() {
    // 30 products of one row and one step, started as fast as the core is ready.
    let shape = shape(4);
    let list: Vec<MatInstr> = (0..30)
        .map(|n| MatInstr {
            dst: Stream {
                addr: n,
                rot: n % 4,
                pitch: 0,
            },
            col_exp: [ExpId::Mat(1), ExpId::Vec(0)][n % 2],
            ..single(1, 1, 1 + n % 4)
        })
        .collect();
    let start = machine(&shape, WeightFormat::Bf16, &mut Random(12));
    let words = encode_mat(&shape, &list);
    let def = attention_core(&config(&shape, &words, WeightFormat::Bf16)).unwrap();
    let mut bench = Bench::new(&def, &start);
    bench.run(&list, &words, |_| 0, |_| 0);
    let mut want = start;
    for i in &list {
        want.execute(
            i,
            exp_number(&shape, i.row_exp),
            exp_number(&shape, i.col_exp),
        );
    }
    assert_eq!(bench.state.acts, want.acts);
    let starts: Vec<u64> = bench.passages.iter().map(|p| p.start).collect();
    assert!(starts.windows(2).all(|w| w[1] - w[0] == 1), "{starts:?}");
}

#[test]
fn random_programs_equal_the_model() {
    for (b, format) in [
        (4, WeightFormat::Bf16),
        (8, WeightFormat::Fp24),
        (11, WeightFormat::Fp32),
        (11, WeightFormat::Bf16),
    ] {
        compare(b, format, 150, 1000 + b as u64);
    }
    compare(16, WeightFormat::Bf16, 40, 1016);
    compare(44, WeightFormat::Bf16, 6, 1044);
}
