//! The checks of a finished module, and what they learn about it.

use super::module::{Inner, UNBOUND};
use super::node::*;

/// Records every problem of the module; fills liveness, clock, reset and dependencies.
pub(super) fn check(inner: &mut Inner) {
    check_bound(inner);
    check_memories(inner);
    check_primitive(inner);
    if !inner.problems.is_empty() {
        return;
    }
    find_live(&mut inner.def);
    find_clocks(&mut inner.def);
    if let Some(path) = find_loop(&inner.def) {
        inner.problem_here(format!("combinational loop: {}", path.join(" -> ")));
        return;
    }
    find_comb_deps(&mut inner.def);
    check_handshakes(inner);
}

fn check_bound(inner: &mut Inner) {
    for k in 0..inner.def.regs.len() {
        if inner.def.regs[k].next == UNBOUND {
            let message = format!("register `{}` has no next value", inner.def.regs[k].name);
            inner.problem(inner.reg_places[k], message);
        }
    }
    for k in 0..inner.def.instances.len() {
        let inst = &inner.def.instances[k];
        let open: Vec<&str> = inst
            .inputs
            .iter()
            .zip(&inst.def.inputs)
            .filter(|(node, _)| **node == UNBOUND)
            .map(|(_, port)| port.name.as_str())
            .collect();
        if !open.is_empty() {
            let message = format!(
                "inputs of {} ({}) are not connected: {}",
                inst.name,
                inst.def.name,
                open.join(", ")
            );
            inner.problem(inner.inst_places[k], message);
        }
    }
    if inner.def.outputs.is_empty() && inner.def.asserts.is_empty() {
        inner.problem_here("the module has no output".into());
    }
}

fn check_memories(inner: &mut Inner) {
    let mut messages = vec![];
    for mem in &inner.def.mems {
        if mem.reads.is_empty() {
            messages.push(format!("memory `{}` is never read", mem.name));
        }
        if mem.write.is_none() && mem.spec.init.is_none() {
            messages.push(format!(
                "memory `{}` has neither a write port nor initial contents",
                mem.name
            ));
        }
    }
    messages.into_iter().for_each(|m| inner.problem_here(m));
}

fn check_primitive(inner: &mut Inner) {
    let Some(primitive) = inner.def.synthesis.clone() else {
        return;
    };
    let mut driven = vec![];
    for (port, conn) in &primitive.ports {
        match conn {
            PrimitiveConn::Input(node) => {
                if let Some(bad) = first_inner_node(&inner.def, *node) {
                    inner.problem_here(format!(
                        "{}.{port}: {bad} is no expression of input ports",
                        primitive.cell
                    ));
                }
            }
            PrimitiveConn::Output {
                port: name,
                low,
                width,
            } => match inner.def.output_index(name) {
                Some(k) if low + inner.def.outputs[k].width <= *width => driven.push(name.clone()),
                Some(k) => inner.problem_here(format!(
                    "{}.{port} has {width} bits, output `{name}` takes [{}:{low}]",
                    primitive.cell,
                    low + inner.def.outputs[k].width - 1
                )),
                None => {
                    inner.problem_here(format!("{}.{port}: no output `{name}`", primitive.cell))
                }
            },
            PrimitiveConn::Clock | PrimitiveConn::Reset | PrimitiveConn::Open => {}
        }
    }
    for k in 0..inner.def.outputs.len() {
        let name = inner.def.outputs[k].name.clone();
        let times = driven.iter().filter(|d| **d == name).count();
        if times != 1 {
            inner.problem_here(format!(
                "{} drives output `{name}` {times} times",
                primitive.cell
            ));
        }
    }
}

/// A state element or another operation that a primitive's connection cannot spell.
fn first_inner_node(def: &ModuleDef, root: NodeId) -> Option<&'static str> {
    let mut stack = vec![root];
    while let Some(id) = stack.pop() {
        match &def.nodes[id as usize].op {
            Op::RegQ(_) => return Some("a register"),
            Op::MemQ(..) => return Some("a memory"),
            Op::InstOut(..) => return Some("an instance's output"),
            Op::Select(..) | Op::Case(..) => return Some("a case"),
            Op::Binary(
                Binary::Mul | Binary::SMul | Binary::Sra | Binary::Slt | Binary::Sle,
                ..,
            ) => return Some("a signed operation or product"),
            Op::Slice(a, _) | Op::Sext(a)
                if !matches!(def.nodes[*a as usize].op, Op::Input(_) | Op::Slice(..)) =>
            {
                return Some("a slice of an expression");
            }
            op => for_each_operand(op, |a| stack.push(a)),
        }
    }
    None
}

fn find_live(def: &mut ModuleDef) {
    let mut live = vec![false; def.nodes.len()];
    let mut mem_done = vec![false; def.mems.len()];
    let mut stack: Vec<NodeId> = def.outputs.iter().map(|p| p.node).collect();
    stack.extend(def.instances.iter().flat_map(|i| i.inputs.iter().copied()));
    stack.extend(def.asserts.iter().map(|a| a.condition));
    if let Some(primitive) = &def.synthesis {
        for (_, conn) in &primitive.ports {
            if let PrimitiveConn::Input(node) = conn {
                stack.push(*node);
            }
        }
    }
    while let Some(id) = stack.pop() {
        if std::mem::replace(&mut live[id as usize], true) {
            continue;
        }
        match &def.nodes[id as usize].op {
            Op::RegQ(r) => {
                let reg = &def.regs[*r as usize];
                stack.push(reg.next);
                stack.extend(reg.enable);
            }
            Op::MemQ(m, p) => {
                let mem = &def.mems[*m as usize];
                let port = &mem.reads[*p as usize];
                stack.push(port.addr);
                stack.extend(port.enable);
                if !std::mem::replace(&mut mem_done[*m as usize], true)
                    && let Some(w) = &mem.write
                {
                    stack.extend([w.addr, w.data, w.enable]);
                }
            }
            op => for_each_operand(op, |a| stack.push(a)),
        }
    }
    def.live = live;
}

fn find_clocks(def: &mut ModuleDef) {
    let live_regs = || def.regs.iter().filter(|r| def.reg_is_live(r));
    let mems = def.mems.iter().any(|m| {
        def.mem_is_live(m) && (m.write.is_some() || m.reads.iter().any(|r| r.enable.is_some()))
    });
    let clk = live_regs().next().is_some()
        || mems
        || !def.asserts.is_empty()
        || def.instances.iter().any(|i| i.def.has_clk);
    let primitive = |wanted: PrimitiveConn| {
        def.synthesis
            .iter()
            .any(|p| p.ports.iter().any(|(_, c)| *c == wanted))
    };
    let rst = live_regs().any(|r| r.reset.is_some())
        || def.instances.iter().any(|i| i.def.has_rst)
        || primitive(PrimitiveConn::Reset);
    def.has_clk = clk || primitive(PrimitiveConn::Clock);
    def.has_rst = rst;
}

/// Calls `f` for every node that `id` depends on within the cycle, instances included.
fn comb_operands(def: &ModuleDef, id: NodeId, mut f: impl FnMut(NodeId)) {
    match &def.nodes[id as usize].op {
        Op::InstOut(i, p) => {
            let inst = &def.instances[*i as usize];
            for &k in &inst.def.comb_deps[*p as usize] {
                f(inst.inputs[k as usize]);
            }
        }
        Op::MemQ(m, p) => {
            let port = &def.mems[*m as usize].reads[*p as usize];
            if port.enable.is_none() {
                f(port.addr);
            }
        }
        op => for_each_operand(op, f),
    }
}

/// A combinational cycle as a list of names, if there is one.
fn find_loop(def: &ModuleDef) -> Option<Vec<String>> {
    // Only instance outputs can refer to later nodes; without such a reference there is no loop.
    let mut forward = false;
    for id in 0..def.nodes.len() as NodeId {
        if matches!(def.nodes[id as usize].op, Op::InstOut(..)) {
            comb_operands(def, id, |a| forward |= a >= id);
        }
    }
    if !forward {
        return None;
    }
    let mut state = vec![0u8; def.nodes.len()];
    for root in 0..def.nodes.len() as NodeId {
        if state[root as usize] != 0 {
            continue;
        }
        let mut path: Vec<(NodeId, Vec<NodeId>)> = vec![];
        let mut enter = Some(root);
        while let Some(id) = enter.take().or_else(|| next_child(&mut path, &mut state)) {
            match state[id as usize] {
                2 => continue,
                1 => {
                    let start = path.iter().position(|(n, _)| *n == id).unwrap_or(0);
                    return Some(loop_names(def, path[start..].iter().map(|(n, _)| *n)));
                }
                _ => {
                    state[id as usize] = 1;
                    let mut children = vec![];
                    comb_operands(def, id, |a| children.push(a));
                    path.push((id, children));
                }
            }
        }
    }
    None
}

/// The next unvisited operand along the path; finished nodes are closed on the way.
fn next_child(path: &mut Vec<(NodeId, Vec<NodeId>)>, state: &mut [u8]) -> Option<NodeId> {
    while let Some((id, children)) = path.last_mut() {
        match children.pop() {
            Some(child) => return Some(child),
            None => {
                state[*id as usize] = 2;
                path.pop();
            }
        }
    }
    None
}

fn loop_names(def: &ModuleDef, ids: impl Iterator<Item = NodeId>) -> Vec<String> {
    let mut names: Vec<String> = ids
        .filter_map(
            |id| match (&def.names[id as usize], &def.nodes[id as usize].op) {
                (Some(name), _) => Some(name.to_string()),
                (None, Op::InstOut(i, p)) => {
                    let inst = &def.instances[*i as usize];
                    Some(format!(
                        "{}.{}",
                        inst.name, inst.def.outputs[*p as usize].name
                    ))
                }
                _ => None,
            },
        )
        .collect();
    names.extend(names.first().cloned());
    names
}

fn find_comb_deps(def: &mut ModuleDef) {
    let mut stamp = vec![0u32; def.nodes.len()];
    let mut deps = Vec::with_capacity(def.outputs.len());
    for (k, port) in def.outputs.iter().enumerate() {
        let mark = k as u32 + 1;
        let mut found = vec![];
        let mut stack = vec![port.node];
        while let Some(id) = stack.pop() {
            if std::mem::replace(&mut stamp[id as usize], mark) == mark {
                continue;
            }
            if let Op::Input(i) = def.nodes[id as usize].op {
                found.push(i);
            }
            comb_operands(def, id, |a| stack.push(a));
        }
        found.sort_unstable();
        deps.push(found);
    }
    def.comb_deps = deps;
}

/// `x_valid` and `x_ready` belong together, run in opposite directions, and valid never
/// waits for ready within a cycle.
fn check_handshakes(inner: &mut Inner) {
    let def = &inner.def;
    let ports: Vec<(bool, usize, &str)> = def
        .port_order
        .iter()
        .map(|&(out, k)| {
            let list = if out { &def.outputs } else { &def.inputs };
            (out, k as usize, list[k as usize].name.as_str())
        })
        .collect();
    // AXI writes the pair without an underscore: tvalid/tready, awvalid/awready.
    let partner = |name: &str, from: &str, to: &str| -> Option<String> {
        name.strip_suffix(from).map(|base| format!("{base}{to}"))
    };
    let mut messages = vec![];
    for &(out, k, name) in &ports {
        if let Some(other) = partner(name, "valid", "ready") {
            let base = name.strip_suffix("_valid").unwrap_or(name);
            let declared = inner.valid_only.iter().any(|n| n == base || n == name);
            match ports.iter().find(|p| p.2 == other) {
                None if declared || !name.ends_with("_valid") => {}
                None => messages.push(format!(
                    "`{name}` has no `{other}`; a receiver that always takes the data is declared with valid_only(\"{base}\")"
                )),
                Some(p) if p.0 == out => {
                    messages.push(format!("`{name}` and `{other}` run in the same direction"));
                }
                Some(p) if out && def.comb_deps[k].contains(&(p.1 as u32)) => messages.push(
                    format!("`{name}` depends on `{other}` within the cycle: valid must not wait for ready"),
                ),
                Some(_) => {}
            }
        }
        if let Some(other) = partner(name, "_ready", "_valid")
            && !ports.iter().any(|p| p.2 == other)
        {
            messages.push(format!("`{name}` has no `{other}`"));
        }
    }
    messages.into_iter().for_each(|m| inner.problem_here(m));
}
