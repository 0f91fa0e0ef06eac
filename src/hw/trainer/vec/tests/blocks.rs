//! The parts alone: scalar unit against the arithmetic, printed text, Verilator.

use super::harness::Rng;
use crate::config::model::Gelu;
use crate::dsl::{Interpreter, print_module};
use crate::hw::trainer::vec::scalar::first_write;
use crate::hw::trainer::vec::{LaneSpec, ScalarSpec, scalar_unit, table_unit, vector_lane};
use crate::num::fp32::{add, div, mul, sqrt};
use crate::num::tables::LnTable;
use crate::sim::cosim::{self, Stimulus};
use crate::trainer::isa::Post;

const EPS: f32 = 1e-5;

fn lane_spec() -> LaneSpec {
    LaneSpec {
        scalar_rows: 6,
        index_bits: 5,
        lead: 1,
    }
}

fn scalar_spec(lanes: usize) -> ScalarSpec {
    ScalarSpec {
        lanes,
        scalar_rows: 8,
        eps: EPS,
    }
}

/// One operation of the scalar unit on all lanes.
struct Operation {
    post: Post,
    factor: f32,
    count: bool,
    nc: usize,
    results: Vec<f32>,
    targets: Vec<f32>,
    hits: Vec<bool>,
}

impl Operation {
    fn random(lanes: usize, rng: &mut Rng) -> Self {
        let post = [
            Post::None,
            Post::Raw,
            Post::Mean,
            Post::NegMean,
            Post::Rstd,
            Post::Recip,
            Post::CrossEntropy,
        ][rng.below(7)];
        // Sums of squares and of exponentials are not negative; the latter are at least 1.
        let result = |rng: &mut Rng| match post {
            Post::Rstd | Post::Recip => rng.value().abs() + 1e-3,
            Post::CrossEntropy => 1.0 + rng.value().abs() * [1.0, 8.0, 100.0][rng.below(3)],
            _ => rng.value() * 50.0,
        };
        Operation {
            post,
            factor: rng.value(),
            count: rng.below(2) == 1,
            nc: 1 + rng.below(lanes),
            results: (0..lanes).map(|_| result(rng)).collect(),
            targets: (0..lanes)
                .map(|_| -rng.value().abs() * [0.01, 1.0, 40.0][rng.below(3)])
                .collect(),
            hits: (0..lanes).map(|_| rng.below(2) == 1).collect(),
        }
    }

    fn scalar(&self, lane: usize) -> f32 {
        let acc = self.results[lane];
        match self.post {
            Post::None => 0.0,
            Post::Raw => acc,
            Post::Mean => mul(acc, self.factor),
            Post::NegMean => -mul(acc, self.factor),
            Post::Rstd => div(1.0, sqrt(add(mul(acc, self.factor.abs()), EPS))),
            Post::Recip | Post::CrossEntropy => div(1.0, acc),
        }
    }

    fn loss(&self, ln: &LnTable) -> i64 {
        let one = |lane: usize| {
            let distance = f64::from((-self.targets[lane]).min(127.0)) * 16_777_216.0;
            ln.ln_fx(self.results[lane]) + distance as i64
        };
        match self.post {
            Post::CrossEntropy => (0..self.nc).map(one).sum(),
            _ => 0,
        }
    }
}

#[test]
fn the_scalar_unit_equals_the_arithmetic() {
    let mut rng = Rng(31);
    let ln = LnTable::new();
    for lanes in [2, 5, 16, 21] {
        let mut sim = Interpreter::new(&scalar_unit(&scalar_spec(lanes)).unwrap());
        let (mut loss, mut correct, mut cases) = (0, 0, 0);
        for round in 0..60 {
            let op = Operation::random(lanes, &mut rng);
            sim.set_input("go", 1);
            sim.set_input("post", op.post as u128);
            sim.set_input("row", round % 8);
            let factor = match op.post {
                Post::Rstd => op.factor.abs(),
                _ => op.factor,
            };
            sim.set_input("factor", u128::from(factor.to_bits()));
            sim.set_input("nc", op.nc as u128);
            sim.set_input("count_hits", u128::from(op.count));
            for l in 0..lanes {
                sim.set_input(&format!("result_{l}"), u128::from(op.results[l].to_bits()));
                sim.set_input(
                    &format!("result_target_{l}"),
                    u128::from(op.targets[l].to_bits()),
                );
                sim.set_input(&format!("result_hit_{l}"), u128::from(op.hits[l]));
            }
            sim.step();
            sim.set_input("go", 0);
            let mut written = 0;
            for cycle in 1..first_write(lanes) as usize + lanes + 4 {
                for l in 0..lanes {
                    if sim.get_output(&format!("scalar_we_{l}")) == 0 {
                        continue;
                    }
                    assert_eq!(cycle, first_write(lanes) as usize + l);
                    assert_eq!(sim.get_output("scalar_row"), round % 8);
                    let got = sim.get_output("scalar_data") as u32;
                    let want = op.scalar(l).to_bits();
                    assert_eq!(got, want, "{:?} of {}", op.post, op.results[l]);
                    assert_eq!(sim.get_output("done") == 1, l == op.nc - 1);
                    written += 1;
                }
                sim.step();
            }
            let expected = if op.post == Post::None { 0 } else { op.nc };
            assert_eq!(written, expected);
            loss += op.loss(&ln);
            let right = op.hits[..op.nc].iter().filter(|h| **h).count();
            correct += if op.count { right } else { 0 };
            cases += usize::from(op.post == Post::CrossEntropy);
            assert_eq!(sim.get_output("loss_q24") as i64, loss, "{lanes} lanes");
            assert_eq!(sim.get_output("correct") as usize, correct);
        }
        assert!(cases > 2);
        sim.set_input("sample_start", 1);
        sim.step();
        assert_eq!(sim.get_output("loss_q24"), 0);
        assert_eq!(sim.get_output("correct"), 0);
    }
}

#[test]
fn the_blocks_print_readably() {
    let blocks = [
        ("table_unit", table_unit(Gelu::Erf, 1)),
        ("vector_lane", vector_lane(&lane_spec())),
        ("scalar_unit", scalar_unit(&scalar_spec(4))),
    ];
    for (name, def) in blocks {
        let text = print_module(&def.unwrap(), "Generated by nfgen. Do not edit.");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn verilator_agrees_on_random_stimulus() {
    if cosim::skip_without_verilator("blocks of the vector unit") {
        return;
    }
    for (k, def) in [
        table_unit(Gelu::Tanh, 2),
        vector_lane(&lane_spec()),
        scalar_unit(&scalar_spec(5)),
    ]
    .into_iter()
    .enumerate()
    {
        let def = def.unwrap();
        let stimulus = Stimulus::random(&def, 3000, 90 + k as u64);
        let report = cosim::compare(&def, &stimulus).unwrap();
        assert!(report.words_compared >= 6000, "{report:?}");
    }
}
