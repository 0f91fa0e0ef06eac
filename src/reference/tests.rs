//! The trainer against f64, against itself on other threads and instruction sets, and at its borders.

use super::oracle::{self, Mat};
use super::simd::Level;
use super::*;
use crate::config::model::*;
use crate::num::schedule::tests::paper;
use crate::num::threefry::threefry2x32;

/// A small model whose dimensions divide nothing.
pub(crate) fn odd_model() -> ModelConfig {
    ModelConfig {
        name: "odd".into(),
        vocab: 29,
        seq_len: 21,
        embed_dim: 18,
        heads: 3,
        ff_dim: 37,
        layers: 2,
        weight_format: WeightFormat::Fp32,
        lr_peak: 0.01,
        warmup_steps: 5,
        total_steps: 60,
        ..paper()
    }
}

pub(crate) fn window(model: &ModelConfig, number: u32) -> Vec<u32> {
    (0..=model.seq_len as u32)
        .map(|i| threefry2x32([17, number], [i / 2, i % 2])[0] % model.vocab as u32)
        .collect()
}

fn number(i: usize) -> f64 {
    f64::from(threefry2x32([3, 5], [i as u32, 0])[0]) / 2_147_483_648.0 - 1.0
}

fn wide(state: &State) -> Vec<Vec<f64>> {
    state
        .tensors
        .iter()
        .map(|t| t.w.iter().map(|&x| f64::from(x)).collect())
        .collect()
}

/// Central differences of `f` at `x`, compared with `gradient`.
fn check_differences(x: &mut [f64], gradient: &[f64], mut f: impl FnMut(&[f64]) -> f64) {
    let size = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
    assert!(size > 1e-6);
    for i in (0..x.len()).step_by(x.len().div_ceil(40)) {
        let (keep, h) = (x[i], 1e-5);
        x[i] = keep + h;
        let up = f(x);
        x[i] = keep - h;
        let slope = (up - f(x)) / (2.0 * h);
        x[i] = keep;
        assert!(
            (slope - gradient[i]).abs() < 1e-7 * (1.0 + size),
            "{i}: {slope} {}",
            gradient[i]
        );
    }
}

#[test]
fn oracle_layernorm_matches_differences() {
    let (r, c) = (3, 7);
    let mut x: Vec<f64> = (0..r * c).map(number).collect();
    let dn = Mat::from(r, c, (100..100 + r * c).map(number).collect());
    let g: Vec<f64> = (200..200 + c).map(|i| 1.0 + 0.3 * number(i)).collect();
    let b: Vec<f64> = (300..300 + c).map(number).collect();
    let value = |x: &[f64], g: &[f64], b: &[f64]| -> f64 {
        let (n, _, _) = oracle::layernorm(&Mat::from(r, c, x.to_vec()), g, b);
        n.a.iter().zip(&dn.a).map(|(a, b)| a * b).sum()
    };
    let (_, xhat, rstd) = oracle::layernorm(&Mat::from(r, c, x.clone()), &g, &b);
    let (dx, dg, db) = oracle::layernorm_back(&dn, &xhat, &rstd, &g);
    check_differences(&mut x, &dx.a, |x| value(x, &g, &b));
    check_differences(&mut g.clone(), &dg, |g| value(&x, g, &b));
    check_differences(&mut b.clone(), &db, |b| value(&x, &g, b));
}

#[test]
fn oracle_softmax_matches_differences() {
    let n = 6;
    let mut s: Vec<f64> = (0..n * n).map(|i| 2.0 * number(i)).collect();
    let dp = Mat::from(n, n, (50..50 + n * n).map(number).collect());
    for causal in [true, false] {
        let p = oracle::softmax(&Mat::from(n, n, s.clone()), causal);
        let ds = oracle::softmax_back(&p, &dp);
        check_differences(&mut s, &ds.a, |s| {
            let p = oracle::softmax(&Mat::from(n, n, s.to_vec()), causal);
            p.a.iter().zip(&dp.a).map(|(a, b)| a * b).sum()
        });
    }
}

#[test]
fn oracle_model_matches_differences_in_every_tensor() {
    for (gelu, head_combine) in [
        (Gelu::Erf, HeadCombine::Mean),
        (Gelu::Tanh, HeadCombine::Sum),
    ] {
        let model = ModelConfig {
            gelu,
            head_combine,
            ..odd_model()
        };
        let tokens = window(&model, 0);
        let mut w = wide(&State::init(&model));
        for (k, tensor) in w.iter_mut().enumerate() {
            for (i, x) in tensor.iter_mut().enumerate() {
                *x += 0.1 * number(k * 1000 + i);
            }
        }
        let (_, grads) = oracle::gradients(&model, &w, &tokens);
        for k in 0..w.len() {
            let mut x = w[k].clone();
            let mut all = w.clone();
            check_differences(&mut x, &grads[k], |x| {
                all[k].copy_from_slice(x);
                oracle::gradients(&model, &all, &tokens).0
            });
        }
    }
}

/// Relative L2 error of each gradient tensor.
pub(crate) fn gradient_errors(
    model: &ModelConfig,
    state: &State,
    tokens: &[u32],
) -> Vec<(String, f64)> {
    let (loss, want) = oracle::gradients(model, &wide(state), tokens);
    let mut trainer = Trainer::new(model, state.clone(), 2).unwrap();
    let (result, got) = trainer.gradients(tokens).unwrap();
    assert!(
        (result.mean_loss() - loss).abs()
            < if model.compute.cut() > Some(0) {
                0.05
            } else {
                1e-4
            },
        "{} {loss}",
        result.mean_loss()
    );
    TensorId::all(model)
        .iter()
        .zip(got.iter().zip(&want))
        .map(|(id, (got, want))| {
            let size = want.iter().map(|x| x * x).sum::<f64>().sqrt();
            let error = got
                .iter()
                .zip(want)
                .map(|(&a, b)| (f64::from(a) - b).powi(2))
                .sum::<f64>()
                .sqrt();
            (id.name(), error / size)
        })
        .collect()
}

#[test]
fn gradients_match_the_oracle() {
    for (gelu, head_combine) in [
        (Gelu::Erf, HeadCombine::Mean),
        (Gelu::Tanh, HeadCombine::Sum),
    ] {
        for (compute, bound) in [(Compute::Fp32, 2e-5), (Compute::Block18, 3e-3)] {
            let model = ModelConfig {
                gelu,
                head_combine,
                compute,
                ..odd_model()
            };
            let state = State::init(&model);
            for (name, error) in gradient_errors(&model, &state, &window(&model, 1)) {
                assert!(error < bound, "{compute:?} {name}: {error}");
            }
        }
    }
}

fn train(model: &ModelConfig, threads: usize, level: Level, steps: u32) -> (State, Vec<i64>) {
    let mut trainer = Trainer::with_level(model, State::init(model), threads, level).unwrap();
    let losses = (0..steps)
        .map(|i| trainer.step(&window(model, i % 3)).unwrap().loss_q24)
        .collect();
    (trainer.into_state(), losses)
}

#[test]
fn threads_and_instruction_sets_change_no_bit() {
    for (weight_format, moment_format, rounding) in [
        (WeightFormat::Bf16, MomentFormat::Fp32, Rounding::Nearest),
        (WeightFormat::Bf16, MomentFormat::Bf16, Rounding::Stochastic),
        (WeightFormat::Fp24, MomentFormat::Bf16, Rounding::Nearest),
        (WeightFormat::Fp24, MomentFormat::Int8, Rounding::Nearest),
    ] {
        let model = ModelConfig {
            weight_format,
            moment_format,
            rounding,
            ..odd_model()
        };
        let (state, losses) = train(&model, 1, Level::Portable, 20);
        assert!(losses[19] < losses[0] * 9 / 10, "{losses:?}");
        for level in Level::available() {
            for threads in [1, 2, 3] {
                let (other, other_losses) = train(&model, threads, level, 20);
                assert_eq!(losses, other_losses, "{level:?} {threads}");
                assert!(state == other, "{level:?} {threads}");
            }
        }
    }
}

#[test]
fn fp32_does_not_depend_on_threads() {
    let model = ModelConfig {
        compute: Compute::Fp32,
        ..odd_model()
    };
    let level = Level::detect();
    assert!(train(&model, 1, level, 10) == train(&model, 3, level, 10));
}

#[test]
fn a_batch_of_equal_windows_is_one_window() {
    let model = odd_model();
    let tokens = window(&model, 0);
    let mut one = Trainer::new(&model, State::init(&model), 1).unwrap();
    let mut four = Trainer::new(&model, State::init(&model), 1).unwrap();
    for _ in 0..3 {
        let a = one.step(&tokens).unwrap();
        let b = four.step_batch(&[&tokens[..]; 4]).unwrap();
        assert_eq!((a.loss, a.lr), (b.loss, b.lr));
    }
    assert!(one.state() == four.state());
}

#[test]
fn trace_shows_the_step_without_changing_it() {
    let model = odd_model();
    let tokens = window(&model, 0);
    let mut plain = Trainer::new(&model, State::init(&model), 2).unwrap();
    let mut traced = Trainer::new(&model, State::init(&model), 2).unwrap();
    let mut names = Vec::new();
    let mut show = |name: &str, shape: [usize; 2], values: &[f32]| {
        assert_eq!(values.len(), shape[0] * shape[1]);
        names.push(name.to_string());
    };
    assert_eq!(
        plain.step(&tokens).unwrap(),
        traced.step_traced(&tokens, &mut show).unwrap()
    );
    assert!(plain.state() == traced.state());
    for name in [
        "x0",
        "layers.1.p.2",
        "z",
        "dz",
        "layers.0.ds.0",
        "layers.0.dx",
    ] {
        assert!(names.iter().any(|n| n == name), "{name} not in {names:?}");
    }
}

#[test]
fn eval_and_logits_agree_with_the_step() {
    let model = odd_model();
    let tokens = window(&model, 2);
    let mut trainer = Trainer::new(&model, State::init(&model), 2).unwrap();
    let before = trainer.state().clone();
    let result = trainer.eval(&tokens).unwrap();
    let logits = trainer.logits(&tokens[..model.seq_len]).unwrap();
    let short = trainer.logits(&tokens[..5]).unwrap();
    assert!(*trainer.state() == before);
    assert_eq!(trainer.step(&tokens).unwrap().loss_q24, result.loss_q24);
    let v = model.vocab;
    let mut loss = 0.0;
    for (row, &target) in logits.chunks(v).zip(&tokens[1..]) {
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        loss += sum.ln() - f64::from(row[target as usize]);
    }
    assert!((loss / model.seq_len as f64 - result.mean_loss()).abs() < 1e-4);
    // A short window sees the same past, on grids of its own.
    for (a, b) in short.iter().zip(&logits[..5 * v]) {
        assert!((a - b).abs() < 1e-3);
    }
}

#[test]
fn bad_windows_are_errors() {
    let model = odd_model();
    let mut trainer = Trainer::new(&model, State::init(&model), 1).unwrap();
    let mut tokens = window(&model, 0);
    let message = trainer.step(&tokens[1..]).unwrap_err().to_string();
    assert_eq!(message, "a window of 21 tokens was given; 22 are needed");
    tokens[4] = 29;
    let message = trainer.step(&tokens).unwrap_err().to_string();
    assert_eq!(
        message,
        "token 29 at position 4 is outside the vocabulary of 29"
    );
    assert!(trainer.logits(&[]).is_err());
    assert!(trainer.step_batch(&[]).is_err());
}

#[test]
fn infinities_are_errors_on_every_thread() {
    let model = odd_model();
    let mut state = State::init(&model);
    let huge = state.tensor_mut(TensorId::W2(0));
    huge.w.fill(3e38);
    state.tensor_mut(TensorId::W1(0)).w.fill(1e30);
    for threads in [1, 2] {
        let mut trainer = Trainer::new(&model, state.clone(), threads).unwrap();
        let error = trainer.step(&window(&model, 0)).unwrap_err();
        assert!(matches!(error, ReferenceError::NotFinite { .. }), "{error}");
    }
    state.tensor_mut(TensorId::Wo(1)).w[3] = f32::NAN;
    let error = Trainer::new(&model, state, 1).err().unwrap().to_string();
    assert_eq!(error, "layers.1.wo: element 3 is NaN");
}
