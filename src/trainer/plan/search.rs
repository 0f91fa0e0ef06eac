//! Choice of array, Adam lanes, memories and placement.
//!
//! Arrays are tried in the order of a lower bound on their cycles; the first that fits wins. For one array the placement
//! search looks for the fewest blocks first and then for the fewest cycles among placements that still fit.

use super::*;
use crate::trainer::alloc::{Placement, Problem, apply};
use crate::trainer::program::generate;
use crate::trainer::waits;

/// Words of the smallest block of 32-bit words.
const BLOCK_WORDS: usize = 512;
/// Groups of at most this many words are LUT RAM.
const DISTRIBUTED_WORDS: usize = 64;
/// Placements tried for one set of group depths.
const TRIES: usize = 24;
/// Placements whose cycles are counted.
const SCORED: usize = 4;

/// Array, lanes, program and their lower bound on cycles.
struct Candidate {
    weights: WeightLayout,
    logical: Logical,
    lanes: Vec<usize>,
    bound: u64,
}

pub fn search(model: &ModelConfig, target: &Target, options: &Options) -> Plan {
    let mut candidates = candidates(model, target, options);
    candidates.sort_by_key(|c| (c.bound, c.weights.b));
    let mut best: Option<Plan> = None;
    for c in &candidates {
        for &g in &c.lanes {
            let plan = evaluate(model, target, options, c, g);
            let fits = plan.fits();
            if best.as_ref().is_none_or(|b| miss(&plan) < miss(b)) {
                best = Some(plan);
            }
            if fits {
                break;
            }
        }
        if best.as_ref().is_some_and(Plan::fits) {
            break;
        }
    }
    // `candidates` is never empty: B = 2 with one lane is always among them.
    best.unwrap_or_else(|| {
        let c = candidate(model, options, 2);
        evaluate(model, target, options, &c, 1)
    })
}

/// By how much a plan misses: the sum of the relative excesses.
fn miss(plan: &Plan) -> f64 {
    plan.shortfall
        .iter()
        .map(|s| (s.used - s.available) / s.available.max(1.0))
        .sum()
}

fn candidates(model: &ModelConfig, target: &Target, options: &Options) -> Vec<Candidate> {
    if let Some(b) = options.array {
        return vec![candidate(model, options, b)];
    }
    let useful = model.seq_len.max(model.embed_dim).max(model.ff_dim);
    let by_dsp = (target.available.dsp.max(4.0)).sqrt() as usize;
    let largest = useful.min(by_dsp).clamp(2, MAX_ARRAY);
    // Below a third of the largest array a plan is an order of magnitude slower; small parts may still need it.
    let mut sizes: Vec<usize> = (largest.div_ceil(3).max(2)..=largest).collect();
    let mut b = largest / 4;
    while b >= 2 {
        sizes.push(b);
        b /= 2;
    }
    sizes.push(2);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
        .into_iter()
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
    let logical = generate(model, &weights);
    let mat: u64 = logical
        .instrs
        .iter()
        .map(|i| match i {
            Instr::Mat(i) => (i.k + i.nr) as u64,
            _ => 0,
        })
        .sum();
    // Lanes that let Adam keep up with gradient tiles, then fewer.
    let enough = |g: usize| (b / g) * b <= model.seq_len + b;
    let counts = lane_counts(b);
    let least = counts.iter().copied().filter(|&g| enough(g)).min();
    let lanes: Vec<usize> = match options.adam_lanes {
        Some(g) => vec![g],
        None => {
            let top = least.unwrap_or(counts[0]);
            counts.into_iter().filter(|&g| g <= top).collect()
        }
    };
    let adam: u64 = logical
        .instrs
        .iter()
        .map(|i| match i {
            Instr::Adam(i) => (i.nr * (b / lanes[0])) as u64,
            _ => 0,
        })
        .sum();
    Candidate {
        weights,
        logical,
        lanes,
        bound: mat.max(adam),
    }
}

/// The best plan of one array with `g` Adam lanes.
fn evaluate(
    model: &ModelConfig,
    target: &Target,
    options: &Options,
    c: &Candidate,
    g: usize,
) -> Plan {
    let problem = Problem::new(&c.logical);
    let mut best: Option<(bool, u64, Plan)> = None;
    for depths in depth_sets(&problem, options, c.weights.b) {
        let fits_before = best.as_ref().is_some_and(|b| b.0);
        let placements = problem.placements(&depths, TRIES);
        for placement in placements.iter().take(SCORED) {
            let plan = build(model, target, c, g, &problem, placement);
            let key = (plan.fits(), plan.timeline.total);
            let better = match &best {
                None => true,
                Some((fits, cycles, old)) => {
                    if key.0 != *fits {
                        key.0
                    } else if key.0 {
                        key.1 < *cycles
                    } else {
                        miss(&plan) < miss(old)
                    }
                }
            };
            if better {
                best = Some((key.0, key.1, plan));
            }
        }
        // Larger memories only while they fit.
        let fits_now = best.as_ref().is_some_and(|b| b.0);
        if best.is_some() && !fits_now && !fits_before {
            break;
        }
    }
    match best {
        Some((_, _, plan)) => plan,
        None => {
            // Room for everything in each group: always placeable with enough groups.
            let groups = options.groups.unwrap_or(6).max(MIN_GROUPS);
            let depths = vec![problem.words.iter().sum(); groups];
            let placement = problem.placements(&depths, 1).swap_remove(0);
            build(model, target, c, g, &problem, &placement)
        }
    }
}

/// Sets of group depths (without slack), fewest words first.
fn depth_sets(problem: &Problem, options: &Options, b: usize) -> Vec<Vec<usize>> {
    let peak = problem.peak();
    let groups = match options.groups {
        Some(n) => n..=n,
        None => 5..=8,
    };
    let mut sets = vec![];
    if peak <= 4 * DISTRIBUTED_WORDS.saturating_sub(b) {
        for n in groups {
            sets.push(vec![DISTRIBUTED_WORDS.saturating_sub(b); n]);
        }
        return sets;
    }
    let least = (peak + 4 * b).div_ceil(BLOCK_WORDS);
    for units in least..=least + least.div_ceil(3) + 3 {
        for n in groups.clone().filter(|&n| n <= units) {
            let depth = |g: usize| (units / n + usize::from(g < units % n)) * BLOCK_WORDS;
            sets.push((0..n).map(|g| depth(g).saturating_sub(b)).collect());
        }
    }
    sets
}

/// Finishes a plan for one placement.
fn build(
    model: &ModelConfig,
    target: &Target,
    c: &Candidate,
    g: usize,
    problem: &Problem,
    placement: &Placement,
) -> Plan {
    let placed = apply(&c.logical, placement);
    let mut shape = frame(model, &c.weights, &c.logical, g);
    shape.group_depth = placement.used.iter().map(|u| u + shape.b).collect();
    shape.mat_exps = placed.mat_exps;
    shape.vec_exps = placed.vec_exps;
    let program = waits::assign(&shape, placed.instrs);
    let modules = resources::modules(model, &shape);
    let plans = [MemoryKind::Block, MemoryKind::Ultra].map(|kind| {
        let memories = memories(model, &shape, &program, kind);
        let used = resources::total(&modules, &memories);
        let short = shortfall(&used, target);
        (kind, memories, used, short)
    });
    // UltraRAM where the part has it and the moments fit in it; else blocks.
    let [block, ultra] = plans;
    let ultra_fits = target.available.uram >= ultra.2.uram;
    let (moment_kind, memories, used, shortfall) =
        if target.available.uram > 0.0 && ultra_fits && !block.3.is_empty() {
            ultra
        } else {
            block
        };
    let buffers = c
        .logical
        .buffers
        .iter()
        .enumerate()
        .map(|(n, buffer)| BufferPlace {
            name: buffer.name.clone(),
            group: placement.group[n],
            base: placement.base[n],
            words: buffer.words,
            first: problem.lives[n].first,
            last: problem.lives[n].last,
        })
        .collect();
    let timeline = timeline(&shape, &program);
    Plan {
        model: model.clone(),
        target: target.clone(),
        weights: c.weights.clone(),
        operators: operators(&c.logical),
        shape,
        program,
        buffers,
        memories,
        moment_kind,
        modules,
        used,
        shortfall,
        timeline,
    }
}
