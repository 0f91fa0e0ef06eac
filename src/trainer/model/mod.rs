//! Functional model of the machine: banks, the three engines and their counters, bit-exact with [`crate::num`].
//!
//! Time is not modelled; order is. Each instruction starts when its waits allow it, reads, writes and retires at moments
//! that a seed chooses within what the machine permits, so a wait that is missing shows as a wrong bit for some seed.

mod exec;
mod memory;

use super::isa::*;
use super::layout::{TrainerState, WeightLayout};
use super::program::Instr;
use super::waits::ENGINE_ORDER;
use crate::config::model::ModelConfig;
use crate::num::schedule::StepScalars;
use exec::Effect;
pub use memory::Memory;

/// What a sample leaves beside the weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleResult {
    /// Sum over the tokens, Q24.
    pub loss_q24: i64,
    /// Tokens whose largest logit is the target's.
    pub correct: u32,
    /// FP32 bits of the logits at `logit_position`.
    pub logits: Vec<u32>,
}

/// How the engines interleave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interleaving {
    /// Each engine as far as it can, one instruction complete before the next starts.
    InOrder,
    /// Random starts, reads, writes and retirements, up to three instructions of an engine at once.
    Random(u64),
}

/// Instructions of one engine between start and retirement.
#[derive(Default)]
struct Pipeline {
    started: usize,
    /// Results of instructions that have read but not written, oldest first.
    computed: std::collections::VecDeque<Effect>,
    read: usize,
    written: usize,
    retired: usize,
}

/// Most instructions of an engine in flight.
const DEPTH: usize = 3;

/// The machine with its programs and its whole state.
pub struct Machine {
    pub memory: Memory,
    program: [Vec<Instr>; 3],
    logit_position: usize,
}

impl Machine {
    /// A machine whose memories hold zeros.
    pub fn new(
        model: &ModelConfig,
        shape: &Shape,
        weights: &WeightLayout,
        program: &Program,
    ) -> Result<Self, String> {
        Ok(Self {
            memory: Memory::new(model, shape, weights),
            program: super::waits::lists(program),
            logit_position: model.seq_len - 1,
        })
    }

    pub fn load(&mut self, state: &TrainerState) {
        self.memory.load(state);
    }

    pub fn state(&self) -> TrainerState {
        self.memory.state()
    }

    /// Token whose logits the next samples capture.
    pub fn set_logit_position(&mut self, position: usize) {
        self.logit_position = position;
    }

    /// One training sample.
    pub fn train(
        &mut self,
        tokens: &[usize],
        targets: &[usize],
        how: Interleaving,
    ) -> Result<SampleResult, String> {
        let scalars = self.begin(tokens, targets, true);
        let end = self.lengths(None);
        self.run(end, scalars, how)?;
        Ok(self.result())
    }

    /// Encode, forward and loss only; no state changes.
    pub fn evaluate(
        &mut self,
        tokens: &[usize],
        targets: &[usize],
        how: Interleaving,
    ) -> Result<SampleResult, String> {
        let scalars = self.begin(tokens, targets, false);
        let end = self.lengths(Some(Phase::Backward));
        self.run(end, scalars, how)?;
        Ok(self.result())
    }

    /// Runs a training sample until instruction `index` of `engine` has retired and returns the value of
    /// its destination, `[lane][step]` (a tile of a product, a pass, or the updated weights). For hardware debugging.
    pub fn run_until(
        &mut self,
        tokens: &[usize],
        targets: &[usize],
        engine: Engine,
        index: usize,
    ) -> Result<Vec<Vec<u32>>, String> {
        let scalars = self.begin(tokens, targets, true);
        let mut counts = [0; 3];
        loop {
            let mut moved = false;
            for (e, &name) in ENGINE_ORDER.iter().enumerate() {
                let Some(instr) = self.program[e].get(counts[e]) else {
                    continue;
                };
                if (0..3).any(|f| counts[f] < instr.wait()[f]) {
                    continue;
                }
                let effect = exec::compute(&self.memory, instr, &scalars, self.logit_position)?;
                let tile = effect.tile.clone();
                self.memory.apply(effect);
                if name == engine && counts[e] == index {
                    return Ok(tile);
                }
                counts[e] += 1;
                moved = true;
            }
            if !moved {
                return Err(format!("{engine:?} has no instruction {index}"));
            }
        }
    }

    fn begin(&mut self, tokens: &[usize], targets: &[usize], train: bool) -> StepScalars {
        self.memory.begin(tokens, targets);
        self.memory.advance(train)
    }

    /// Instructions of each engine before the first of phase `stop`.
    fn lengths(&self, stop: Option<Phase>) -> [usize; 3] {
        [0, 1, 2].map(|e| {
            let list = &self.program[e];
            stop.and_then(|p| list.iter().position(|i| i.phase() == p))
                .unwrap_or(list.len())
        })
    }

    fn result(&self) -> SampleResult {
        SampleResult {
            loss_q24: self.memory.loss_q24,
            correct: self.memory.correct,
            logits: self.memory.logits.iter().map(|x| x.to_bits()).collect(),
        }
    }

    fn run(
        &mut self,
        end: [usize; 3],
        scalars: StepScalars,
        how: Interleaving,
    ) -> Result<(), String> {
        let mut pipes: [Pipeline; 3] = Default::default();
        let mut rng = match how {
            Interleaving::InOrder => None,
            Interleaving::Random(seed) => Some(Chooser::new(seed)),
        };
        let mut moves = Vec::with_capacity(12);
        while (0..3).any(|e| pipes[e].retired < end[e]) {
            moves.clear();
            for (e, &end) in end.iter().enumerate() {
                self.moves(e, &pipes, end, &mut moves);
            }
            let choice = match &mut rng {
                // Later stages first: an instruction completes before the next one starts.
                None => moves.iter().max_by_key(|m| m.1).copied(),
                Some(rng) => rng.choose(&moves),
            };
            let Some((e, stage)) = choice else {
                return Err("the programs deadlock".into());
            };
            let pipe = &mut pipes[e];
            match stage {
                Stage::Start => pipe.started += 1,
                Stage::Read => {
                    let instr = &self.program[e][pipe.read];
                    let effect = exec::compute(&self.memory, instr, &scalars, self.logit_position)?;
                    pipe.computed.push_back(effect);
                    pipe.read += 1;
                }
                Stage::Write => {
                    if let Some(effect) = pipe.computed.pop_front() {
                        self.memory.apply(effect);
                    }
                    pipe.written += 1;
                }
                Stage::Retire => pipe.retired += 1,
            }
        }
        Ok(())
    }

    /// What engine `e` may do next.
    fn moves(&self, e: usize, pipes: &[Pipeline; 3], end: usize, moves: &mut Vec<(usize, Stage)>) {
        let pipe = &pipes[e];
        if pipe.started < end && pipe.started < pipe.retired + DEPTH {
            let wait = self.program[e][pipe.started].wait();
            if (0..3).all(|f| pipes[f].retired >= wait[f]) {
                moves.push((e, Stage::Start));
            }
        }
        if pipe.read < pipe.started {
            moves.push((e, Stage::Read));
        }
        if pipe.written < pipe.read {
            moves.push((e, Stage::Write));
        }
        if pipe.retired < pipe.written {
            moves.push((e, Stage::Retire));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Start,
    Read,
    Write,
    Retire,
}

/// Picks moves; for a random stretch it prefers some engines and stages, so that early writes and late reads meet.
struct Chooser {
    state: u64,
    weights: [[u64; 4]; 3],
    left: u32,
}

impl Chooser {
    fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            weights: [[1; 4]; 3],
            left: 0,
        }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state >> 16
    }

    fn choose(&mut self, moves: &[(usize, Stage)]) -> Option<(usize, Stage)> {
        if self.left == 0 {
            self.left = 20 + (self.next() % 100) as u32;
            for e in 0..3 {
                for s in 0..4 {
                    self.weights[e][s] = [1, 10, 100][(self.next() % 3) as usize];
                }
            }
        }
        self.left -= 1;
        let weight = |m: &(usize, Stage)| self.weights[m.0][m.1 as usize];
        let total: u64 = moves.iter().map(weight).sum();
        if total == 0 {
            return None;
        }
        let mut at = self.next() % total;
        let weights = self.weights;
        moves.iter().copied().find(|m| {
            let w = weights[m.0][m.1 as usize];
            let hit = at < w;
            at = at.saturating_sub(w);
            hit
        })
    }
}

#[cfg(test)]
mod tests;
