//! Finds bits of nets that nothing reads, so that the text can say so and linters stay silent.

use super::bits::{get_bit, limbs_for};
use super::node::*;
use super::plan::Plan;

/// Nets and parts of nets without a reader, as Verilog expressions.
pub(super) fn unused_parts(plan: &Plan) -> Vec<String> {
    let def = plan.def;
    let mut full = vec![false; def.nodes.len()];
    let mut partial: Vec<(NodeId, u32, u32)> = vec![];
    for (id, node) in def.nodes.iter().enumerate() {
        if !def.live[id] {
            continue;
        }
        match &node.op {
            Op::Slice(a, lo) => partial.push((*a, *lo, node.width)),
            op => for_each_operand(op, |a| full[a as usize] = true),
        }
    }
    for port in &def.outputs {
        full[port.node as usize] = true;
    }
    for reg in def.regs.iter().filter(|r| def.reg_is_live(r)) {
        full[reg.next as usize] = true;
        reg.enable.iter().for_each(|&n| full[n as usize] = true);
    }
    for inst in &def.instances {
        inst.inputs.iter().for_each(|&n| full[n as usize] = true);
    }
    for mem in def.mems.iter().filter(|m| def.mem_is_live(m)) {
        for read in mem.reads.iter().filter(|r| def.live[r.q as usize]) {
            full[read.addr as usize] = true;
            read.enable.iter().for_each(|&n| full[n as usize] = true);
        }
        if let Some(w) = &mem.write {
            for n in [w.addr, w.data, w.enable] {
                full[n as usize] = true;
            }
        }
    }
    for check in &def.asserts {
        full[check.condition as usize] = true;
    }
    partial.retain(|(a, ..)| !full[*a as usize]);
    partial.sort_unstable();

    let mut parts = vec![];
    let mut at = 0;
    for id in 0..def.nodes.len() as NodeId {
        let start = at;
        while at < partial.len() && partial[at].0 == id {
            at += 1;
        }
        let name = match def.nodes[id as usize].op {
            Op::Input(k) => def.inputs[k as usize].name.as_str(),
            _ => plan.net(id),
        };
        let is_input = matches!(def.nodes[id as usize].op, Op::Input(_));
        if full[id as usize] || name.is_empty() || (!def.live[id as usize] && !is_input) {
            continue;
        }
        push_gaps(
            name,
            def.nodes[id as usize].width,
            &partial[start..at],
            &mut parts,
        );
    }
    let mut open: Vec<_> = plan.unused_outputs.iter().collect();
    open.sort();
    parts.extend(open.into_iter().map(|(_, name)| name.clone()));
    parts
}

/// The bits of a net that no slice covers.
fn push_gaps(name: &str, width: u32, slices: &[(NodeId, u32, u32)], parts: &mut Vec<String>) {
    let mut used = vec![0u64; limbs_for(width)];
    for &(_, lo, w) in slices {
        for i in lo..lo + w {
            used[(i / 64) as usize] |= 1 << (i % 64);
        }
    }
    let mut i = 0;
    while i < width {
        let from = i;
        while i < width && !get_bit(&used, i) {
            i += 1;
        }
        if i > from {
            parts.push(match (from, i) {
                (0, end) if end == width => name.to_string(),
                (lo, end) if end == lo + 1 => format!("{name}[{lo}]"),
                (lo, end) => format!("{name}[{}:{lo}]", end - 1),
            });
        }
        i += 1;
    }
}
