//! Decides which nodes become nets of the Verilog text, and what they are called.

use super::names::is_keyword;
use super::node::*;
use std::collections::{HashMap, HashSet};

/// Inline expressions grow up to this many leaves before a net is declared.
const MAX_LEAVES: u32 = 6;

/// What refers to a node first, for naming it.
#[derive(Clone, Copy)]
enum User {
    None,
    Node(NodeId),
    Role(u32),
}

/// A use by something that is no node.
struct Role {
    node: NodeId,
    /// Name of a node used directly.
    direct: String,
    /// Prefix of the names of nodes behind it.
    base: String,
}

/// The printing plan of one module.
pub(super) struct Plan<'d> {
    pub(super) def: &'d ModuleDef,
    /// Net name of each node; `None` prints the expression where it is used.
    pub(super) net: Vec<Option<Box<str>>>,
    /// Net names of instance outputs nobody uses: (instance, port) -> name.
    pub(super) unused_outputs: HashMap<(u32, u32), String>,
    /// Nets that are an output port of the module.
    pub(super) is_port: Vec<bool>,
}

/// `acc_q` -> `acc`, `x_q2` -> `x_q2`.
fn stem(name: &str) -> &str {
    name.strip_suffix("_q").unwrap_or(name)
}

fn next_name(reg: &str) -> String {
    match reg.rfind("_q") {
        Some(at) if reg[at + 2..].chars().all(|c| c.is_ascii_digit()) => {
            format!("{}_d{}", &reg[..at], &reg[at + 2..])
        }
        _ => format!("{reg}_d"),
    }
}

/// Instance name without its `u_`.
pub(super) fn inst_stem(name: &str) -> &str {
    name.strip_prefix("u_").unwrap_or(name)
}

fn word(op: &Op) -> &'static str {
    match op {
        Op::Unary(u, _) => match u {
            Unary::Not => "inv",
            Unary::Neg => "neg",
            Unary::RedOr => "any",
            Unary::RedAnd => "all",
            Unary::RedXor => "parity",
        },
        Op::Binary(b, ..) => match b {
            Binary::Add => "sum",
            Binary::Sub => "diff",
            Binary::And => "and",
            Binary::Or => "or",
            Binary::Xor => "xor",
            Binary::Mul | Binary::SMul => "prod",
            Binary::Eq => "eq",
            Binary::Ne => "ne",
            Binary::Ult | Binary::Slt => "lt",
            Binary::Ule | Binary::Sle => "le",
            Binary::Shl => "shl",
            Binary::Shr => "shr",
            Binary::Sra => "sra",
        },
        Op::Slice(..) => "part",
        Op::Cat(_) => "cat",
        Op::Repeat(..) => "rep",
        Op::Sext(_) => "sext",
        Op::Mux(..) => "mux",
        Op::Select(..) => "sel",
        Op::Case(..) => "case",
        _ => "copy",
    }
}

impl<'d> Plan<'d> {
    pub(super) fn new(def: &'d ModuleDef) -> Self {
        let roles = roles(def);
        let mut uses = vec![0u32; def.nodes.len()];
        let mut user = vec![User::None; def.nodes.len()];
        for (k, role) in roles.iter().enumerate() {
            uses[role.node as usize] += 1;
            if matches!(user[role.node as usize], User::None) {
                user[role.node as usize] = User::Role(k as u32);
            }
        }
        let mut must = vec![false; def.nodes.len()];
        for (id, node) in def.nodes.iter().enumerate() {
            if !def.live[id] {
                continue;
            }
            for_each_operand(&node.op, |a| {
                uses[a as usize] += 1;
                if matches!(user[a as usize], User::None) {
                    user[a as usize] = User::Node(id as NodeId);
                }
            });
            force_operands(def, &node.op, &mut must);
        }
        for mem in &def.mems {
            if let (Some(w), Some(_)) = (&mem.write, mem.spec.write_lane) {
                // Lanes are slices of the data and of the enable.
                for node in [w.data, w.enable] {
                    must[node as usize] |= !matches!(def.nodes[node as usize].op, Op::Const(_));
                }
            }
        }
        let is_net = choose_nets(def, &uses, &must);
        let mut plan = Plan {
            def,
            net: vec![None; def.nodes.len()],
            unused_outputs: HashMap::new(),
            is_port: vec![false; def.nodes.len()],
        };
        plan.name_nets(&roles, &user, &is_net);
        plan
    }

    fn name_nets(&mut self, roles: &[Role], user: &[User], is_net: &[bool]) {
        let def = self.def;
        let mut taken: HashSet<String> = HashSet::new();
        taken.extend(["clk".into(), "rst".into(), "unused_bits".into()]);
        taken.extend(def.inputs.iter().map(|p| p.name.clone()));
        taken.extend(def.outputs.iter().map(|p| p.name.clone()));
        taken.extend(def.localparams.iter().map(|p| p.name.clone()));
        taken.extend(def.mems.iter().map(|m| m.name.clone()));
        taken.extend(def.instances.iter().map(|i| i.name.clone()));
        taken.extend(def.names.iter().flatten().map(|n| n.to_string()));

        // Consumers come after their operands, so walking backwards knows each consumer's base.
        let mut base: Vec<u32> = vec![u32::MAX; def.nodes.len()];
        let mut bases: Vec<String> = roles.iter().map(|r| r.base.clone()).collect();
        for id in (0..def.nodes.len()).rev() {
            if !def.live[id] {
                continue;
            }
            if let Some(name) = &def.names[id] {
                bases.push(stem(name).to_string());
                base[id] = bases.len() as u32 - 1;
                continue;
            }
            base[id] = match user[id] {
                User::Role(k) => k,
                User::Node(n) => base[n as usize],
                User::None => u32::MAX,
            };
        }
        let outputs: HashSet<&str> = def.outputs.iter().map(|p| p.name.as_str()).collect();
        let mut port_of: HashMap<NodeId, &str> = HashMap::new();
        for port in def.outputs.iter().rev() {
            port_of.insert(port.node, &port.name);
        }
        let mut counts: HashMap<(u32, &'static str), u32> = HashMap::new();
        for id in 0..def.nodes.len() {
            if !def.live[id] || !is_net[id] {
                continue;
            }
            let op = &def.nodes[id].op;
            if let Op::Input(k) = op {
                self.net[id] = Some(def.inputs[*k as usize].name.as_str().into());
                continue;
            }
            if let Some(name) = &def.names[id] {
                self.net[id] = Some(name.clone());
                self.is_port[id] = outputs.contains(&**name);
                continue;
            }
            let procedural = matches!(op, Op::Select(..) | Op::Case(..));
            if !procedural && let Some(port) = port_of.get(&(id as NodeId)) {
                self.net[id] = Some((*port).into());
                self.is_port[id] = true;
                continue;
            }
            let wanted = match (op, user[id]) {
                (Op::InstOut(i, p), _) => {
                    let inst = &def.instances[*i as usize];
                    let port = &inst.def.outputs[*p as usize].name;
                    format!("{}_{port}", inst_stem(&inst.name))
                }
                (_, User::Role(k)) if !roles[k as usize].direct.is_empty() => {
                    roles[k as usize].direct.clone()
                }
                _ => {
                    let w = word(op);
                    let stem = bases.get(base[id] as usize).map_or("net", |b| b.as_str());
                    let count = counts.entry((base[id], w)).or_insert(0);
                    *count += 1;
                    match *count {
                        1 => format!("{stem}_{w}"),
                        n => format!("{stem}_{w}{n}"),
                    }
                }
            };
            self.net[id] = Some(free_name(&mut taken, wanted).into_boxed_str());
        }
        for (i, inst) in def.instances.iter().enumerate() {
            for (p, port) in inst.def.outputs.iter().enumerate() {
                let used = inst.outputs[p].is_some_and(|n| def.live[n as usize]);
                if !used {
                    let wanted = format!("{}_{}", inst_stem(&inst.name), port.name);
                    let name = free_name(&mut taken, wanted);
                    self.unused_outputs.insert((i as u32, p as u32), name);
                }
            }
        }
    }

    /// The net of a node, or "" for an inline expression.
    pub(super) fn net(&self, id: NodeId) -> &str {
        self.net[id as usize].as_deref().unwrap_or("")
    }
}

fn free_name(taken: &mut HashSet<String>, wanted: String) -> String {
    let mut name = wanted.clone();
    let mut n = 2;
    while is_keyword(&name) || !taken.insert(name.clone()) {
        name = format!("{wanted}_v{n}");
        n += 1;
    }
    name
}

/// Every use of a node by a port, register, memory, instance or check, in a fixed order.
fn roles(def: &ModuleDef) -> Vec<Role> {
    let mut roles = vec![];
    let mut add = |node: NodeId, direct: String, base: &str| {
        roles.push(Role {
            node,
            direct,
            base: base.to_string(),
        });
    };
    for port in &def.outputs {
        add(port.node, String::new(), &port.name);
    }
    for reg in def.regs.iter().filter(|r| def.reg_is_live(r)) {
        let base = stem(&reg.name);
        add(reg.next, next_name(&reg.name), base);
        if let Some(en) = reg.enable {
            add(en, format!("{base}_en"), base);
        }
    }
    for inst in &def.instances {
        let stem = inst_stem(&inst.name);
        for (node, port) in inst.inputs.iter().zip(&inst.def.inputs) {
            let name = format!("{stem}_{}", port.name);
            add(*node, name.clone(), &name);
        }
    }
    for mem in def.mems.iter().filter(|m| def.mem_is_live(m)) {
        for read in mem.reads.iter().filter(|r| def.live[r.q as usize]) {
            add(read.addr, format!("{}_raddr", mem.name), &mem.name);
            if let Some(en) = read.enable {
                add(en, format!("{}_ren", mem.name), &mem.name);
            }
        }
        if let Some(w) = &mem.write {
            add(w.addr, format!("{}_waddr", mem.name), &mem.name);
            add(w.data, format!("{}_wdata", mem.name), &mem.name);
            add(w.enable, format!("{}_we", mem.name), &mem.name);
        }
    }
    for check in &def.asserts {
        add(check.condition, "check_holds".into(), "check");
    }
    roles
}

/// Operands that the text can only name: what is sliced, sign-extended or multiplied.
fn force_operands(def: &ModuleDef, op: &Op, must: &mut [bool]) {
    let mut force = |a: NodeId, slices_too: bool| {
        let atom = match def.nodes[a as usize].op {
            Op::Const(_) | Op::Param(_) => true,
            Op::Slice(..) => !slices_too,
            _ => false,
        };
        must[a as usize] |= !atom;
    };
    match op {
        Op::Slice(a, _) => force(*a, true),
        Op::Sext(a) => force(*a, false),
        Op::Binary(Binary::Mul | Binary::SMul, a, b) => {
            force(*a, false);
            force(*b, false);
        }
        _ => {}
    }
}

fn choose_nets(def: &ModuleDef, uses: &[u32], must: &[bool]) -> Vec<bool> {
    let mut is_net = vec![false; def.nodes.len()];
    let mut leaves = vec![1u32; def.nodes.len()];
    let atom = |id: NodeId, is_net: &[bool]| {
        is_net[id as usize]
            || matches!(
                def.nodes[id as usize].op,
                Op::Const(_) | Op::Param(_) | Op::Slice(..)
            )
    };
    for (id, node) in def.nodes.iter().enumerate() {
        if !def.live[id] {
            continue;
        }
        let mut total = 0;
        for_each_operand(&node.op, |a| {
            total += if is_net[a as usize] {
                1
            } else {
                leaves[a as usize]
            };
        });
        leaves[id] = total.max(1);
        let cheap = match &node.op {
            Op::Const(_) | Op::Param(_) | Op::Slice(..) => true,
            Op::Unary(Unary::Not, a) => atom(*a, &is_net),
            Op::Cat(parts) => parts.len() == 2 && parts.iter().all(|&p| atom(p, &is_net)),
            Op::Binary(Binary::Eq | Binary::Ne, a, b) => {
                atom(*a, &is_net) && matches!(def.nodes[*b as usize].op, Op::Param(_))
            }
            _ => false,
        };
        let always = match &node.op {
            Op::Input(_)
            | Op::RegQ(_)
            | Op::MemQ(..)
            | Op::InstOut(..)
            | Op::Buf(_)
            | Op::Select(..)
            | Op::Case(..)
            | Op::Binary(Binary::Mul | Binary::SMul | Binary::Sra, ..) => true,
            Op::Const(_) | Op::Param(_) => false,
            _ => {
                def.names[id].is_some()
                    || must[id]
                    || (!cheap && uses[id] > 1)
                    || leaves[id] > MAX_LEAVES
            }
        };
        is_net[id] = always;
    }
    is_net
}
