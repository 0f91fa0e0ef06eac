//! Memories, tokens, exponent file and sequencer around an interpreted core.

use super::Random;
use super::model::Machine;
use crate::dsl::{Interpreter, ModuleDef};
use crate::hw::trainer::READ_LATENCY;
use crate::trainer::encode::Encoded;
use crate::trainer::isa::MatInstr;
use std::collections::VecDeque;
use std::sync::Arc;

/// An instruction's way through the core, in cycles.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passage {
    pub start: u64,
    pub ready: u64,
    pub retire: u64,
}

type Delay = VecDeque<Option<Vec<u32>>>;

pub struct Bench {
    sim: Interpreter,
    pub def: Arc<ModuleDef>,
    /// Memories as the core writes them.
    pub state: Machine,
    random: Random,
    /// Answers of the read ports under way: row, column, addend, token tile, token.
    answers: [Delay; 5],
    pub passages: Vec<Passage>,
    started: usize,
    retired: usize,
    rows_written: usize,
    pub errors: usize,
    /// Inputs of every cycle in the order of the module's ports, for replay in Verilator.
    pub frames: Vec<Vec<Vec<u64>>>,
    inputs: Vec<Vec<u64>>,
}

impl Bench {
    pub fn new(def: &Arc<ModuleDef>, state: &Machine) -> Self {
        let inputs = vec![vec![0]; def.inputs.len()];
        let answers = std::array::from_fn(|_| VecDeque::from(vec![None; READ_LATENCY as usize]));
        let mut bench = Bench {
            sim: Interpreter::new(def),
            def: def.clone(),
            state: state.clone(),
            random: Random(99),
            answers,
            passages: vec![],
            started: 0,
            retired: 0,
            rows_written: 0,
            errors: 0,
            frames: vec![],
            inputs,
        };
        bench.load_weights();
        bench
    }

    fn set(&mut self, name: &str, limbs: &[u64]) {
        let k = self.def.input_index(name).expect(name);
        self.inputs[k] = limbs.to_vec();
        self.sim.set_input_at(k, limbs);
    }

    fn get(&mut self, name: &str) -> usize {
        let k = self.def.output_index(name).expect(name);
        self.sim.output_at(k)[0] as usize
    }

    /// One clock edge; records the cycle.
    fn clock(&mut self) {
        self.frames.push(self.inputs.clone());
        self.sim.step();
    }

    /// Writes all weights through port B, one address of every bank a cycle.
    fn load_weights(&mut self) {
        for at in 0..self.state.weights[0].len() {
            for bank in 0..self.state.b {
                let word = self.state.weights[bank][at];
                self.set(&format!("wb_addr_{bank}"), &[at as u64]);
                self.set(&format!("wb_wdata_{bank}"), &[word.into()]);
                self.set(&format!("wb_en_{bank}"), &[1]);
                self.set(&format!("wb_we_{bank}"), &[1]);
            }
            self.clock();
        }
        for bank in 0..self.state.b {
            self.set(&format!("wb_we_{bank}"), &[0]);
        }
    }

    fn read(banks: &[Vec<u32>], at: usize) -> Vec<u32> {
        // Lanes outside the matrix may point behind the memory.
        banks.iter().map(|bank| bank[at % bank.len()]).collect()
    }

    fn bank_reads(&mut self, side: &str) -> Option<Vec<u32>> {
        if self.get(&format!("{side}_en")) == 0 {
            return None;
        }
        let group = self.get(&format!("{side}_group"));
        let b = self.state.b;
        let at: Vec<usize> = (0..b)
            .map(|bank| self.get(&format!("{side}_addr_{bank}")))
            .collect();
        let banks = &self.state.acts[group];
        Some((0..b).map(|k| banks[k][at[k] % banks[k].len()]).collect())
    }

    fn serve_reads(&mut self) {
        let row = self.bank_reads("row");
        let col = self.bank_reads("col");
        let add = (self.get("add_en") == 1).then(|| {
            let (group, at) = (self.get("add_group"), self.get("add_addr"));
            match self.state.acts.get(group) {
                Some(banks) => Self::read(banks, at),
                None => Self::read(&self.state.position, at),
            }
        });
        let b = self.state.b;
        let tile = (self.get("tok_v_en") == 1).then(|| {
            let t0 = self.get("tok_v_addr") * b;
            let token = |c| self.state.tokens.get(t0 + c).copied().unwrap_or(0) as u32;
            (0..b).map(token).collect()
        });
        let t = self.get("tok_h_addr");
        let token = Some(vec![self.state.tokens.get(t).copied().unwrap_or(0) as u32]);
        for (delay, answer) in self.answers.iter_mut().zip([row, col, add, tile, token]) {
            delay.push_back(answer);
        }
        let mask = self.token_mask();
        for (k, name) in ["row_data_", "col_data_", "add_data_", "tok_lane_", "tok_h"]
            .iter()
            .enumerate()
        {
            let answer = self.answers[k].pop_front().flatten();
            let count = if k == 4 { 1 } else { b };
            for n in 0..count {
                let port = match k {
                    4 => name.to_string(),
                    _ => format!("{name}{n}"),
                };
                let noise = self.random.bits() as u32;
                let noise = if k >= 3 { noise & mask } else { noise };
                let word = answer.as_ref().map_or(noise, |a| a[n]);
                self.set(&port, &[word.into()]);
            }
        }
    }

    fn token_mask(&self) -> u32 {
        let k = self.def.input_index("tok_h").expect("tok_h");
        (1 << self.def.inputs[k].width) - 1
    }

    fn take_writes(&mut self) {
        if self.get("dst_en") == 1 {
            let at = self.get("dst_addr");
            let (grad, group) = (self.get("dst_grad"), self.get("dst_group"));
            for bank in 0..self.state.b {
                let word = self.get(&format!("dst_data_{bank}")) as u32;
                match grad {
                    1 => self.state.grads[bank][at] = word,
                    _ => self.state.acts[group][bank][at] = word,
                }
            }
            self.rows_written += 1;
        }
        if self.get("exp_we") == 1 {
            let (id, value) = (self.get("exp_id"), self.get("exp_value") as u32);
            let first = self.get("exp_first") == 1;
            let exp = &mut self.state.exps[1 + id];
            *exp = if first { value } else { value.max(*exp) };
        }
        self.errors += self.get("error");
    }

    /// Runs the program. Before instruction n, `gap(n)` cycles are left unused after `ready`, and
    /// it waits until `wait(n)` instructions have retired.
    pub fn run(
        &mut self,
        program: &[MatInstr],
        words: &Encoded,
        mut gap: impl FnMut(usize) -> usize,
        wait: impl Fn(usize) -> usize,
    ) {
        let mut pause = gap(0);
        self.passages = vec![Passage::default(); program.len()];
        let mut seen_ready = true;
        let mut now = 0u64;
        let limit = 2000 + program.iter().map(|i| i.k + i.nr + 200).sum::<usize>() as u64;
        while self.retired < program.len() {
            assert!(now < limit, "the core hangs at {} retired", self.retired);
            // Outputs first: they depend on registers only.
            self.take_writes();
            self.serve_reads();
            for side in ["row", "col"] {
                let id = self.get(&format!("{side}_exp_id"));
                let emax = self.state.exps[id % self.state.exps.len()];
                self.set(&format!("{side}_emax"), &[emax.into()]);
            }
            if self.get("retire") == 1 {
                let n = self.retired;
                self.passages[n].retire = now;
                self.retired += 1;
                let rows: usize = program[..=n].iter().map(|i| i.nr).sum();
                assert!(
                    self.rows_written >= rows,
                    "instruction {n} retires before its last write"
                );
            }
            let ready = self.get("ready") == 1;
            if ready && !seen_ready {
                self.passages[self.started - 1].ready = now;
                seen_ready = true;
            }
            let n = self.started;
            let may = n < program.len() && ready && pause == 0 && self.retired >= wait(n);
            if ready && pause > 0 {
                pause -= 1;
            }
            // Rubbish on the word when it is not looked at.
            let rubbish: Vec<u64> = (0..words.layout.width.div_ceil(64))
                .map(|k| {
                    let rest = words.layout.width - 64 * k;
                    let bits = self.random.bits();
                    if rest < 64 {
                        bits & ((1 << rest) - 1)
                    } else {
                        bits
                    }
                })
                .collect();
            self.set("start", &[may.into()]);
            self.set("instr", if may { &words.words[n] } else { &rubbish });
            if may {
                self.passages[n].start = now;
                self.started += 1;
                seen_ready = false;
                pause = if n + 1 < program.len() { gap(n + 1) } else { 0 };
            }
            self.clock();
            now += 1;
        }
        self.set("start", &[0]);
        for _ in 0..60 {
            assert_eq!(
                self.get("dst_en") + self.get("exp_we") + self.get("retire"),
                0
            );
            self.clock();
        }
    }

    /// The stored weights, read back through port B.
    pub fn weights(&mut self) -> Vec<Vec<u32>> {
        let depth = self.state.weights[0].len();
        let mut banks = vec![vec![]; self.state.b];
        for at in 0..depth + 2 {
            for (bank, words) in banks.iter_mut().enumerate() {
                if at >= 2 {
                    let word = self.get(&format!("wb_rdata_{bank}"));
                    words.push(word as u32);
                }
                self.set(&format!("wb_addr_{bank}"), &[at.min(depth - 1) as u64]);
            }
            self.clock();
        }
        banks
    }
}
