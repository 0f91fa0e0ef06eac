//! Places for one order of the program: group depths, placements, and the finished plan.

use std::collections::BTreeMap;

use super::search::missing;
use super::*;
use crate::trainer::alloc::{Placed, Placement, Problem, apply};
use crate::trainer::order::{Rule, Scheduled, Scheduler, take_turns};
use crate::trainer::waits;

/// Words of the smallest block of 32-bit words.
pub(super) const BLOCK_WORDS: usize = 512;
/// Blocks that a position code in part in look-up tables leaves free: some synthesisers keep columns of the program ROMs that
/// are constant, which are not counted here.
const SPARE_BLOCKS: f64 = 2.0;
/// Attempts at a placement for one set of group depths.
const ATTEMPTS: usize = 40;
/// The same where there is hardly more room than the peak needs.
const TIGHT_ATTEMPTS: usize = 200;
/// Sets of group depths tried for one number of groups, beside the most even one.
const PARTITIONS: usize = 2;
/// Placements of one set of group depths whose cycles are counted.
const SCORED: usize = 2;
/// Orders tried once every buffer has its place.
const FINAL_ORDERS: [(usize, Rule); 8] = [
    (8, Rule::Emitted),
    (16, Rule::Emitted),
    (32, Rule::Emitted),
    (64, Rule::Emitted),
    (128, Rule::Emitted),
    (256, Rule::Emitted),
    (16, Rule::LongestPath),
    (64, Rule::LongestPath),
];

/// Cycles in which an instruction reads and writes, and the buffers.
struct Use {
    reads: (u64, u64),
    writes: (u64, u64),
    ports: waits::Ports,
}

/// One program on one array, looking for a placement.
pub(super) struct Job<'a> {
    model: &'a ModelConfig,
    target: &'a Target,
    weights: &'a WeightLayout,
    choices: Choices,
    costs: Costs,
    /// Shape without groups and exponents.
    frame: Shape,
    /// Blocks of 512 words of each bank that the other memories leave, by what of them is LUT RAM.
    units: Vec<usize>,
}

/// A placed program with its cycles.
struct Candidate {
    placement: Placement,
    placed: Placed,
    operators: Vec<&'static str>,
    shape: Shape,
    program: Program,
    timeline: Timeline,
}

impl<'a> Job<'a> {
    pub fn new(
        model: &'a ModelConfig,
        target: &'a Target,
        weights: &'a WeightLayout,
        logical: &Logical,
        choices: Choices,
        costs: Costs,
    ) -> Self {
        let (g, tiles) = (costs.adam_lanes as usize, costs.gradient_tiles);
        let frame = frame(model, weights, logical.scalar_rows, g, tiles);
        let mut units: Vec<usize> = [weights.b, 0]
            .iter()
            .map(|&banks| {
                let kinds = kinds(&frame, Kinds::roomiest(target).moments, banks);
                let list = memories(model, &frame, &Program::default(), kinds);
                let blocks = list.iter().filter(|m| m.kind == MemoryKind::Block);
                let used: f64 = blocks.map(|m| m.blocks).sum();
                let left = target.available.bram36 - used - rom_blocks(logical);
                (left.max(0.0) * 2.0 / weights.b as f64) as usize
            })
            .collect();
        units.sort_unstable();
        units.dedup();
        Self {
            model,
            target,
            weights,
            choices,
            costs,
            units,
            frame,
        }
    }

    fn groups(&self, options: &Options) -> std::ops::RangeInclusive<usize> {
        match options.groups {
            Some(n) => n..=n,
            None => 3..=7,
        }
    }

    /// The fastest placement of an order that fits the memory that is left.
    pub fn place(
        &self,
        options: &Options,
        logical: Logical,
        mut problem: Problem,
        scheduled: &Scheduled,
    ) -> Option<Plan> {
        let sets = self.depth_sets(options, &problem);
        if sets.is_empty() {
            return None;
        }
        problem.set_clashes(&self.clashes(&logical, scheduled));
        let mut target = self.target.clone();
        target.available.bram36 -= rom_blocks(&logical);
        let mut best: Option<(f64, Candidate)> = None;
        for depths in sets {
            let mut shape = self.frame.clone();
            shape.group_depth = depths.iter().map(|u| u + shape.b).collect();
            let settled = settle(self.model, &target, &shape, &Program::default());
            let miss = missing(&settled.shortfall);
            if best.as_ref().is_some_and(|b| b.0 < miss) {
                continue;
            }
            let attempts = match problem.peak() * 8 > depths.iter().sum::<usize>() * 7 {
                true => TIGHT_ATTEMPTS,
                false => ATTEMPTS,
            };
            for placement in problem.placements(&depths, SCORED, attempts) {
                let placed = apply(&logical, &placement);
                let c = self.candidate(placement, placed, logical.operators.clone());
                let key = (miss, c.timeline.total);
                if best
                    .as_ref()
                    .is_none_or(|b| key < (b.0, b.1.timeline.total))
                {
                    best = Some((miss, c));
                }
            }
        }
        let (_, best) = best?;
        Some(self.build(&logical, &problem, self.improve(best)))
    }

    fn candidate(
        &self,
        placement: Placement,
        placed: Placed,
        operators: Vec<&'static str>,
    ) -> Candidate {
        let mut shape = self.frame.clone();
        shape.group_depth = placement.used.iter().map(|u| u + shape.b).collect();
        shape.mat_exps = placed.mat_exps;
        shape.vec_exps = placed.vec_exps;
        let program = waits::assign(&shape, placed.instrs.clone());
        let timeline = simulate(&program, &self.costs).unwrap_or_default();
        Candidate {
            placement,
            placed,
            operators,
            shape,
            program,
            timeline,
        }
    }

    /// Other orders of a placed program, as long as they help: ports and shared places are known now.
    fn improve(&self, mut best: Candidate) -> Candidate {
        loop {
            let before = best.timeline.total;
            best = self.improve_once(best);
            if best.timeline.total == before {
                return best;
            }
        }
    }

    fn improve_once(&self, mut best: Candidate) -> Candidate {
        let instrs = best.placed.instrs.clone();
        let names = best.operators.clone();
        let scheduler = Scheduler::new(&instrs, &self.costs, true);
        for (window, rule) in FINAL_ORDERS {
            let order = scheduler.order(window, rule);
            if order.total >= best.timeline.total {
                continue;
            }
            let mut next = Placed {
                instrs: order.order.iter().map(|&n| instrs[n].clone()).collect(),
                ..best.placed.clone()
            };
            take_turns(&mut next.instrs, self.costs.gradient_tiles);
            let operators = order.order.iter().map(|&n| names[n]).collect();
            let c = self.candidate(best.placement.clone(), next, operators);
            if c.timeline.total < best.timeline.total {
                best = c;
            }
        }
        best
    }

    /// Cycles for which engines meet at a port when two buffers share a group: overlaps of their accesses in the
    /// timeline of a machine that has a group for every buffer.
    fn clashes(&self, logical: &Logical, s: &Scheduled) -> BTreeMap<(usize, usize), u64> {
        // Per instruction of mat and vec: when it reads, when it writes, and which buffers.
        let uses = |engine: Engine| -> Vec<Use> {
            logical
                .instrs
                .iter()
                .zip(&s.order)
                .filter(|(instr, _)| instr.engine() == engine)
                .map(|(instr, &n)| Use {
                    reads: (s.start[n], s.ready[n]),
                    writes: (s.retire[n] - (s.ready[n] - s.start[n]), s.retire[n]),
                    ports: waits::ports(instr),
                })
                .collect()
        };
        let (mat, vec) = (uses(Engine::Mat), uses(Engine::Vec));
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

    /// Sets of group depths (without slack) to try: LUT RAM for small buffers, else the blocks that are left.
    fn depth_sets(&self, options: &Options, problem: &Problem) -> Vec<Vec<usize>> {
        let (b, peak) = (self.weights.b, problem.peak());
        let small = DISTRIBUTED_WORDS.saturating_sub(b);
        if small > 0 && peak <= 4 * small {
            let sets = self.groups(options).filter(|n| n * small >= peak);
            return sets.map(|n| vec![small; n]).collect();
        }
        let enough = (peak + peak / 3).div_ceil(BLOCK_WORDS) + 4;
        let mut units: Vec<usize> = self.units.iter().map(|&u| u.min(enough)).collect();
        units.dedup();
        units
            .into_iter()
            .flat_map(|u| self.partitions(u, options, problem))
            .collect()
    }

    /// Ways to share `units` blocks among the groups: for every number of groups those that hold most buffers of the
    /// commonest size, and the most even one. More groups first: engines meet less often at their ports.
    fn partitions(&self, units: usize, options: &Options, problem: &Problem) -> Vec<Vec<usize>> {
        let words = &problem.words;
        let count = |w: usize| words.iter().filter(|&&x| x == w).count();
        let common = words.iter().copied().max_by_key(|&w| (count(w), w));
        let common = common.unwrap_or(1).max(1);
        let b = self.weights.b;
        let depths = |set: &[usize]| -> Vec<usize> {
            let words = set.iter().map(|u| u * BLOCK_WORDS);
            words.map(|w| w.saturating_sub(b)).collect()
        };
        let peak = problem.peak();
        let mut chosen: Vec<Vec<usize>> = vec![];
        for n in self.groups(options).rev().filter(|&n| n <= units) {
            // Every group ends in slack.
            if units * BLOCK_WORDS < peak + n * b {
                continue;
            }
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
    pub fn smallest(&self, options: &Options, logical: &Logical) -> Plan {
        let problem = Problem::new(logical);
        let peak = problem.peak() + MIN_GROUPS * self.weights.b;
        let mut units = peak.div_ceil(BLOCK_WORDS).max(MIN_GROUPS);
        loop {
            for depths in self.partitions(units, options, &problem) {
                if let Some(placement) = problem.placements(&depths, 1, ATTEMPTS).pop() {
                    let placed = apply(logical, &placement);
                    let c = self.candidate(placement, placed, logical.operators.clone());
                    return self.build(logical, &problem, c);
                }
            }
            units += units.div_ceil(16);
        }
    }

    /// Finishes a plan: memory kinds and resources.
    fn build(&self, logical: &Logical, problem: &Problem, c: Candidate) -> Plan {
        let settled = settle(self.model, self.target, &c.shape, &c.program);
        Plan {
            model: self.model.clone(),
            target: self.target.clone(),
            weights: self.weights.clone(),
            operators: by_engine(&c.placed.instrs, &c.operators),
            buffers: places(logical, problem, &c.placement),
            memories: settled.memories,
            moment_kind: settled.kinds.moments,
            position_blocks: settled.kinds.position_blocks,
            gradient_kind: gradient_kind(&c.shape),
            choices: self.choices,
            modules: settled.modules,
            shortfall: settled.shortfall,
            used: settled.used,
            shape: c.shape,
            program: c.program,
            timeline: c.timeline,
        }
    }
}

/// A shallow position code is LUT ROM in any case.
fn kinds(shape: &Shape, moments: MemoryKind, banks: usize) -> Kinds {
    let position_blocks = match shape.position_depth <= DISTRIBUTED_WORDS {
        true => 0,
        false => banks,
    };
    Kinds {
        moments,
        position_blocks,
    }
}

/// Memory kinds and resources of a machine.
pub(super) struct Settled {
    pub kinds: Kinds,
    pub memories: Vec<MemoryLine>,
    pub modules: Vec<ModuleCost>,
    pub used: Resources,
    pub shortfall: Vec<Shortfall>,
}

/// The first combination of memory kinds that fits, else the one that misses by least.
pub(super) fn settle(
    model: &ModelConfig,
    target: &Target,
    shape: &Shape,
    program: &Program,
) -> Settled {
    let modules = resources::modules(model, shape);
    let settled = |moments, banks| {
        let kinds = kinds(shape, moments, banks);
        let memories = memories(model, shape, program, kinds);
        let used = resources::total(&modules, &memories);
        Settled {
            kinds,
            memories,
            modules: modules.clone(),
            shortfall: shortfall(&used, target),
            used,
        }
    };
    let mut best: Option<Settled> = None;
    for moments in [MemoryKind::Block, MemoryKind::Ultra] {
        if moments == MemoryKind::Ultra && target.available.uram == 0.0 {
            continue;
        }
        // The position code in blocks, or as much of it as the other memories leave blocks for.
        let rest = target.available.bram36 - settled(moments, 0).used.bram36;
        let rest = ((rest - SPARE_BLOCKS).max(0.0).floor() * 2.0) as usize;
        for banks in [shape.b, rest.min(shape.b)] {
            let next = settled(moments, banks);
            let miss = missing(&next.shortfall);
            if best.as_ref().is_none_or(|b| miss < missing(&b.shortfall)) {
                best = Some(next);
            }
        }
    }
    best.unwrap_or_else(|| settled(MemoryKind::Block, shape.b))
}

/// Blocks of the program ROMs: about 170 bits of each instruction.
pub(super) fn rom_blocks(logical: &Logical) -> f64 {
    logical.instrs.len().div_ceil(512) as f64 * 2.5 + 2.0
}

/// Operators by engine, from the global order.
fn by_engine(instrs: &[Instr], operators: &[&'static str]) -> [Vec<&'static str>; 3] {
    let mut lists: [Vec<&'static str>; 3] = Default::default();
    for (instr, &operator) in instrs.iter().zip(operators) {
        lists[instr.engine() as usize].push(operator);
    }
    lists
}

fn places(logical: &Logical, problem: &Problem, placement: &Placement) -> Vec<BufferPlace> {
    logical
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
        .collect()
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
