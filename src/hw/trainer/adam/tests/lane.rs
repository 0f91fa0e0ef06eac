use super::model::{Rule, Stored, gradient, parameter};
use crate::config::model::*;
use crate::hw::bench::Bench;
use crate::hw::trainer::adam::lane::{AdamLane, HASH_LEAD};
use rand::RngExt;

struct Item {
    valid: bool,
    layernorm: bool,
    stored: Stored,
    g: f32,
    element: u32,
    tensor: u32,
}

fn run(rule: &Rule, layernorm: Option<LayerNormOptimizer>, replay: bool) {
    let lane = AdamLane {
        weights: rule.weights,
        moments: rule.moments,
        rounding: rule.rounding,
        layernorm,
    };
    let rule = &Rule {
        layernorm: layernorm.unwrap_or(LayerNormOptimizer::Adam),
        ..rule.clone()
    };
    let def = lane.build().unwrap();
    let mut bench = Bench::new(&def, 21);
    for (name, value) in rule.inputs() {
        if def.input_index(name).is_some() {
            bench.set(name, value as u128);
        }
    }
    let sgd = layernorm == Some(LayerNormOptimizer::Sgd);
    let (early, late) = (
        lane.moment_latency() as usize,
        lane.weight_latency() as usize,
    );
    let mut items: Vec<Item> = vec![];
    for _ in 0..400 {
        let layernorm = layernorm.is_some() && bench.chance(0.4);
        let (w, m) = match layernorm {
            true => (WeightFormat::Fp32, MomentFormat::Fp32),
            false => (rule.weights, rule.moments),
        };
        items.push(Item {
            valid: bench.chance(0.8),
            layernorm,
            stored: parameter(&mut bench.rng, w, m),
            g: gradient(&mut bench.rng),
            element: bench.rng.random(),
            tensor: bench.rng.random_range(0..17),
        });
    }
    let (mut compared, mut gaps) = (0, 0);
    for cycle in 0..items.len() + late + 3 {
        // The hash counter runs ahead of the operands.
        if let Some(item) = items.get(cycle)
            && lane.hashes()
        {
            let x0 = item.element.wrapping_add(rule.seed);
            let x1 = item.tensor.wrapping_add(rule.scalars.step);
            bench.set("hash_x0", x0 as u128);
            bench.set("hash_x1", x1 as u128);
        }
        let age = |n: usize| cycle.checked_sub(n + HASH_LEAD as usize);
        let at = |n: usize| age(n).and_then(|k| items.get(k));
        match at(0) {
            Some(item) => {
                bench.set("valid", item.valid as u128);
                bench.set("g", item.g.to_bits() as u128);
                if item.layernorm {
                    bench.set("layernorm", 1);
                    bench.set("ln_w", item.stored.w as u128);
                    if !sgd {
                        bench.set("ln_m", item.stored.m as u128);
                        bench.set("ln_v", item.stored.v as u128);
                    }
                } else {
                    if layernorm.is_some() {
                        bench.set("layernorm", 0);
                    }
                    bench.set("w", item.stored.w as u128);
                    bench.set("m", item.stored.m as u128);
                    bench.set("v", item.stored.v as u128);
                }
            }
            None => bench.set("valid", 0),
        }
        let want = |item: &Item| match item.layernorm {
            true => rule.update_layernorm(item.stored, item.g),
            false => rule.update(item.stored, item.g, item.element, item.tensor),
        };
        if let Some(item) = at(early) {
            assert_eq!(bench.is("moment_valid"), item.valid);
            let new = want(item);
            if !item.valid {
                gaps += 1;
            } else if !item.layernorm {
                assert_eq!(bench.get("m_new"), new.m as u128);
                assert_eq!(bench.get("v_new"), new.v as u128);
            } else if sgd {
                assert_eq!(bench.get("ln_w_new"), new.w as u128);
            } else {
                assert_eq!(bench.get("ln_m_new"), new.m as u128);
                assert_eq!(bench.get("ln_v_new"), new.v as u128);
            }
        }
        if let Some(item) = at(late) {
            let updates = item.valid && !(sgd && item.layernorm);
            assert_eq!(bench.is("weight_valid"), updates);
            let new = want(item);
            if updates && item.layernorm {
                assert_eq!(bench.get("ln_w_new"), new.w as u128);
            } else if updates {
                assert_eq!(bench.get("w_new"), new.w as u128);
                compared += 1;
            }
            assert!(!bench.is("weight_bad"));
        }
        bench.step();
    }
    assert!(compared > 100 && gaps > 40);
    if replay {
        bench.replay("adam lane");
    }
}

#[test]
fn every_format_equals_the_reference() {
    for rule in Rule::all() {
        run(&rule, None, rule.weights == WeightFormat::Bf16);
    }
}

#[test]
fn layernorm_parameters_share_the_lane() {
    for rule in Rule::all() {
        let replay = rule.weights == WeightFormat::Fp24;
        run(&rule, Some(LayerNormOptimizer::Adam), replay);
        run(&rule, Some(LayerNormOptimizer::Sgd), replay);
    }
}

#[test]
fn infinities_are_reported_when_valid() {
    let lane = AdamLane {
        weights: WeightFormat::Bf16,
        moments: MomentFormat::Fp32,
        rounding: Rounding::Nearest,
        layernorm: None,
    };
    let rule = Rule::new(lane.weights, lane.moments, lane.rounding);
    let def = lane.build().unwrap();
    let mut bench = Bench::new(&def, 1);
    for (name, value) in rule.inputs() {
        if def.input_index(name).is_some() {
            bench.set(name, value as u128);
        }
    }
    for (valid, g) in [(0, f32::NAN), (1, f32::NAN), (1, f32::INFINITY), (1, 1.0)] {
        bench.set("valid", valid);
        bench.set("g", g.to_bits() as u128);
        bench.step();
        bench.set("valid", 0);
        let (mut moments, mut weights) = (0, 0);
        for _ in 0..lane.weight_latency() + 2 {
            moments += bench.get("moment_bad");
            weights += bench.get("weight_bad");
            bench.step();
        }
        let bad = valid * !g.is_finite() as u128;
        assert_eq!(moments, bad, "{valid} {g}");
        // An infinite gradient gives an infinite or undefined update.
        assert_eq!(weights, bad, "{valid} {g}");
    }
}
