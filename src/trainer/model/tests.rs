//! The machine against the reference: every weight, moment, LayerNorm parameter and loss, on every bit.

use super::*;
use crate::config::model::*;
use crate::reference::{State, Trainer};
use crate::trainer::alloc::{Problem, apply};
use crate::trainer::cycles::Costs;
use crate::trainer::layout::constant_table;
use crate::trainer::order::{Rule, Scheduler, reordered, take_turns};
use crate::trainer::program::{Choices, generate};
use crate::trainer::testing::*;
use crate::trainer::waits;

/// A program on a B x B array with `groups` activation groups, placed by the first placement found; with a window
/// and a rule, ordered by them before and after.
fn build(
    model: &ModelConfig,
    b: usize,
    groups: usize,
    choices: Choices,
    ordered: Option<(usize, Rule)>,
) -> (Shape, WeightLayout, Program) {
    let weights = WeightLayout::new(model, b);
    let costs = Costs::new(b, 1, 3).with_blocks(weights.scales.is_some());
    let mut logical = generate(model, &weights, choices);
    if let Some((window, rule)) = ordered {
        let order = Scheduler::new(&logical.instrs, &costs, false).order(window, rule);
        logical = reordered(&logical, &order.order, 3);
    }
    let problem = Problem::new(&logical);
    let depth = vec![problem.peak(); groups];
    let placement = &problem.placements(&depth, 1, 1000)[0];
    let mut placed = apply(&logical, placement);
    if let Some((window, rule)) = ordered {
        let order = Scheduler::new(&placed.instrs, &costs, true).order(window, rule);
        let instrs = order.order.iter().map(|&n| placed.instrs[n].clone());
        placed.instrs = instrs.collect();
        take_turns(&mut placed.instrs, 3);
    }
    let shape = Shape {
        b,
        adam_lanes: 1,
        gradient_tiles: 3,
        group_depth: placement.used.iter().map(|u| u + b).collect(),
        position_depth: (model.seq_len.div_ceil(b)) * model.embed_dim,
        weight_depth: weights.depth,
        layernorm_words: model.layernorm_parameters(),
        scalar_rows: logical.scalar_rows,
        mat_exps: placed.mat_exps,
        vec_exps: placed.vec_exps,
        weight_exps: weights.tensors.len(),
        constants: constant_table(model),
    };
    let program = waits::assign(&shape, placed.instrs);
    (shape, weights, program)
}

fn window(model: &ModelConfig, n: u32) -> Vec<u32> {
    let mut x = 0x1234_5678u32.wrapping_add(n.wrapping_mul(0x9e37_79b9));
    (0..=model.seq_len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            x % model.vocab as u32
        })
        .collect()
}

fn first_difference(model: &ModelConfig, got: &TrainerState, want: &TrainerState) -> String {
    for (t, (a, b)) in got.tensors.iter().zip(&want.tensors).enumerate() {
        if let Some(e) = (0..a.len()).find(|&e| a[e] != b[e]) {
            return format!("tensor {t} element {e}: {:x?} instead of {:x?}", a[e], b[e]);
        }
    }
    for (t, (a, b)) in got.scales.iter().zip(&want.scales).enumerate() {
        if let Some(k) = (0..a.len()).find(|&k| a[k] != b[k]) {
            return format!("tensor {t} block {k}: {:x?} instead of {:x?}", a[k], b[k]);
        }
    }
    for (n, (a, b)) in got.layernorm.iter().zip(&want.layernorm).enumerate() {
        if a != b {
            let d = model.embed_dim;
            return format!(
                "LayerNorm vector {} element {}: {a:x?} {b:x?}",
                n / d,
                n % d
            );
        }
    }
    "schedule or seed".into()
}

/// Trains both for `steps` steps.
fn same(model: &ModelConfig, b: usize, steps: u32, how: impl Fn(u32) -> Interleaving) {
    same_with(model, b, Choices::default(), None, steps, how);
}

fn same_with(
    model: &ModelConfig,
    b: usize,
    choices: Choices,
    ordered: Option<(usize, Rule)>,
    steps: u32,
    how: impl Fn(u32) -> Interleaving,
) {
    let (shape, weights, program) = build(model, b, 6, choices, ordered);
    waits::check(&shape, &program).unwrap();
    let state = State::init(model);
    let mut machine = Machine::new(model, &shape, &weights, &program).unwrap();
    machine.load(&TrainerState::from_reference(model, &state));
    let mut reference = Trainer::new(model, state, 1).unwrap();
    for step in 0..steps {
        let w = window(model, step);
        let tokens: Vec<usize> = w.iter().map(|&t| t as usize).collect();
        let evaluated = machine
            .evaluate(&tokens[..model.seq_len], &tokens[1..], how(step))
            .unwrap();
        let got = machine
            .train(&tokens[..model.seq_len], &tokens[1..], how(step))
            .unwrap();
        let logits = reference.logits(&w[..model.seq_len]).unwrap();
        let want = reference.step(&w).unwrap();
        assert_eq!(evaluated, got, "evaluation of step {step}");
        assert_eq!(got.loss_q24, want.loss_q24, "loss of step {step}");
        assert_eq!(got.correct as usize, want.correct);
        let last = &logits[logits.len() - model.vocab..];
        assert!(got.logits.iter().zip(last).all(|(a, b)| *a == b.to_bits()));
        assert!(!machine.memory.error);
        let got = machine.state();
        let want = TrainerState::from_reference(model, reference.state());
        assert!(
            got == want,
            "B = {b}, step {step}: {}",
            first_difference(model, &got, &want)
        );
    }
}

#[test]
fn tiny_equals_the_reference() {
    let mut model = tiny_model();
    for b in [2, 3, 4, 8, 16] {
        same(&model, b, 3, |_| Interleaving::InOrder);
    }
    model.head_combine = HeadCombine::Sum;
    model.gelu = Gelu::Erf;
    same(&model, 4, 3, |_| Interleaving::InOrder);
}

#[test]
fn odd_shapes_equal_the_reference_on_any_array() {
    for b in [4, 8, 11, 16, 23, 50] {
        same(&odd_model(), b, 2, |_| Interleaving::InOrder);
    }
}

#[test]
fn formats_and_optimisers_equal_the_reference() {
    let formats = [
        (WeightFormat::Bf16, MomentFormat::Fp32, Rounding::Nearest),
        (WeightFormat::Bf16, MomentFormat::Bf16, Rounding::Stochastic),
        (WeightFormat::Fp24, MomentFormat::Bf16, Rounding::Stochastic),
        (WeightFormat::Fp32, MomentFormat::Fp32, Rounding::Nearest),
        (WeightFormat::Fp24, MomentFormat::Int8, Rounding::Nearest),
        (WeightFormat::Bf16, MomentFormat::Int8, Rounding::Stochastic),
    ];
    for (n, (weight_format, moment_format, rounding)) in formats.into_iter().enumerate() {
        let model = ModelConfig {
            weight_format,
            moment_format,
            rounding,
            layernorm_optimizer: if n % 2 == 0 {
                LayerNormOptimizer::Sgd
            } else {
                LayerNormOptimizer::Adam
            },
            ..odd_model()
        };
        same(&model, 11, 3, |_| Interleaving::InOrder);
    }
}

/// Blocks of 44 columns on arrays that are smaller, as large and larger, in any order of the engines.
#[test]
fn block_moments_equal_the_reference_on_any_array() {
    let odd = ModelConfig {
        moment_format: MomentFormat::Int8,
        ..odd_model()
    };
    for (seed, b) in [4, 11, 16, 44, 48].into_iter().enumerate() {
        same(&odd, b, 2, |_| Interleaving::Random(seed as u64));
        let ordered = Some((64, Rule::LongestPath));
        same_with(&odd, b, Choices::default(), ordered, 1, |_| {
            Interleaving::InOrder
        });
    }
}

#[test]
fn waits_suffice_in_any_interleaving() {
    for seed in 0..12u64 {
        let b = [4, 8, 11, 16][seed as usize % 4];
        same(&odd_model(), b, 1, |_| Interleaving::Random(seed));
    }
    for seed in 0..60 {
        same(&tiny_model(), 4, 1, |_| Interleaving::Random(seed));
    }
}

/// Removing a wait must be noticed by the checker, and almost always by wrong bits.
#[test]
fn missing_waits_are_noticed() {
    let model = tiny_model();
    let (shape, weights, program) = build(&model, 4, 6, Choices::default(), None);
    let state = TrainerState::from_reference(&model, &State::init(&model));
    let w: Vec<usize> = window(&model, 0).iter().map(|&t| t as usize).collect();
    let run = |program: &Program, how| {
        let mut machine = Machine::new(&model, &shape, &weights, program).unwrap();
        machine.load(&state);
        let result = machine.train(&w[..model.seq_len], &w[1..], how).unwrap();
        (result, machine.state())
    };
    let want = run(&program, Interleaving::InOrder);
    let (mut removed, mut raced, mut wrong) = (0, 0, 0);
    for n in (0..program.mat.len()).step_by(3) {
        for engine in 0..3 {
            let mut broken = program.clone();
            let wait = &mut broken.mat[n].wait[engine];
            if std::mem::take(wait) == 0 {
                continue;
            }
            removed += 1;
            raced += usize::from(waits::check(&shape, &broken).is_err());
            let differs = (0..20).any(|seed| run(&broken, Interleaving::Random(seed)) != want);
            wrong += usize::from(differs);
        }
    }
    assert!(removed > 20, "{removed}");
    assert_eq!(raced, removed);
    assert!(wrong * 2 > removed, "{wrong} of {removed}");
}

/// The value of a chosen instruction equals what stands in memory after it.
#[test]
fn debug_hook_shows_a_tile() {
    let model = tiny_model();
    let (shape, weights, program) = build(&model, 4, 6, Choices::default(), None);
    let mut machine = Machine::new(&model, &shape, &weights, &program).unwrap();
    machine.load(&TrainerState::from_reference(&model, &State::init(&model)));
    let w: Vec<usize> = window(&model, 0).iter().map(|&t| t as usize).collect();
    // Tile 0 of the encoder: x0[t, j] = E[token, j] + PE[t, j].
    let tile = machine
        .run_until(&w[..model.seq_len], &w[1..], Engine::Mat, 0)
        .unwrap();
    let e = &State::init(&model).tensors[0].w;
    let pe = crate::num::constants::position_code(model.seq_len, model.embed_dim);
    for (lane, row) in tile.iter().enumerate() {
        for (j, &bits) in row.iter().enumerate() {
            let got = f32::from_bits(bits);
            let want = e[w[lane] * model.embed_dim + j] + pe[lane * model.embed_dim + j];
            assert!((got - want).abs() < 1e-4, "{lane} {j}: {got} {want}");
        }
    }
    let beyond = machine.run_until(&w[..model.seq_len], &w[1..], Engine::Adam, 1 << 20);
    assert!(beyond.is_err());
}

#[test]
fn every_choice_of_the_planner_equals_the_reference() {
    for encode_again in [false, true] {
        let choices = Choices { encode_again };
        for (window, rule) in [
            (0, Rule::Emitted),
            (16, Rule::LongestPath),
            (64, Rule::Emitted),
            (500, Rule::LongestPath),
        ] {
            for (model, b) in [(odd_model(), 11), (tiny_model(), 4)] {
                let ordered = Some((window, rule));
                same_with(&model, b, choices, ordered, 1, |_| Interleaving::Random(5));
            }
        }
    }
}
