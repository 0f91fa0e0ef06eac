//! Cycle-accurate interpreter of a module: the same nodes as the printer, evaluated.
//!
//! Two-valued: registers without a reset or initial value start at zero, memories too.

use super::bits::{get_bit, limbs_for, mask_top, or_bits};
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

struct Flattener {
    offsets: Vec<u32>,
    widths: Vec<u32>,
    values: Vec<u64>,
    code: Vec<Instr>,
    regs: Vec<RegState>,
    mems: Vec<MemState>,
    checks: Vec<(Slot, String)>,
    reg_paths: HashMap<String, Slot>,
}

impl Flattener {
    fn slot(&mut self, width: u32) -> Slot {
        self.offsets.push(self.values.len() as u32);
        self.widths.push(width);
        self.values.resize(self.values.len() + limbs_for(width), 0);
        self.widths.len() as Slot - 1
    }

    fn set(&mut self, slot: Slot, limbs: &[u64]) {
        let at = self.offsets[slot as usize] as usize;
        self.values[at..at + limbs.len()].copy_from_slice(limbs);
    }

    /// Adds one module; returns the slots of its nodes.
    fn add(&mut self, def: &ModuleDef, path: &str) -> Vec<Slot> {
        let slots: Vec<Slot> = def.nodes.iter().map(|n| self.slot(n.width)).collect();
        let s = |id: NodeId| slots[id as usize];
        let mut mem_index = vec![0u32; def.mems.len()];
        for (m, mem) in def.mems.iter().enumerate() {
            mem_index[m] = self.mems.len() as u32;
            if !def.mem_is_live(mem) {
                continue;
            }
            let per_word = limbs_for(mem.spec.width);
            let mut words = vec![0; per_word * mem.spec.depth as usize];
            if let Some(init) = &mem.spec.init {
                for (k, word) in init.words.iter().enumerate() {
                    words[k * per_word..(k + 1) * per_word].copy_from_slice(word.limbs());
                }
            }
            let live = |r: &&ReadPort| def.live[r.q as usize];
            self.mems.push(MemState {
                depth: mem.spec.depth,
                width: mem.spec.width,
                lane: mem.spec.write_lane.unwrap_or(mem.spec.width),
                words,
                reads: mem
                    .reads
                    .iter()
                    .filter(live)
                    .filter_map(|r| Some((s(r.addr), s(r.enable?), s(r.q))))
                    .collect(),
                write: mem
                    .write
                    .as_ref()
                    .map(|w| (s(w.addr), s(w.data), s(w.enable))),
                undefined_collision: mem.spec.collision == Collision::Undefined,
                path: format!("{path}{}", mem.name),
            });
        }
        let mut children: Vec<Vec<Slot>> = vec![];
        for inst in &def.instances {
            let child = self.add(&inst.def, &format!("{path}{}.", inst.name));
            for (port, driver) in inst.def.inputs.iter().zip(&inst.inputs) {
                self.code.push(Instr {
                    dst: child[port.node as usize],
                    code: Code::Copy(s(*driver)),
                });
            }
            let outputs = inst.def.outputs.iter();
            children.push(outputs.map(|p| child[p.node as usize]).collect());
        }
        for (id, node) in def.nodes.iter().enumerate() {
            if !def.live[id] {
                continue;
            }
            let list = |ids: &[NodeId]| ids.iter().map(|&i| s(i)).collect::<Box<[Slot]>>();
            let code = match &node.op {
                Op::Input(_) | Op::RegQ(_) => continue,
                Op::Const(bits) => {
                    self.set(slots[id], bits.limbs());
                    continue;
                }
                Op::Param(k) => {
                    self.set(slots[id], def.localparams[*k as usize].value.limbs());
                    continue;
                }
                Op::MemQ(m, p) => {
                    let read = &def.mems[*m as usize].reads[*p as usize];
                    if read.enable.is_some() {
                        continue;
                    }
                    Code::MemRead(mem_index[*m as usize], s(read.addr))
                }
                Op::InstOut(i, p) => Code::Copy(children[*i as usize][*p as usize]),
                Op::Buf(a) => Code::Copy(s(*a)),
                Op::Unary(u, a) => Code::Unary(*u, s(*a)),
                Op::Binary(b, x, y) => Code::Binary(*b, s(*x), s(*y)),
                Op::Slice(a, lo) => Code::Slice(s(*a), *lo),
                Op::Cat(parts) => Code::Cat(list(parts)),
                Op::Repeat(a, n) => Code::Repeat(s(*a), *n),
                Op::Sext(a) => Code::Sext(s(*a)),
                Op::Mux(c, a, b) => Code::Mux(s(*c), s(*a), s(*b)),
                Op::Select(i, choices) => Code::Select(s(*i), list(choices)),
                Op::Case(c, arms, d) => Code::Case(
                    s(*c),
                    arms.iter().map(|(v, a)| (v.clone(), s(*a))).collect(),
                    s(*d),
                ),
            };
            self.code.push(Instr {
                dst: slots[id],
                code,
            });
        }
        for reg in def.regs.iter().filter(|r| def.reg_is_live(r)) {
            if let Some(init) = &reg.init {
                self.set(s(reg.q), init.limbs());
            }
            self.reg_paths
                .insert(format!("{path}{}", reg.name), s(reg.q));
            self.regs.push(RegState {
                q: s(reg.q),
                next: s(reg.next),
                enable: reg.enable.map(s),
                reset: reg.reset.as_ref().map(|b| b.limbs().to_vec()),
            });
        }
        for check in &def.asserts {
            self.checks
                .push((s(check.condition), format!("{path}: {}", check.message)));
        }
        slots
    }
}

fn operands(code: &Code, mut f: impl FnMut(Slot)) {
    match code {
        Code::Copy(a)
        | Code::Unary(_, a)
        | Code::Slice(a, _)
        | Code::Repeat(a, _)
        | Code::Sext(a)
        | Code::MemRead(_, a) => f(*a),
        Code::Binary(_, a, b) => {
            f(*a);
            f(*b);
        }
        Code::Cat(parts) => parts.iter().for_each(|&p| f(p)),
        Code::Mux(s, a, b) => {
            f(*s);
            f(*a);
            f(*b);
        }
        Code::Select(i, choices) => {
            f(*i);
            choices.iter().for_each(|&c| f(c));
        }
        Code::Case(s, arms, d) => {
            f(*s);
            arms.iter().for_each(|(_, a)| f(*a));
            f(*d);
        }
    }
}

/// Orders the instructions so that operands come first. The modules were checked for loops.
fn sort(code: Vec<Instr>, slots: usize) -> Vec<Instr> {
    let mut producer = vec![u32::MAX; slots];
    for (k, instr) in code.iter().enumerate() {
        producer[instr.dst as usize] = k as u32;
    }
    let mut order = Vec::with_capacity(code.len());
    let mut seen = vec![false; code.len()];
    let mut stack: Vec<(u32, bool)> = vec![];
    for root in 0..code.len() as u32 {
        stack.push((root, false));
        while let Some((k, done)) = stack.pop() {
            if done {
                order.push(k);
                continue;
            }
            if std::mem::replace(&mut seen[k as usize], true) {
                continue;
            }
            stack.push((k, true));
            operands(&code[k as usize].code, |slot| {
                let p = producer[slot as usize];
                if p != u32::MAX && !seen[p as usize] {
                    stack.push((p, false));
                }
            });
        }
    }
    let mut code: Vec<Option<Instr>> = code.into_iter().map(Some).collect();
    order
        .into_iter()
        .filter_map(|k| code[k as usize].take())
        .collect()
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

    fn eval(&mut self, instr: &Instr) {
        let width = self.widths[instr.dst as usize];
        if width <= 64
            && let Some(v) = self.eval_narrow(&instr.code, width)
        {
            let mask = u64::MAX >> (64 - width);
            self.values[self.offsets[instr.dst as usize] as usize] = v & mask;
            return;
        }
        let mut out = vec![0u64; limbs_for(width)];
        self.eval_wide(&instr.code, width, &mut out);
        mask_top(&mut out, width);
        let at = self.offsets[instr.dst as usize] as usize;
        self.values[at..at + out.len()].copy_from_slice(&out);
    }

    fn narrow(&self, slot: Slot) -> Option<u64> {
        (self.widths[slot as usize] <= 64)
            .then(|| self.values[self.offsets[slot as usize] as usize])
    }

    fn signed(&self, slot: Slot) -> Option<i64> {
        let shift = 64 - self.widths[slot as usize].min(64);
        Some((self.narrow(slot)? << shift) as i64 >> shift)
    }

    /// The value when every operand fits one limb.
    fn eval_narrow(&self, code: &Code, width: u32) -> Option<u64> {
        Some(
            match code {
                Code::Copy(a) => self.narrow(*a)?,
                Code::Unary(u, a) => {
                    let (v, w) = (self.narrow(*a)?, self.widths[*a as usize]);
                    match u {
                        Unary::Not => !v,
                        Unary::Neg => v.wrapping_neg(),
                        Unary::RedOr => (v != 0) as u64,
                        Unary::RedAnd => (v == u64::MAX >> (64 - w)) as u64,
                        Unary::RedXor => (v.count_ones() & 1) as u64,
                    }
                }
                Code::Binary(op, a, b) => {
                    let (x, y) = (self.narrow(*a)?, self.narrow(*b)?);
                    match op {
                        Binary::Add => x.wrapping_add(y),
                        Binary::Sub => x.wrapping_sub(y),
                        Binary::And => x & y,
                        Binary::Or => x | y,
                        Binary::Xor => x ^ y,
                        Binary::Mul => x.wrapping_mul(y),
                        Binary::SMul => self.signed(*a)?.wrapping_mul(self.signed(*b)?) as u64,
                        Binary::Eq => (x == y) as u64,
                        Binary::Ne => (x != y) as u64,
                        Binary::Ult => (x < y) as u64,
                        Binary::Ule => (x <= y) as u64,
                        Binary::Slt => (self.signed(*a)? < self.signed(*b)?) as u64,
                        Binary::Sle => (self.signed(*a)? <= self.signed(*b)?) as u64,
                        Binary::Shl => x.checked_shl(y.min(64) as u32).unwrap_or(0),
                        Binary::Shr => x.checked_shr(y.min(64) as u32).unwrap_or(0),
                        Binary::Sra => (self.signed(*a)? >> y.min(63)) as u64,
                    }
                }
                Code::Slice(a, lo) => match self.narrow(*a) {
                    Some(v) => v >> lo,
                    None => {
                        let limbs = self.value(*a);
                        let (k, s) = ((lo / 64) as usize, lo % 64);
                        let high = match (s, limbs.get(k + 1)) {
                            (1.., Some(h)) => h << (64 - s),
                            _ => 0,
                        };
                        limbs[k] >> s | high
                    }
                },
                Code::Cat(parts) => {
                    let mut v = 0u64;
                    for &p in parts.iter() {
                        let w = self.widths[p as usize];
                        v = v.checked_shl(w).unwrap_or(0) | self.narrow(p)?;
                    }
                    v
                }
                Code::Repeat(a, n) => {
                    let (v, w) = (self.narrow(*a)?, self.widths[*a as usize]);
                    (0..*n).fold(0, |acc: u64, _| acc.checked_shl(w).unwrap_or(0) | v)
                }
                Code::Sext(a) => self.signed(*a)? as u64,
                Code::Mux(s, a, b) => self.narrow(if self.bit(*s) { *a } else { *b })?,
                Code::Select(i, choices) => {
                    let k = (self.narrow(*i)? as usize).min(choices.len() - 1);
                    self.narrow(choices[k])?
                }
                Code::Case(s, arms, d) => {
                    let v = self.value(*s);
                    let arm = arms.iter().find(|(value, _)| value.limbs() == v);
                    self.narrow(arm.map_or(*d, |(_, a)| *a))?
                }
                Code::MemRead(m, addr) => {
                    let mem = &self.mems[*m as usize];
                    if limbs_for(mem.width) != 1 {
                        return None;
                    }
                    let a = self.narrow(*addr)? as usize;
                    mem.words.get(a).copied().unwrap_or(0)
                }
            } & u64::MAX >> (64 - width),
        )
    }

    fn eval_wide(&self, code: &Code, width: u32, out: &mut [u64]) {
        match code {
            Code::Copy(a) => out.copy_from_slice(self.value(*a)),
            Code::Unary(u, a) => {
                let v = self.value(*a);
                match u {
                    Unary::Not => (0..out.len()).for_each(|i| out[i] = !v[i]),
                    Unary::Neg => {
                        let zero = vec![0; v.len()];
                        sub(&zero, v, out);
                    }
                    Unary::RedOr => out[0] = v.iter().any(|&l| l != 0) as u64,
                    Unary::RedAnd => {
                        let w = self.widths[*a as usize];
                        out[0] = (0..w).all(|i| get_bit(v, i)) as u64;
                    }
                    Unary::RedXor => {
                        out[0] = (v.iter().map(|l| l.count_ones()).sum::<u32>() & 1) as u64;
                    }
                }
            }
            Code::Binary(op, a, b) => self.binary_wide(*op, *a, *b, width, out),
            Code::Slice(a, lo) => or_bits(out, 0, self.value(*a), *lo, width),
            Code::Cat(parts) => {
                let mut at = 0;
                for &p in parts.iter().rev() {
                    let w = self.widths[p as usize];
                    or_bits(out, at, self.value(p), 0, w);
                    at += w;
                }
            }
            Code::Repeat(a, n) => {
                let w = self.widths[*a as usize];
                (0..*n).for_each(|k| or_bits(out, k * w, self.value(*a), 0, w));
            }
            Code::Sext(a) => out.copy_from_slice(&self.extended(*a, out.len(), true)),
            Code::Mux(s, a, b) => {
                out.copy_from_slice(self.value(if self.bit(*s) { *a } else { *b }));
            }
            Code::Select(i, choices) => {
                let v = self.value(*i);
                let big = v[1..].iter().any(|&l| l != 0);
                let last = choices.len() - 1;
                let k = if big { last } else { (v[0] as usize).min(last) };
                out.copy_from_slice(self.value(choices[k]));
            }
            Code::Case(s, arms, d) => {
                let v = self.value(*s);
                let arm = arms.iter().find(|(value, _)| value.limbs() == v);
                out.copy_from_slice(self.value(arm.map_or(*d, |(_, a)| *a)));
            }
            Code::MemRead(m, addr) => {
                let mem = &self.mems[*m as usize];
                let per = limbs_for(mem.width);
                let a = self.value(*addr)[0] as usize;
                if let Some(word) = mem.words.get(a * per..(a + 1) * per) {
                    out.copy_from_slice(word);
                }
            }
        }
    }

    /// A value extended to `limbs` limbs.
    fn extended(&self, slot: Slot, limbs: usize, signed: bool) -> Vec<u64> {
        let width = self.widths[slot as usize];
        let mut v = self.value(slot).to_vec();
        v.resize(limbs.max(v.len()), 0);
        if signed && get_bit(&v, width - 1) {
            for i in width..v.len() as u32 * 64 {
                v[(i / 64) as usize] |= 1 << (i % 64);
            }
        }
        v
    }

    fn binary_wide(&self, op: Binary, a: Slot, b: Slot, width: u32, out: &mut [u64]) {
        use std::cmp::Ordering;
        let (x, y) = (self.value(a), self.value(b));
        let n = x.len().max(y.len());
        let order = |signed: bool| {
            let (x, y) = (self.extended(a, n, signed), self.extended(b, n, signed));
            let top = if signed {
                (x[n - 1] as i64).cmp(&(y[n - 1] as i64))
            } else {
                x[n - 1].cmp(&y[n - 1])
            };
            top.then_with(|| x.iter().rev().cmp(y.iter().rev()))
        };
        match op {
            Binary::Add => {
                let mut carry = false;
                for i in 0..out.len() {
                    let (s, c1) = x[i].overflowing_add(y[i]);
                    let (s, c2) = s.overflowing_add(carry as u64);
                    out[i] = s;
                    carry = c1 | c2;
                }
            }
            Binary::Sub => sub(x, y, out),
            Binary::And => (0..out.len()).for_each(|i| out[i] = x[i] & y[i]),
            Binary::Or => (0..out.len()).for_each(|i| out[i] = x[i] | y[i]),
            Binary::Xor => (0..out.len()).for_each(|i| out[i] = x[i] ^ y[i]),
            Binary::Mul | Binary::SMul => {
                let signed = op == Binary::SMul;
                let (x, y) = (
                    self.extended(a, out.len(), signed),
                    self.extended(b, out.len(), signed),
                );
                for i in 0..out.len() {
                    let mut carry = 0u128;
                    for j in 0..out.len() - i {
                        let t = x[i] as u128 * y[j] as u128 + out[i + j] as u128 + carry;
                        out[i + j] = t as u64;
                        carry = t >> 64;
                    }
                }
            }
            Binary::Eq => out[0] = (x == y) as u64,
            Binary::Ne => out[0] = (x != y) as u64,
            Binary::Ult => out[0] = (order(false) == Ordering::Less) as u64,
            Binary::Ule => out[0] = (order(false) != Ordering::Greater) as u64,
            Binary::Slt => out[0] = (order(true) == Ordering::Less) as u64,
            Binary::Sle => out[0] = (order(true) != Ordering::Greater) as u64,
            Binary::Shl | Binary::Shr | Binary::Sra => {
                let huge = y[1..].iter().any(|&l| l != 0) || y[0] >= width as u64;
                let by = if huge { width } else { y[0] as u32 };
                let fill = op == Binary::Sra && get_bit(x, width - 1);
                match op {
                    Binary::Shl => or_bits(out, by.min(width), x, 0, width - by),
                    _ => or_bits(out, 0, x, by.min(width), width - by),
                }
                if fill {
                    (width - by..width).for_each(|i| out[(i / 64) as usize] |= 1 << (i % 64));
                }
            }
        }
    }
}

fn sub(x: &[u64], y: &[u64], out: &mut [u64]) {
    let mut borrow = false;
    for i in 0..out.len() {
        let (d, b1) = x[i].overflowing_sub(y[i]);
        let (d, b2) = d.overflowing_sub(borrow as u64);
        out[i] = d;
        borrow = b1 | b2;
    }
}

/// The low 128 bits of a limb slice.
fn low128(limbs: &[u64]) -> u128 {
    limbs[0] as u128 | (limbs.get(1).copied().unwrap_or(0) as u128) << 64
}
