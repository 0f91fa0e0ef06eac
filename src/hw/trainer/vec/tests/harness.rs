//! Runs a program on the interpreted unit with memories around it, recording the stimulus.

use std::collections::VecDeque;

use super::model::State;
use crate::dsl::{Interpreter, ModuleDef};
use crate::hw::trainer::READ_LATENCY;
use crate::trainer::encode::Encoded;
use crate::trainer::isa::VecInstr;
use std::sync::Arc;

/// xorshift64*.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 33) % n.max(1) as u64) as usize
    }

    /// Mostly moderate values, some zeros of both signs, some far from one.
    pub fn value(&mut self) -> f32 {
        let r = self.next();
        let unit = ((r >> 40) as f32 / 8_388_608.0) - 1.0;
        match r & 31 {
            0 => 0.0,
            1 => -0.0,
            2 => unit * 1e-20,
            3 => unit * 300.0,
            4 => 1.0,
            _ => unit * 4.0,
        }
    }
}

/// Cycle numbers of one instruction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    pub start: u64,
    /// First cycle with `ready` from the next one on.
    pub ready: u64,
    pub retire: u64,
}

/// A run's stimulus and times.
pub struct Run {
    /// One row of input values a cycle.
    pub rows: Vec<Vec<u128>>,
    pub times: Vec<Times>,
    pub errors: usize,
}

/// Reset and warm-up cycles before the program.
const WARM_UP: usize = 4;

/// Runs `program`; `state` changes as the unit writes. `pause` idles before an instruction.
pub fn run(
    def: &Arc<ModuleDef>,
    program: &[VecInstr],
    encoded: &Encoded,
    state: &mut State,
    mut pause: impl FnMut(usize) -> usize,
) -> Run {
    let b = state.b;
    let mut sim = Interpreter::new(def);
    let input = |name: &str| def.input_index(name).unwrap();
    let output = |name: &str| def.output_index(name).unwrap();
    let each = |name: &str, f: &dyn Fn(&str) -> usize| -> Vec<usize> {
        (0..b).map(|k| f(&format!("{name}_{k}"))).collect()
    };
    let (x_data, y_data) = (each("x_data", &input), each("y_data", &input));
    let targets = each("target", &input);
    let z_data = each("z_data", &output);
    let instr_port = input("instr");
    let (start_port, sample_port) = (input("start"), input("sample_start"));
    let (gamma, beta) = (input("gamma_data"), input("beta_data"));
    let (position, logit_raddr) = (input("logit_position"), input("logit_raddr"));
    let mut run = Run {
        rows: vec![],
        times: vec![],
        errors: 0,
    };
    // Reads on their way: data of cycle n + READ_LATENCY.
    let mut flying: VecDeque<Vec<(usize, u128)>> = VecDeque::new();
    // Writes reach the memory one cycle after the port.
    let mut written: Vec<(usize, usize, Vec<u32>)> = vec![];
    let (mut issued, mut retired, mut idle) = (0, 0, pause(0));
    let mut waiting_for_ready = false;
    let mut tail = 0;
    let mut logits_read = 0;
    let vocab = state.logits.len();
    let mut row = vec![0u128; def.inputs.len()];
    row[position] = state.logit_position as u128;
    let mut cycle = 0u64;
    loop {
        let reset = (cycle as usize) < 2;
        row[start_port] = 0;
        row[sample_port] = u128::from(cycle as usize == WARM_UP - 1);
        if flying.len() == READ_LATENCY as usize {
            for (port, value) in flying.pop_front().unwrap() {
                row[port] = value;
            }
        }
        // Reading the logits back: address now, data in two cycles.
        let finished = retired == program.len();
        if finished && logits_read < vocab + 2 {
            row[logit_raddr] = logits_read.min(vocab - 1) as u128;
        }
        sim.set_reset(reset);
        let drive = |sim: &mut Interpreter, row: &[u128]| {
            for (k, value) in row.iter().enumerate() {
                if k != instr_port {
                    sim.set_input_at(k, &[*value as u64, (*value >> 64) as u64]);
                }
            }
        };
        drive(&mut sim, &row);
        let out = |sim: &mut Interpreter, name: &str| sim.output_at(output(name))[0] as usize;
        let ready = out(&mut sim, "ready") == 1;
        if ready && waiting_for_ready {
            waiting_for_ready = false;
            run.times[issued - 1].ready = cycle;
        }
        let may = cycle as usize >= WARM_UP && issued < program.len() && ready;
        if may && retired >= program[issued].wait[1] {
            if idle > 0 {
                idle -= 1;
            } else {
                sim.set_input_limbs("instr", &encoded.words[issued]);
                row[start_port] = 1;
                drive(&mut sim, &row);
                run.times.push(Times {
                    start: cycle,
                    ..Times::default()
                });
                issued += 1;
                idle = pause(issued);
                waiting_for_ready = true;
            }
        }
        let mut logged = row.clone();
        // The word is wider than one value: its limbs follow the row.
        logged.push((issued.max(1) - 1) as u128);
        run.rows.push(logged);

        if out(&mut sim, "retire") == 1 {
            run.times[retired].retire = cycle;
            retired += 1;
        }
        run.errors += out(&mut sim, "error");
        let mut data = vec![];
        let mut read = |sim: &mut Interpreter, name: &str, ports: &[usize]| {
            if out(sim, &format!("{name}_en")) == 1 {
                let g = out(sim, &format!("{name}_group"));
                let a = out(sim, &format!("{name}_addr"));
                for (k, port) in ports.iter().enumerate() {
                    data.push((*port, u128::from(state.groups[g][a * b + k].to_bits())));
                }
            }
        };
        read(&mut sim, "x", &x_data);
        read(&mut sim, "y", &y_data);
        for (name, port) in [("gamma_addr", gamma), ("beta_addr", beta)] {
            let a = out(&mut sim, name).min(state.params.len() - 1);
            data.push((port, u128::from(state.params[a].to_bits())));
        }
        let tile = out(&mut sim, "target_tile");
        for (l, port) in targets.iter().enumerate() {
            let t = state.targets.get(tile * b + l).copied().unwrap_or(0);
            data.push((*port, t as u128));
        }
        flying.push_back(data);
        for (group, addr, words) in written.drain(..) {
            for (k, w) in words.iter().enumerate() {
                state.groups[group][addr * b + k] = f32::from_bits(*w);
            }
        }
        if out(&mut sim, "z_en") == 1 {
            let words = z_data.iter().map(|p| sim.output_at(*p)[0] as u32).collect();
            written.push((out(&mut sim, "z_group"), out(&mut sim, "z_addr"), words));
        }
        if out(&mut sim, "exp_we") == 1 {
            let old = &mut state.exps[out(&mut sim, "exp_id")];
            let value = out(&mut sim, "exp_value") as u32;
            *old = match out(&mut sim, "exp_first") {
                1 => value,
                _ => value.max(*old),
            };
        }
        if finished && logits_read < vocab + 2 {
            if logits_read >= 2 {
                state.logits[logits_read - 2] = f32::from_bits(out(&mut sim, "logit_rdata") as u32);
            }
            logits_read += 1;
        } else if finished {
            tail += 1;
        }
        state.loss_q24 = out(&mut sim, "loss_q24") as i64;
        state.correct = out(&mut sim, "correct") as u32;
        if tail == 8 {
            break;
        }
        sim.step();
        cycle += 1;
        assert!(
            cycle < 2_000_000,
            "stuck: {issued} started, {retired} retired of {}",
            program.len()
        );
    }
    for (r, row) in state.scalars.iter_mut().enumerate() {
        for (l, value) in row.iter_mut().enumerate() {
            let word = sim.mem_word(&format!("u_lane{l}.scalars"), r).unwrap();
            *value = Some(f32::from_bits(word as u32));
        }
    }
    assert!(sim.failures().is_empty(), "{:?}", sim.failures());
    run
}
