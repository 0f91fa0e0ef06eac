//! Event-driven cycle model: when every instruction starts and retires.
//!
//! An instruction starts as soon as its engine is ready and its waits are met; nothing stalls inside it. So three
//! numbers per instruction (start to ready, start to retire, retire to a waiting start) give the exact timeline.

mod blocks;
mod costs;

pub use blocks::{BlockClock, SLOTS, buffer_words};
pub use costs::Costs;

use serde::Serialize;

use super::isa::*;
use super::waits::ENGINE_ORDER;

/// When each instruction of the three programs starts and retires, cycles from the start of the sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    pub start: [Vec<u64>; 3],
    pub ready: [Vec<u64>; 3],
    pub retire: [Vec<u64>; 3],
    /// Cycles that the instruction keeps its engine's issue stage (Adam: its lanes) busy.
    pub busy: [Vec<u64>; 3],
    /// Last retirement.
    pub total: u64,
}

/// Cycles of one operator on one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorCycles {
    pub operator: &'static str,
    pub engine: Engine,
    pub instructions: usize,
    /// Cycles from start to ready.
    pub busy: u64,
    /// Cycles in which the engine stood before these instructions.
    pub waiting: u64,
}

/// Runs the programs without data. `None` when they deadlock.
pub fn simulate(program: &Program, costs: &Costs) -> Option<Timeline> {
    let lengths = [program.mat.len(), program.vec.len(), program.adam.len()];
    let mut t = Timeline::default();
    let mut adam_free = 0;
    let mut blocks = BlockClock::default();
    loop {
        let mut moved = false;
        for (e, &length) in lengths.iter().enumerate() {
            while t.start[e].len() < length {
                let n = t.start[e].len();
                let wait = match e {
                    0 => program.mat[n].wait,
                    1 => program.vec[n].wait,
                    _ => program.adam[n].wait,
                };
                if (0..3).any(|f| t.retire[f].len() < wait[f]) {
                    break;
                }
                let mut start = match n {
                    0 => costs.sample_start,
                    _ => t.ready[e][n - 1].max(t.start[e][n - 1] + costs.start_interval),
                };
                for (f, &w) in wait.iter().enumerate() {
                    if w > 0 {
                        start = start.max(t.retire[f][w - 1] + costs.retire_to_start);
                    }
                }
                let fixed = |(ready, retire): (u64, u64)| (start + ready, start + retire, ready);
                let (ready, retire, busy) = match e {
                    0 => fixed(costs.mat(&program.mat[n], program.mat.get(n + 1))),
                    1 => fixed(costs.vec(&program.vec[n])),
                    // A tile may be handed over while another runs; it waits in the unit.
                    _ => {
                        let i = &program.adam[n];
                        let steps = costs.adam_steps(i);
                        let at = blocks.room(costs, i, (start + 2).max(adam_free));
                        let begin = costs.adam_begin(i, at);
                        adam_free = begin + steps;
                        t.total = t.total.max(blocks.take(costs, i, adam_free));
                        (begin, adam_free + costs.adam_latency(), steps)
                    }
                };
                t.busy[e].push(busy);
                let retire = match n {
                    0 => retire,
                    _ => retire.max(t.retire[e][n - 1] + 1),
                };
                t.start[e].push(start);
                t.ready[e].push(ready);
                t.retire[e].push(retire);
                t.total = t.total.max(retire);
                moved = true;
            }
        }
        if (0..3).all(|e| t.start[e].len() == lengths[e]) {
            return Some(t);
        }
        if !moved {
            return None;
        }
    }
}

impl Timeline {
    /// Busy and waiting cycles by engine and operator, in the order of first use. `operators` per engine.
    pub fn breakdown(&self, operators: &[Vec<&'static str>; 3]) -> Vec<OperatorCycles> {
        let mut list: Vec<OperatorCycles> = vec![];
        for (e, &engine) in ENGINE_ORDER.iter().enumerate() {
            let mut free = 0;
            for (n, &operator) in operators[e].iter().enumerate() {
                let known = list
                    .iter()
                    .position(|o| o.operator == operator && o.engine == engine);
                let at = known.unwrap_or_else(|| {
                    list.push(OperatorCycles {
                        operator,
                        engine,
                        instructions: 0,
                        busy: 0,
                        waiting: 0,
                    });
                    list.len() - 1
                });
                let entry = &mut list[at];
                entry.instructions += 1;
                entry.busy += self.busy[e][n];
                entry.waiting += self.start[e][n].saturating_sub(free);
                free = self.ready[e][n];
            }
        }
        list
    }

    /// Cycle at which the first instruction of each phase starts on any engine.
    pub fn phase_starts(&self, program: &Program) -> [u64; 3] {
        let mut first = [u64::MAX; 3];
        let mut note = |phase: Phase, at: u64| {
            let slot = &mut first[phase as usize];
            *slot = (*slot).min(at);
        };
        for (i, &at) in program.mat.iter().zip(&self.start[0]) {
            note(i.phase, at);
        }
        for (i, &at) in program.vec.iter().zip(&self.start[1]) {
            note(i.phase, at);
        }
        for (i, &at) in program.adam.iter().zip(&self.start[2]) {
            note(i.phase, at);
        }
        first
    }
}
