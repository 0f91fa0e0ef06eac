//! Choice of array, Adam lanes, memories and placement.
//!
//! Arrays are tried in the order of a lower bound on their cycles. For one array and its lanes the search fills the
//! blocks that the other memories leave with activation groups and keeps the placement with the fewest cycles.

use std::collections::BTreeMap;

use super::*;
use crate::trainer::alloc::{Placement, Problem, apply};
use crate::trainer::program::{Choices, generate};
use crate::trainer::waits;

/// Words of the smallest block of 32-bit words.
const BLOCK_WORDS: usize = 512;
/// Groups of at most this many words are LUT RAM.
const DISTRIBUTED_WORDS: usize = 64;
/// Orders tried for one set of group depths.
const ATTEMPTS: usize = 150;
/// Sets of group depths tried for one number of groups, beside the most even one.
const PARTITIONS: usize = 2;
/// Placements of one set of group depths whose cycles are counted.
const SCORED: usize = 2;
/// Arrays planned in full once one has fitted.
const ARRAYS: usize = 1;

/// An array with the lower bound on its cycles.
struct Candidate {
    b: usize,
    lanes: Vec<usize>,
    bound: u64,
}

pub fn search(model: &ModelConfig, target: &Target, options: &Options) -> Plan {
    let mut candidates = candidates(model, target, options);
    candidates.sort_by_key(|c| (c.bound, c.b));
    let mut best: Option<Plan> = None;
    let mut planned = 0;
    for c in &candidates {
        if let Some(b) = &best
            && b.fits()
            && (c.bound >= b.timeline.total || planned >= ARRAYS)
        {
            break;
        }
        for &g in &c.lanes {
            // One plan without hope is made all the same: its shortfall is the answer when none fits.
            let hopeless =
                !logic_fits(model, target, c.b, g) || !memories_fit(model, target, c.b, g);
            if hopeless && best.is_some() {
                continue;
            }
            let plan = evaluate(model, target, options, c.b, g);
            let fits = plan.fits();
            if best.as_ref().is_none_or(|b| order(&plan) < order(b)) {
                best = Some(plan);
            }
            if fits {
                planned += 1;
                break;
            }
        }
    }
    best.unwrap_or_else(|| evaluate(model, target, options, 2, 1))
}

/// Plans that fit come first, by cycles; then the others by what they miss.
fn order(plan: &Plan) -> (f64, u64) {
    let miss: f64 = plan
        .shortfall
        .iter()
        .map(|s| (s.used - s.available) / s.available.max(1.0))
        .sum();
    (miss, plan.timeline.total)
}

/// Whether the logic of an array fits, memories left out.
fn logic_fits(model: &ModelConfig, target: &Target, b: usize, g: usize) -> bool {
    let weights = WeightLayout::new(model, b);
    let mut shape = frame(model, &weights, 1, g);
    shape.group_depth = vec![1; MIN_GROUPS];
    let used = resources::total(&resources::modules(model, &shape), &[]);
    shortfall(&used, target).is_empty()
}

/// Whether the blocks that the fixed memories leave hold as many words as live at once.
fn memories_fit(model: &ModelConfig, target: &Target, b: usize, g: usize) -> bool {
    let weights = WeightLayout::new(model, b);
    let choices = Choices {
        encode_again: true,
        hold: 0,
        adam_banks: b / g,
    };
    let logical = generate(model, &weights, choices);
    let problem = Problem::new(&logical);
    let peak = problem.peak();
    let job = Job {
        model,
        target,
        weights: &weights,
        problem,
        logical,
        choices,
        g,
    };
    peak <= 4 * DISTRIBUTED_WORDS.saturating_sub(b) || job.units_left() * BLOCK_WORDS >= peak
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
    let logical = generate(model, &weights, Choices::default());
    let (mut mat, mut updates) = (0, 0);
    for i in &logical.instrs {
        match i {
            Instr::Mat(i) => mat += (i.k + i.nr - 1) as u64,
            Instr::Adam(i) => updates += i.nr as u64,
            Instr::Vec(_) => {}
        }
    }
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
    let adam = updates * (b / lanes[0]) as u64;
    Candidate {
        b,
        lanes,
        bound: mat.max(adam),
    }
}

/// The best plan of one array with `g` Adam lanes.
fn evaluate(model: &ModelConfig, target: &Target, options: &Options, b: usize, g: usize) -> Plan {
    let weights = WeightLayout::new(model, b);
    let mut best: Option<Plan> = None;
    let consider = |plan: Plan, best: &mut Option<Plan>| {
        if best.as_ref().is_none_or(|b| order(&plan) < order(b)) {
            *best = Some(plan);
        }
    };
    let mut smallest = None;
    for (encode_again, hold) in [
        (false, 0),
        (false, 2),
        (false, 1),
        (true, 2),
        (true, 1),
        (true, 0),
    ] {
        // Lanes that keep up need no waiting tiles.
        if hold > 0 && (b / g) * b <= model.seq_len + b {
            continue;
        }
        // Less memory in exchange for cycles only when nothing fits without.
        if encode_again && best.as_ref().is_some_and(Plan::fits) {
            break;
        }
        let choices = Choices {
            encode_again,
            hold,
            adam_banks: b / g,
        };
        let logical = generate(model, &weights, choices);
        let problem = Problem::new(&logical);
        let mut job = Job {
            model,
            target,
            weights: &weights,
            problem,
            logical,
            choices,
            g,
        };
        let clashes = job.clashes();
        job.problem.set_clashes(&clashes);
        for depths in job.depth_sets(options) {
            let attempts = job.attempts(&depths);
            for placement in &job.problem.placements(&depths, SCORED, attempts) {
                consider(job.build(placement), &mut best);
            }
        }
        smallest = Some(job);
    }
    if let (None, Some(job)) = (&best, &smallest) {
        // Nothing fits the blocks that are left: the smallest that can be placed shows what is missing.
        consider(job.smallest(options), &mut best);
    }
    match best {
        Some(plan) => plan,
        None => unreachable_plan(model, target, b, g),
    }
}

/// A plan without the search, in groups that hold every buffer at once.
fn unreachable_plan(model: &ModelConfig, target: &Target, b: usize, g: usize) -> Plan {
    let weights = WeightLayout::new(model, b);
    let choices = Choices::default();
    let logical = generate(model, &weights, choices);
    let problem = Problem::new(&logical);
    let job = Job {
        model,
        target,
        weights: &weights,
        problem,
        logical,
        choices,
        g,
    };
    job.smallest(&Options::default())
}

/// Cycles in which an instruction reads and writes, and the buffers.
struct Use {
    reads: (u64, u64),
    writes: (u64, u64),
    ports: waits::Ports,
}

/// One program looking for a placement.
struct Job<'a> {
    model: &'a ModelConfig,
    target: &'a Target,
    weights: &'a WeightLayout,
    logical: Logical,
    problem: Problem,
    choices: Choices,
    g: usize,
}

impl Job<'_> {
    /// Orders worth trying: many where the groups have hardly more room than the peak needs.
    fn attempts(&self, depths: &[usize]) -> usize {
        let room: usize = depths.iter().sum();
        if self.problem.peak() * 5 > room * 4 {
            3 * ATTEMPTS
        } else {
            ATTEMPTS
        }
    }

    fn groups(&self, options: &Options) -> std::ops::RangeInclusive<usize> {
        match options.groups {
            Some(n) => n..=n,
            None => 3..=7,
        }
    }

    /// Cycles for which engines meet at a port when two buffers share a group: overlaps of their accesses in the
    /// timeline of a machine that has a group for every buffer.
    fn clashes(&self) -> BTreeMap<(usize, usize), u64> {
        let buffers = self.logical.buffers.len();
        let own = Placement {
            group: (0..buffers).collect(),
            base: vec![0; buffers],
            used: self.problem.words.clone(),
        };
        let placed = apply(&self.logical, &own);
        let mut shape = frame(self.model, self.weights, self.logical.scalar_rows, self.g);
        shape.group_depth = own.used.iter().map(|u| u + shape.b).collect();
        shape.mat_exps = placed.mat_exps;
        shape.vec_exps = placed.vec_exps;
        let program = waits::assign(&shape, placed.instrs);
        let t = timeline(&shape, &program);
        let lists = waits::lists(&program);
        // Per instruction of mat and vec: when it reads, when it writes, and which buffers.
        let uses = |e: usize| -> Vec<Use> {
            (0..t.start[e].len())
                .map(|n| Use {
                    reads: (t.start[e][n], t.ready[e][n]),
                    writes: (
                        t.retire[e][n] - (t.ready[e][n] - t.start[e][n]),
                        t.retire[e][n],
                    ),
                    ports: waits::ports(&lists[e][n]),
                })
                .collect()
        };
        let (mat, vec) = (uses(0), uses(1));
        let mut pairs = BTreeMap::new();
        let mut from = 0;
        for m in &mat {
            while from < vec.len() && vec[from].writes.1 < m.reads.0 {
                from += 1;
            }
            for v in vec[from..].iter().take_while(|v| v.reads.0 < m.writes.1) {
                for (x, y, a, b) in [
                    (m.reads, v.reads, &m.ports.read, &v.ports.read),
                    (m.writes, v.writes, &m.ports.write, &v.ports.write),
                ] {
                    let cycles = x.1.min(y.1).saturating_sub(x.0.max(y.0));
                    if cycles == 0 {
                        continue;
                    }
                    for &a in a {
                        for &b in b {
                            *pairs.entry((a.min(b), a.max(b))).or_insert(0) += cycles;
                        }
                    }
                }
            }
        }
        pairs
    }

    /// Blocks of 512 words of each bank that the other memories leave.
    fn units_left(&self) -> usize {
        let b = self.weights.b;
        let shape = frame(self.model, self.weights, self.logical.scalar_rows, self.g);
        let kinds = Kinds {
            moments: if self.target.available.uram > 0.0 {
                MemoryKind::Ultra
            } else {
                MemoryKind::Block
            },
            position: MemoryKind::Distributed,
        };
        let used: f64 = memories(self.model, &shape, &Program::default(), kinds)
            .iter()
            .filter(|m| m.kind == MemoryKind::Block)
            .map(|m| m.blocks)
            .sum();
        // The program ROMs: about 170 bits of each instruction.
        let roms = self.logical.instrs.len().div_ceil(512) as f64 * 2.5 + 2.0;
        let left = self.target.available.bram36 - used - roms;
        (left.max(0.0) * 2.0 / b as f64) as usize
    }

    /// Sets of group depths (without slack) to try: LUT RAM for small buffers, else the blocks that are left.
    fn depth_sets(&self, options: &Options) -> Vec<Vec<usize>> {
        let (b, peak) = (self.weights.b, self.problem.peak());
        let small = DISTRIBUTED_WORDS.saturating_sub(b);
        if small > 0 && peak <= 4 * small {
            let sets = self.groups(options).filter(|n| n * small >= peak);
            return sets.map(|n| vec![small; n]).collect();
        }
        let enough = (peak + peak / 3).div_ceil(BLOCK_WORDS) + 4;
        let units = self.units_left().min(enough);
        if units * BLOCK_WORDS < peak {
            return vec![];
        }
        self.partitions(units, options)
    }

    /// Ways to share `units` blocks among the groups: for every number of groups those that hold most buffers of the
    /// commonest size, and the most even one. More groups first: engines meet less often at their ports.
    fn partitions(&self, units: usize, options: &Options) -> Vec<Vec<usize>> {
        let words = &self.problem.words;
        let count = |w: usize| words.iter().filter(|&&x| x == w).count();
        let common = words.iter().copied().max_by_key(|&w| (count(w), w));
        let common = common.unwrap_or(1).max(1);
        let b = self.weights.b;
        let depths = |set: &[usize]| -> Vec<usize> {
            let words = set.iter().map(|u| u * BLOCK_WORDS);
            words.map(|w| w.saturating_sub(b)).collect()
        };
        let mut chosen: Vec<Vec<usize>> = vec![];
        for n in self.groups(options).rev().filter(|&n| n <= units) {
            let mut sets = vec![];
            partitions(units, n, units, &mut vec![], &mut sets);
            sets.sort_by_key(|set| {
                let slots: usize = depths(set).iter().map(|w| w / common).sum();
                (std::cmp::Reverse(slots), set[0])
            });
            let even = sets.iter().min_by_key(|set| set[0]).cloned();
            sets.truncate(PARTITIONS);
            sets.extend(even);
            for set in sets {
                let set = depths(&set);
                if !chosen.contains(&set) {
                    chosen.push(set);
                }
            }
        }
        chosen
    }

    /// The plan of the first placement found with more and more blocks.
    fn smallest(&self, options: &Options) -> Plan {
        let mut units = self.problem.peak().div_ceil(BLOCK_WORDS).max(MIN_GROUPS);
        loop {
            for depths in self.partitions(units, options) {
                let found = self.problem.placements(&depths, 1, ATTEMPTS);
                if let Some(placement) = found.first() {
                    return self.build(placement);
                }
            }
            units += units.div_ceil(16);
        }
    }

    /// Finishes a plan for one placement.
    fn build(&self, placement: &Placement) -> Plan {
        let placed = apply(&self.logical, placement);
        let mut shape = frame(self.model, self.weights, self.logical.scalar_rows, self.g);
        shape.group_depth = placement.used.iter().map(|u| u + shape.b).collect();
        shape.mat_exps = placed.mat_exps;
        shape.vec_exps = placed.vec_exps;
        let program = waits::assign(&shape, placed.instrs);
        let modules = resources::modules(self.model, &shape);
        let ultra = self.target.available.uram > 0.0;
        let small_position = shape.position_depth <= DISTRIBUTED_WORDS;
        use MemoryKind::{Block, Distributed, Ultra};
        let options = [
            (Block, Block),
            (Ultra, Block),
            (Block, Distributed),
            (Ultra, Distributed),
        ];
        // The first combination that fits, else the one that misses by least.
        let mut best: Option<Plan> = None;
        for (moments, position) in options {
            let skip = (moments == Ultra && !ultra) || (position == Block && small_position);
            if skip || best.as_ref().is_some_and(Plan::fits) {
                continue;
            }
            let kinds = Kinds { moments, position };
            let memories = memories(self.model, &shape, &program, kinds);
            let used = resources::total(&modules, &memories);
            let plan = Plan {
                model: self.model.clone(),
                target: self.target.clone(),
                shape: shape.clone(),
                weights: self.weights.clone(),
                program: program.clone(),
                operators: operators(&self.logical),
                buffers: self.places(placement),
                memories,
                moment_kind: moments,
                position_kind: position,
                choices: self.choices,
                modules: modules.clone(),
                shortfall: shortfall(&used, self.target),
                used,
                timeline: Timeline::default(),
            };
            if best.as_ref().is_none_or(|b| order(&plan) < order(b)) {
                best = Some(plan);
            }
        }
        let timeline = timeline(&shape, &program);
        match best {
            Some(plan) => Plan { timeline, ..plan },
            None => unreachable!("block RAM is always among the combinations"),
        }
    }

    fn places(&self, placement: &Placement) -> Vec<BufferPlace> {
        self.logical
            .buffers
            .iter()
            .enumerate()
            .map(|(n, buffer)| BufferPlace {
                name: buffer.name.clone(),
                group: placement.group[n],
                base: placement.base[n],
                words: buffer.words,
                first: self.problem.lives[n].first,
                last: self.problem.lives[n].last,
            })
            .collect()
    }
}

/// All ways to write `units` as `n` parts of at most `largest`, largest first.
fn partitions(
    units: usize,
    n: usize,
    largest: usize,
    head: &mut Vec<usize>,
    found: &mut Vec<Vec<usize>>,
) {
    // A fixed number is plenty; large counts of units have very many.
    if found.len() >= 4000 {
        return;
    }
    if n == 1 {
        if (1..=largest).contains(&units) {
            let mut set = head.clone();
            set.push(units);
            found.push(set);
        }
        return;
    }
    // The rest needs at least one each, and at most as much as this part.
    let most = largest.min(units.saturating_sub(n - 1));
    let least = units.div_ceil(n);
    for part in (least..=most).rev() {
        head.push(part);
        partitions(units - part, n - 1, part, head, found);
        head.pop();
    }
}
