//! Flattening: a module and its instances become one list of instructions in evaluation order.

use super::super::bits::limbs_for;
use super::super::node::*;
use super::{Code, Instr, MemState, RegState, Slot};
use std::collections::HashMap;

pub(super) struct Flattener {
    pub(super) offsets: Vec<u32>,
    pub(super) widths: Vec<u32>,
    pub(super) values: Vec<u64>,
    pub(super) code: Vec<Instr>,
    pub(super) regs: Vec<RegState>,
    pub(super) mems: Vec<MemState>,
    pub(super) checks: Vec<(Slot, String)>,
    pub(super) reg_paths: HashMap<String, Slot>,
}

impl Flattener {
    pub(super) fn slot(&mut self, width: u32) -> Slot {
        self.offsets.push(self.values.len() as u32);
        self.widths.push(width);
        self.values.resize(self.values.len() + limbs_for(width), 0);
        self.widths.len() as Slot - 1
    }

    pub(super) fn set(&mut self, slot: Slot, limbs: &[u64]) {
        let at = self.offsets[slot as usize] as usize;
        self.values[at..at + limbs.len()].copy_from_slice(limbs);
    }

    /// Adds one module; returns the slots of its nodes.
    pub(super) fn add(&mut self, def: &ModuleDef, path: &str) -> Vec<Slot> {
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

pub(super) fn operands(code: &Code, mut f: impl FnMut(Slot)) {
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
pub(super) fn sort(code: Vec<Instr>, slots: usize) -> Vec<Instr> {
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
