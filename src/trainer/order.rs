//! List scheduling: a better global order for a program that is already correct in the order it was emitted in.
//!
//! Every two instructions that touch the same word, one of them writing, keep their order; all others may change
//! places within a window of the emitted order. The clock is the planner's cycle model, so an instruction moves up
//! exactly where its engine would have waited. The window bounds how much longer buffers live.

use std::collections::{BTreeMap, HashSet};

use super::cycles::{BlockClock, Costs};
use super::isa::*;
use super::program::{Instr, Logical};
use super::waits::{Region, accesses, operand_groups, ports};

/// What an engine takes among the instructions that can start at once. When none can, it takes the first that will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The first as emitted.
    Emitted,
    /// The one with the longest way to the end of the program.
    LongestPath,
}

/// An instruction that must come earlier.
#[derive(Clone, Copy)]
struct Before {
    at: u32,
    /// Its retirement must be waited for, not only its start.
    wait: bool,
}

/// What is known of an instruction before it has a place in the order.
#[derive(Default)]
struct Node {
    before: Vec<Before>,
    /// Groups whose read or write port it occupies.
    read: Vec<usize>,
    write: Vec<usize>,
    /// Groups of the operands and of the addend of a product.
    operands: Vec<usize>,
    addend: Option<usize>,
}

/// An earlier access of a region.
#[derive(Clone, Copy)]
struct Past {
    start: usize,
    end: usize,
    at: u32,
    write: bool,
}

/// Dependencies of a program, for any number of orders.
pub struct Scheduler<'a> {
    instrs: &'a [Instr],
    costs: &'a Costs,
    nodes: Vec<Node>,
    /// The same arrows from the other end: who must come later, and whether it waits for the retirement.
    after: Vec<Vec<(u32, bool)>>,
    /// Cycles from the start of an instruction to the end of the program, engines unlimited.
    way: Vec<u64>,
    /// Instructions before the backward phase. A forward-only run ends behind them, so none of the backward phase
    /// may come earlier.
    forward: usize,
}

/// An order with the times that the cycle model gives it.
pub struct Scheduled {
    /// Instruction numbers of the emitted order.
    pub order: Vec<usize>,
    /// By instruction of the emitted order.
    pub start: Vec<u64>,
    pub ready: Vec<u64>,
    pub retire: Vec<u64>,
    pub total: u64,
}

impl<'a> Scheduler<'a> {
    /// `placed`: buffers have physical places, so ports are shared and exponent registers reused.
    pub fn new(instrs: &'a [Instr], costs: &'a Costs, placed: bool) -> Self {
        // Reads, then writes: a read meets writes only.
        let mut past: BTreeMap<Region, [Vec<Past>; 2]> = BTreeMap::new();
        let mut nodes: Vec<Node> = Vec::with_capacity(instrs.len());
        for (at, instr) in instrs.iter().enumerate() {
            let mut node = Node::default();
            for a in accesses(instr, costs.b as usize) {
                // A gradient tile and its update stay together; their place in the gradient memory is chosen with the order.
                if a.region == Region::Grad {
                    continue;
                }
                let exponent = matches!(
                    a.region,
                    Region::MatExp | Region::VecExp | Region::WeightExp
                );
                let lists = past.entry(a.region).or_default();
                let (at, start, end) = (at as u32, a.start, a.start + a.len);
                let met = if a.write { &lists[..] } else { &lists[1..] };
                for p in met.iter().flatten() {
                    if p.at == at || p.end <= start || end <= p.start {
                        continue;
                    }
                    // The maximum of a tensor's exponents does not depend on the order.
                    if exponent && p.write && a.write && !placed {
                        continue;
                    }
                    let other = instrs[p.at as usize].engine();
                    let wait = instr.engine() != other || (p.write && !a.write);
                    node.before.push(Before { at: p.at, wait });
                }
                if a.write && (placed || !exponent) {
                    for list in lists.iter_mut() {
                        overwrite(list, start, end);
                    }
                }
                lists[usize::from(a.write)].push(Past {
                    start,
                    end,
                    at,
                    write: a.write,
                });
            }
            node.before.sort_unstable_by_key(|b| (b.at, !b.wait));
            node.before.dedup_by_key(|b| b.at);
            if placed {
                let used = ports(instr);
                (node.read, node.write) = (used.read, used.write);
                if let Instr::Mat(i) = instr {
                    node.operands = operand_groups(i).collect();
                    if let AddSource::Act(g) = i.add_source {
                        node.addend = Some(g);
                    }
                }
            }
            nodes.push(node);
        }
        let way = ways(instrs, costs, &nodes);
        let mut after = vec![vec![]; instrs.len()];
        for (at, node) in nodes.iter().enumerate() {
            for b in &node.before {
                after[b.at as usize].push((at as u32, b.wait));
            }
        }
        Self {
            instrs,
            costs,
            nodes,
            after,
            way,
            forward: instrs.iter().filter(|i| is_forward(i)).count(),
        }
    }

    /// A new order in which at most `window` instructions of the emitted order are overtaken.
    pub fn order(&self, window: usize, rule: Rule) -> Scheduled {
        let n = self.instrs.len();
        let mut clock = Clock::new(self);
        let mut oldest = 0;
        while clock.order.len() < n {
            while clock.placed(oldest) {
                oldest += 1;
            }
            let end = (oldest + window + 1).min(n);
            let pick = (0..2)
                .filter_map(|e| self.pick(&clock, e, oldest..end, rule))
                .min();
            let Some((start, at)) = pick else {
                // Cannot be: all that the oldest waits for has its place. The emitted order is always correct.
                return self.emitted();
            };
            clock.take(at, start);
            if is_gradient(&self.instrs[at]) {
                let start = clock.start(at + 1).unwrap_or(start);
                clock.take(at + 1, start);
            }
        }
        clock.finish()
    }

    /// The emitted order with its times.
    fn emitted(&self) -> Scheduled {
        let mut clock = Clock::new(self);
        for at in 0..self.instrs.len() {
            let start = clock.start(at).unwrap_or_default();
            clock.take(at, start);
        }
        clock.finish()
    }

    /// The gradient product whose update continues the blocks of update `at`.
    fn next_part(&self, at: usize) -> usize {
        let parts = |n: &usize| matches!(&self.instrs[*n], Instr::Adam(i) if i.block.is_some());
        (at + 1..self.instrs.len())
            .find(parts)
            .map_or(at, |n| n - 1)
    }

    /// What engine `e` had better do next.
    fn pick(
        &self,
        clock: &Clock<'_>,
        e: usize,
        window: std::ops::Range<usize>,
        rule: Rule,
    ) -> Option<(u64, usize)> {
        let free = clock.free[e];
        let mut best: Option<((u64, u64), usize, u64)> = None;
        for at in window {
            // An update comes with its tile.
            if clock.placed(at) || self.instrs[at].engine() as usize != e {
                continue;
            }
            if !is_forward(&self.instrs[at]) && clock.order.len() < self.forward {
                break;
            }
            let Some(start) = clock.start(at) else {
                continue;
            };
            let rank = match rule {
                Rule::Emitted => 0,
                Rule::LongestPath => u64::MAX - self.way[at],
            };
            let key = (start, rank);
            if best.is_none_or(|b| key < b.0) {
                best = Some((key, at, start));
            }
            if rule == Rule::Emitted && start <= free {
                break;
            }
        }
        best.map(|(_, at, start)| (start, at))
    }
}

fn is_forward(instr: &Instr) -> bool {
    instr.phase() != Phase::Backward
}

fn is_gradient(instr: &Instr) -> bool {
    matches!(instr, Instr::Mat(i) if matches!(i.dest, MatDest::Grad(_)))
}

/// Takes the words `start..end` out of earlier accesses. Whoever touches these words later comes after the instruction
/// that overwrites them, and that comes after the earlier ones: it starts after their retirement where it is of another
/// engine, and retires after them where it is of the same. So every wait for them is implied.
fn overwrite(list: &mut Vec<Past>, start: usize, end: usize) {
    let mut tails = vec![];
    list.retain_mut(|p| {
        if p.end <= start || end <= p.start {
            return true;
        }
        if end < p.end {
            tails.push(Past { start: end, ..*p });
        }
        p.end = start;
        p.start < start
    });
    list.extend(tails);
}

/// Longest ways to the end.
fn ways(instrs: &[Instr], costs: &Costs, nodes: &[Node]) -> Vec<u64> {
    let mut way = vec![0u64; instrs.len()];
    for at in (0..instrs.len()).rev() {
        let (_, retire) = costs.of(&instrs[at]);
        way[at] = way[at].max(retire);
        for b in &nodes[at].before {
            let m = b.at as usize;
            let (ready, retire) = costs.of(&instrs[m]);
            let distance = if b.wait {
                retire + costs.retire_to_start
            } else {
                ready
            };
            way[m] = way[m].max(way[at] + distance);
        }
    }
    way
}

/// State of the engines while the order grows.
struct Clock<'a> {
    s: &'a Scheduler<'a>,
    order: Vec<usize>,
    start: Vec<u64>,
    ready: Vec<u64>,
    /// 0 while an instruction has no place.
    retire: Vec<u64>,
    /// How many of those that must precede an instruction have no place yet.
    open: Vec<u32>,
    /// Earliest start after the retirements that an instruction waits for, as far as they are known.
    after: Vec<u64>,
    /// Earliest next start, last retirement, by engine.
    free: [u64; 3],
    last: [u64; 3],
    lanes_free: u64,
    blocks: BlockClock,
    /// The product that continues moment blocks which have begun: no other one may come between.
    next_part: Option<usize>,
    /// Cycle in which the last product's rows have left the array.
    drained: u64,
    /// Retirements of the updates so far.
    updates: Vec<u64>,
    /// Last retirement of a user of each port, by engine.
    reads: Vec<[u64; 3]>,
    writes: Vec<[u64; 3]>,
    addends: Vec<u64>,
}

impl<'a> Clock<'a> {
    fn new(s: &'a Scheduler<'a>) -> Self {
        let n = s.instrs.len();
        let used = |node: &Node| node.read.iter().chain(&node.write).copied().max();
        let groups = s.nodes.iter().filter_map(used).max().map_or(0, |g| g + 1);
        Self {
            s,
            order: Vec::with_capacity(n),
            start: vec![0; n],
            ready: vec![0; n],
            retire: vec![0; n],
            open: s.nodes.iter().map(|n| n.before.len() as u32).collect(),
            after: vec![0; n],
            free: [s.costs.sample_start; 3],
            last: [0; 3],
            lanes_free: 0,
            blocks: BlockClock::default(),
            next_part: None,
            drained: 0,
            updates: vec![],
            reads: vec![[0; 3]; groups],
            writes: vec![[0; 3]; groups],
            addends: vec![0; groups],
        }
    }

    fn placed(&self, at: usize) -> bool {
        self.retire[at] > 0
    }

    /// Start of an instruction if it came next; `None` when one that must precede it has no place yet.
    fn start(&self, at: usize) -> Option<u64> {
        if self.open[at] > 0 {
            return None;
        }
        let (e, node) = (self.s.instrs[at].engine() as usize, &self.s.nodes[at]);
        let gap = self.s.costs.retire_to_start;
        let mut start = self.free[e].max(self.after[at]);
        if let Instr::Mat(i) = &self.s.instrs[at] {
            start = start.max(self.drained.saturating_sub(i.k as u64));
        }
        for (used, table) in [(&node.read, &self.reads), (&node.write, &self.writes)] {
            for &g in used {
                for (f, &retire) in table[g].iter().enumerate() {
                    if f != e && retire > 0 {
                        start = start.max(retire + gap);
                    }
                }
            }
        }
        for &g in &node.operands {
            if self.addends[g] > 0 {
                start = start.max(self.addends[g] + gap);
            }
        }
        if is_gradient(&self.s.instrs[at]) {
            if let (Some(next), Instr::Adam(update)) = (self.next_part, &self.s.instrs[at + 1])
                && update.block.is_some()
                && next != at
            {
                return None;
            }
            if let Some(k) = self.updates.len().checked_sub(self.s.costs.gradient_tiles) {
                start = start.max(self.updates[k] + gap);
            }
            // The update follows at once: what it waits for must have a place.
            let update = &self.s.nodes[at + 1].before;
            let tile = update.iter().any(|b| b.at as usize == at);
            if self.open[at + 1] > u32::from(tile) {
                return None;
            }
        }
        Some(start)
    }

    fn take(&mut self, at: usize, start: u64) {
        let e = self.s.instrs[at].engine() as usize;
        let costs = self.s.costs;
        let (ready, retire) = match &self.s.instrs[at] {
            Instr::Adam(i) => {
                let room = self.blocks.room(costs, i, (start + 2).max(self.lanes_free));
                let begin = costs.adam_begin(i, room);
                self.lanes_free = begin + costs.adam_steps(i);
                self.blocks.take(costs, i, self.lanes_free);
                if i.block.is_some() {
                    self.next_part = (!i.block_ends().1).then(|| self.s.next_part(at));
                }
                (begin, self.lanes_free + costs.adam_latency())
            }
            other => {
                let (ready, retire) = costs.of(other);
                (start + ready, start + retire)
            }
        };
        if let Instr::Mat(i) = &self.s.instrs[at] {
            self.drained = start + (i.k + i.nr) as u64;
        }
        let retire = retire.max(self.last[e] + 1);
        self.last[e] = retire;
        self.free[e] = ready.max(start + costs.start_interval);
        self.order.push(at);
        (self.start[at], self.ready[at], self.retire[at]) = (start, ready, retire);
        for &(later, wait) in &self.s.after[at] {
            let later = later as usize;
            self.open[later] -= 1;
            if wait {
                self.after[later] = self.after[later].max(retire + costs.retire_to_start);
            }
        }
        let node = &self.s.nodes[at];
        for &g in &node.read {
            self.reads[g][e] = retire;
        }
        for &g in &node.write {
            self.writes[g][e] = retire;
        }
        if let Some(g) = node.addend {
            self.addends[g] = retire;
        }
        if e == Engine::Adam as usize {
            self.updates.push(retire);
        }
    }

    fn finish(self) -> Scheduled {
        Scheduled {
            order: self.order,
            start: self.start,
            ready: self.ready,
            total: self.last.into_iter().max().unwrap_or(0),
            retire: self.retire,
        }
    }
}

/// `logical` in a new order, with the flags and places in the gradient memory that depend on it.
pub fn reordered(logical: &Logical, order: &[usize], gradient_tiles: usize) -> Logical {
    let mut next = Logical {
        instrs: order.iter().map(|&n| logical.instrs[n].clone()).collect(),
        operators: order.iter().map(|&n| logical.operators[n]).collect(),
        ..logical.clone()
    };
    let mut started = HashSet::new();
    for instr in &mut next.instrs {
        match instr {
            Instr::Mat(i) => {
                if let Some(n) = i.dst_exp {
                    i.dst_first = started.insert(ExpId::Mat(n));
                }
            }
            Instr::Vec(i) => {
                if let Some(z) = &mut i.z
                    && let Some(n) = z.exp
                {
                    z.first = started.insert(ExpId::Vec(n));
                }
            }
            Instr::Adam(i) => {
                if i.kind == AdamKind::Matrix {
                    i.first = started.insert(ExpId::Weight(i.tensor));
                }
            }
        }
    }
    take_turns(&mut next.instrs, gradient_tiles);
    next
}

/// Gradient tiles take the places of their memory in turn.
pub fn take_turns(instrs: &mut [Instr], gradient_tiles: usize) {
    let mut turn = 0;
    for instr in instrs {
        match instr {
            Instr::Mat(i) => {
                if let MatDest::Grad(place) = &mut i.dest {
                    *place = turn;
                }
            }
            Instr::Adam(i) => {
                i.place = turn;
                turn = (turn + 1) % gradient_tiles;
            }
            Instr::Vec(_) => {}
        }
    }
}
