//! Choice of array and Adam lanes, and the order of the program.
//!
//! Arrays are tried in the order of a lower bound on their cycles, until one fits. For one array and its lanes the
//! program is ordered in several ways; those whose buffers fit the memory that is left are placed, fastest first.

use rayon::prelude::*;

use super::place::Job;
use super::*;
use crate::trainer::alloc::Problem;
use crate::trainer::order::{Rule, Scheduled, Scheduler, reordered};
use crate::trainer::program::{Choices, generate};

/// Orders of the program: how many instructions may be overtaken, and by which rule.
const ORDERS: [(usize, Rule); 9] = [
    (0, Rule::Emitted),
    (16, Rule::LongestPath),
    (16, Rule::Emitted),
    (32, Rule::LongestPath),
    (32, Rule::Emitted),
    (64, Rule::LongestPath),
    (64, Rule::Emitted),
    (128, Rule::LongestPath),
    (128, Rule::Emitted),
];
/// Cycles traded for memory: nothing, then x0.
const CHOICES: [Choices; 2] = [
    Choices {
        encode_again: false,
    },
    LEAST_MEMORY,
];
const LEAST_MEMORY: Choices = Choices { encode_again: true };
/// Orders that are placed.
const PLACED: usize = 2;
/// Arrays that were planned in full and did not fit after all, before the search ends.
const FAILED: usize = 2;

/// An array with the lower bound on its cycles.
struct Candidate {
    b: usize,
    lanes: Vec<usize>,
    bound: u64,
}

pub fn search(model: &ModelConfig, target: &Target, options: &Options) -> Plan {
    let mut candidates = candidates(model, target, options);
    candidates.sort_by_key(|c| (c.bound, c.b));
    let (mut best, mut failed) = (None::<Plan>, 0);
    // The array that misses by least, should none fit.
    let mut nearest: Option<(f64, u64, usize, usize)> = None;
    for c in &candidates {
        let weights = WeightLayout::new(model, c.b);
        let leanest = generate(model, &weights, LEAST_MEMORY);
        let peak = Problem::new(&leanest).peak();
        for &g in &c.lanes {
            let miss = least_miss(model, target, &weights, (&leanest, peak), g);
            if miss > 0.0 {
                if nearest.is_none_or(|n| (miss, c.bound) < (n.0, n.1)) {
                    nearest = Some((miss, c.bound, c.b, g));
                }
                continue;
            }
            if let Some(plan) = evaluate(model, target, options, &weights, g) {
                if plan.fits() {
                    return plan;
                }
                if best.as_ref().is_none_or(|b| order(&plan) < order(b)) {
                    best = Some(plan);
                }
                failed += 1;
            }
        }
        if failed >= FAILED {
            break;
        }
    }
    best.unwrap_or_else(|| {
        let (b, g) = nearest.map_or((2, 1), |n| (n.2, n.3));
        let weights = WeightLayout::new(model, b);
        smallest(model, target, options, &weights, g)
    })
}

/// Plans that fit come first, by cycles; then the others by what they miss.
fn order(plan: &Plan) -> (f64, u64) {
    (missing(&plan.shortfall), plan.timeline.total)
}

pub(super) fn missing(shortfall: &[Shortfall]) -> f64 {
    let share = |s: &Shortfall| (s.used - s.available) / s.available.max(1.0);
    shortfall.iter().map(share).sum()
}

/// What an array and its lanes miss at least: logic, and memories with activations for what lives at once (`peak`
/// words in the program of least memory).
fn least_miss(
    model: &ModelConfig,
    target: &Target,
    weights: &WeightLayout,
    (logical, peak): (&Logical, usize),
    g: usize,
) -> f64 {
    let tiles = gradient_tiles(weights.b);
    let tiles = tiles
        .iter()
        .map(|&n| miss_with(model, target, weights, logical, (g, n, peak)));
    tiles.fold(f64::MAX, f64::min)
}

fn miss_with(
    model: &ModelConfig,
    target: &Target,
    weights: &WeightLayout,
    logical: &Logical,
    (g, tiles, peak): (usize, usize, usize),
) -> f64 {
    let mut shape = frame(model, weights, logical.scalar_rows, g, tiles);
    let units = (peak + MIN_GROUPS * weights.b).div_ceil(place::BLOCK_WORDS);
    shape.group_depth = match peak <= 4 * DISTRIBUTED_WORDS.saturating_sub(weights.b) {
        true => vec![DISTRIBUTED_WORDS; peak.div_ceil(DISTRIBUTED_WORDS)],
        false => (0..MIN_GROUPS)
            .map(|n| (units + n) / MIN_GROUPS * place::BLOCK_WORDS)
            .collect(),
    };
    let mut target = target.clone();
    target.available.bram36 -= place::rom_blocks(logical);
    let settled = place::settle(model, &target, &shape, &Program::default());
    missing(&settled.shortfall)
}

fn candidates(model: &ModelConfig, target: &Target, options: &Options) -> Vec<Candidate> {
    if let Some(b) = options.array {
        return vec![candidate(model, options, b)];
    }
    let useful = model.seq_len.max(model.embed_dim).max(model.ff_dim);
    let by_dsp = (target.available.dsp.max(4.0)).sqrt() as usize;
    let largest = useful.min(by_dsp).clamp(2, MAX_ARRAY);
    let mut sizes: Vec<usize> = (largest.div_ceil(2).max(2)..=largest).collect();
    let mut b = largest / 3;
    while b >= 2 {
        sizes.push(b);
        b = b * 2 / 3;
    }
    sizes.push(2);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
        .into_par_iter()
        .filter(|&b| {
            options
                .adam_lanes
                .is_none_or(|g| lane_counts(b).contains(&g))
        })
        .map(|b| candidate(model, options, b))
        .collect()
}

fn candidate(model: &ModelConfig, options: &Options, b: usize) -> Candidate {
    let weights = WeightLayout::new(model, b);
    let logical = generate(model, &weights, Choices::default());
    // Lanes that let Adam keep up with gradient tiles, then fewer.
    let counts = lane_counts(b);
    let enough = |g: &usize| (b / g) * b <= model.seq_len + b;
    let lanes: Vec<usize> = match options.adam_lanes {
        Some(g) => vec![g],
        None => {
            let top = counts.iter().copied().filter(enough).min();
            let top = top.unwrap_or(counts[0]);
            counts.into_iter().filter(|&g| g <= top).collect()
        }
    };
    let costs = Costs::new(b, lanes[0], 2);
    let (mut mat, mut adam) = (0, 0);
    for i in &logical.instrs {
        match i {
            Instr::Mat(i) => mat += costs.mat(i, None).0,
            Instr::Adam(i) => adam += costs.adam_steps(i),
            Instr::Vec(_) => {}
        }
    }
    Candidate {
        b,
        lanes,
        bound: mat.max(adam),
    }
}

/// The fastest plan of one array with `g` Adam lanes that can be placed.
fn evaluate(
    model: &ModelConfig,
    target: &Target,
    options: &Options,
    weights: &WeightLayout,
    g: usize,
) -> Option<Plan> {
    let emitted = CHOICES.map(|choices| generate(model, weights, choices));
    let settings: Vec<(usize, usize)> = (0..CHOICES.len())
        .flat_map(|k| gradient_tiles(weights.b).into_iter().map(move |t| (k, t)))
        .collect();
    let plans: Vec<Option<Plan>> = settings
        .into_par_iter()
        .map(|(k, tiles)| {
            let costs = Costs::new(weights.b, g, tiles).with_blocks(weights.scales.is_some());
            let job = Job::new(model, target, weights, &emitted[k], CHOICES[k], costs);
            place_orders(&job, options, &emitted[k], &costs)
        })
        .collect();
    let mut best: Option<Plan> = None;
    for plan in plans.into_iter().flatten() {
        if best.as_ref().is_none_or(|b| order(&plan) < order(b)) {
            best = Some(plan);
        }
    }
    best
}

/// Places the fastest orders of a program for which there is room.
fn place_orders(
    job: &Job<'_>,
    options: &Options,
    emitted: &Logical,
    costs: &Costs,
) -> Option<Plan> {
    let scheduler = Scheduler::new(&emitted.instrs, costs, false);
    let mut orders: Vec<(Logical, Problem, Scheduled)> = ORDERS
        .par_iter()
        .map(|&(window, rule)| {
            let scheduled = scheduler.order(window, rule);
            let logical = reordered(emitted, &scheduled.order, costs.gradient_tiles);
            let problem = Problem::new(&logical);
            (logical, problem, scheduled)
        })
        .collect();
    orders.sort_by_key(|o| (o.2.total, o.1.peak()));
    let mut best: Option<Plan> = None;
    let mut placed = 0;
    for (logical, problem, scheduled) in orders {
        let Some(plan) = job.place(options, logical, problem, &scheduled) else {
            continue;
        };
        placed += 1;
        if best.as_ref().is_none_or(|b| order(&plan) < order(b)) {
            best = Some(plan);
        }
        if placed == PLACED {
            break;
        }
    }
    best
}

/// A plan in as many blocks as it takes: shows what is missing.
fn smallest(
    model: &ModelConfig,
    target: &Target,
    options: &Options,
    weights: &WeightLayout,
    g: usize,
) -> Plan {
    let choices = LEAST_MEMORY;
    let emitted = generate(model, weights, choices);
    let costs = Costs::new(weights.b, g, 2).with_blocks(weights.scales.is_some());
    Job::new(model, target, weights, &emitted, choices, costs).smallest(options, &emitted)
}
