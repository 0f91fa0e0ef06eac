//! Cycle-accurate interpreter of a module: the same nodes as the printer, evaluated.
//!
//! Two-valued: registers without a reset or initial value start at zero, memories too.

mod eval;
mod flatten;

use eval::low128;
use flatten::{Flattener, sort};

use super::bits::{get_bit, limbs_for, mask_top};
use super::node::*;
use std::collections::HashMap;
use std::sync::Arc;

/// Index of a value in the flattened design.
type Slot = u32;

#[derive(Clone, Debug)]
enum Code {
    Copy(Slot),
    Unary(Unary, Slot),
    Binary(Binary, Slot, Slot),
    Slice(Slot, u32),
    Cat(Box<[Slot]>),
    Repeat(Slot, u32),
    Sext(Slot),
    Mux(Slot, Slot, Slot),
    Select(Slot, Box<[Slot]>),
    Case(Slot, Box<[(super::Bits, Slot)]>, Slot),
    MemRead(u32, Slot),
}

#[derive(Clone, Debug)]
struct Instr {
    dst: Slot,
    code: Code,
}

#[derive(Clone, Debug)]
struct RegState {
    q: Slot,
    next: Slot,
    enable: Option<Slot>,
    reset: Option<Vec<u64>>,
}

#[derive(Clone, Debug)]
struct MemState {
    depth: u32,
    width: u32,
    lane: u32,
    words: Vec<u64>,
    reads: Vec<(Slot, Slot, Slot)>,
    write: Option<(Slot, Slot, Slot)>,
    undefined_collision: bool,
    path: String,
}

/// A running module.
#[derive(Clone, Debug)]
pub struct Interpreter {
    def: Arc<ModuleDef>,
    offsets: Vec<u32>,
    widths: Vec<u32>,
    values: Vec<u64>,
    program: Vec<Instr>,
    regs: Vec<RegState>,
    mems: Vec<MemState>,
    mem_paths: HashMap<String, usize>,
    reg_paths: HashMap<String, Slot>,
    checks: Vec<(Slot, String)>,
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    reset: bool,
    dirty: bool,
    cycle: u64,
    failures: Vec<String>,
    staged: Vec<u64>,
}

impl Interpreter {
    /// Flattens `def` and its instances; everything starts at zero or its initial value.
    pub fn new(def: &Arc<ModuleDef>) -> Self {
        let mut flat = Flattener {
            offsets: vec![],
            widths: vec![],
            values: vec![],
            code: vec![],
            regs: vec![],
            mems: vec![],
            checks: vec![],
            reg_paths: HashMap::new(),
        };
        let slots = flat.add(def, "");
        let mem_paths = flat.mems.iter().enumerate();
        Interpreter {
            def: def.clone(),
            mem_paths: mem_paths.map(|(k, m)| (m.path.clone(), k)).collect(),
            program: sort(flat.code, flat.widths.len()),
            offsets: flat.offsets,
            widths: flat.widths,
            values: flat.values,
            regs: flat.regs,
            mems: flat.mems,
            reg_paths: flat.reg_paths,
            checks: flat.checks,
            inputs: def.inputs.iter().map(|p| slots[p.node as usize]).collect(),
            outputs: def.outputs.iter().map(|p| slots[p.node as usize]).collect(),
            reset: false,
            dirty: true,
            cycle: 0,
            failures: vec![],
            staged: vec![],
        }
    }

    /// The module.
    pub fn def(&self) -> &Arc<ModuleDef> {
        &self.def
    }

    /// Drives `rst`.
    pub fn set_reset(&mut self, reset: bool) {
        self.reset = reset;
    }

    /// Drives an input (`rst` included). Bits beyond the port's width are cut.
    ///
    /// # Panics
    /// If the module has no such input.
    #[track_caller]
    pub fn set_input(&mut self, name: &str, value: u128) {
        self.set_input_limbs(name, &[value as u64, (value >> 64) as u64]);
    }

    /// Drives an input of any width, 64 bits a limb, least significant first.
    ///
    /// # Panics
    /// If the module has no such input.
    #[track_caller]
    pub fn set_input_limbs(&mut self, name: &str, limbs: &[u64]) {
        if name == "rst" && self.def.has_rst {
            self.reset = limbs[0] & 1 == 1;
            return;
        }
        match self.def.input_index(name) {
            Some(k) => self.set_input_at(k, limbs),
            None => panic!("module {} has no input `{name}`", self.def.name),
        }
    }

    /// Drives the input with index `k` of [`ModuleDef::inputs`].
    pub fn set_input_at(&mut self, k: usize, limbs: &[u64]) {
        let slot = self.inputs[k] as usize;
        let (at, width) = (self.offsets[slot] as usize, self.widths[slot]);
        let to = &mut self.values[at..at + limbs_for(width)];
        for (i, limb) in to.iter_mut().enumerate() {
            *limb = limbs.get(i).copied().unwrap_or(0);
        }
        mask_top(to, width);
        self.dirty = true;
    }

    /// The low 128 bits of an output, for the inputs as they are now.
    ///
    /// # Panics
    /// If the module has no such output.
    #[track_caller]
    pub fn get_output(&mut self, name: &str) -> u128 {
        match self.def.output_index(name) {
            Some(k) => low128(self.output_at(k)),
            None => panic!("module {} has no output `{name}`", self.def.name),
        }
    }

    /// The output with index `k` of [`ModuleDef::outputs`].
    pub fn output_at(&mut self, k: usize) -> &[u64] {
        self.settle();
        self.value(self.outputs[k])
    }

    /// A register anywhere in the hierarchy, by path (`u_core0.acc_q`): its low 128 bits.
    pub fn reg(&self, path: &str) -> Option<u128> {
        self.reg_paths.get(path).map(|&s| low128(self.value(s)))
    }

    /// A word of a memory anywhere in the hierarchy, by path: its low 128 bits.
    pub fn mem_word(&self, path: &str, addr: usize) -> Option<u128> {
        let mem = &self.mems[*self.mem_paths.get(path)?];
        let per = limbs_for(mem.width);
        mem.words.get(addr * per..(addr + 1) * per).map(low128)
    }

    /// Overwrites a memory word (low 128 bits); false if there is no such word.
    pub fn set_mem_word(&mut self, path: &str, addr: usize, value: u128) -> bool {
        let Some(&k) = self.mem_paths.get(path) else {
            return false;
        };
        let mem = &mut self.mems[k];
        let per = limbs_for(mem.width);
        let Some(word) = mem.words.get_mut(addr * per..(addr + 1) * per) else {
            return false;
        };
        for (i, limb) in word.iter_mut().enumerate() {
            *limb = match i {
                0 => value as u64,
                1 => (value >> 64) as u64,
                _ => 0,
            };
        }
        mask_top(word, mem.width);
        self.dirty = true;
        true
    }

    /// Rising clock edges so far.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Messages of the checks that failed, with the cycle.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    fn value(&self, slot: Slot) -> &[u64] {
        let at = self.offsets[slot as usize] as usize;
        &self.values[at..at + limbs_for(self.widths[slot as usize])]
    }

    fn bit(&self, slot: Slot) -> bool {
        self.values[self.offsets[slot as usize] as usize] & 1 == 1
    }

    fn settle(&mut self) {
        if !self.dirty {
            return;
        }
        let program = std::mem::take(&mut self.program);
        for instr in &program {
            self.eval(instr);
        }
        self.program = program;
        self.dirty = false;
    }

    /// One rising clock edge.
    pub fn step(&mut self) {
        self.settle();
        self.run_checks();
        let mut staged = std::mem::take(&mut self.staged);
        staged.clear();
        for reg in &self.regs {
            let source = match &reg.reset {
                Some(value) if self.reset => &value[..],
                _ if reg.enable.is_some_and(|en| !self.bit(en)) => self.value(reg.q),
                _ => self.value(reg.next),
            };
            staged.extend_from_slice(source);
        }
        for mem in &self.mems {
            let per = limbs_for(mem.width);
            for &(addr, enable, q) in &mem.reads {
                if !self.bit(enable) {
                    staged.extend_from_slice(self.value(q));
                    continue;
                }
                let a = self.value(addr)[0] as usize;
                match mem.words.get(a * per..(a + 1) * per) {
                    Some(word) => staged.extend_from_slice(word),
                    None => staged.resize(staged.len() + per, 0),
                }
            }
        }
        self.write_memories();
        let mut at = 0;
        let memory_data = self.mems.iter().flat_map(|m| m.reads.iter().map(|r| r.2));
        for q in self.regs.iter().map(|r| r.q).chain(memory_data) {
            let to = self.offsets[q as usize] as usize;
            let n = limbs_for(self.widths[q as usize]);
            self.values[to..to + n].copy_from_slice(&staged[at..at + n]);
            at += n;
        }
        self.staged = staged;
        self.dirty = true;
        self.cycle += 1;
    }

    fn run_checks(&mut self) {
        if self.reset {
            return;
        }
        let mut failed = vec![];
        for (slot, message) in &self.checks {
            if !self.bit(*slot) {
                failed.push(format!("cycle {}: {message}", self.cycle));
            }
        }
        for mem in self.mems.iter().filter(|m| m.undefined_collision) {
            let Some((waddr, _, we)) = mem.write else {
                continue;
            };
            if self.value(we).iter().all(|&l| l == 0) {
                continue;
            }
            for &(addr, enable, _) in &mem.reads {
                if self.bit(enable) && self.value(addr) == self.value(waddr) {
                    failed.push(format!(
                        "cycle {}: {} is read and written at one address",
                        self.cycle, mem.path
                    ));
                }
            }
        }
        self.failures.extend(failed);
    }

    fn write_memories(&mut self) {
        for k in 0..self.mems.len() {
            let Some((addr, data, enable)) = self.mems[k].write else {
                continue;
            };
            let (width, lane) = (self.mems[k].width, self.mems[k].lane);
            let per = limbs_for(width);
            let a = self.value(addr)[0] as usize;
            if a >= self.mems[k].depth as usize {
                continue;
            }
            let enables = self.value(enable).to_vec();
            let data = self.value(data).to_vec();
            let word = &mut self.mems[k].words[a * per..(a + 1) * per];
            for l in 0..width / lane {
                if get_bit(&enables, l) {
                    for i in l * lane..(l + 1) * lane {
                        let mask = 1u64 << (i % 64);
                        let limb = &mut word[(i / 64) as usize];
                        *limb = *limb & !mask | (data[(i / 64) as usize] & mask);
                    }
                }
            }
        }
    }
}
