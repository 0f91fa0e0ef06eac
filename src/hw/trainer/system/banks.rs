//! Activation banks, position ROM banks and the exponent file.

use std::sync::Arc;

use crate::dsl::{DslError, MemInit, MemSpec, MemStyle, Module, ModuleDef, addr_width};

/// Depth at or below which a bank is LUT RAM.
pub const DISTRIBUTED_DEPTH: u32 = 64;

fn style(depth: u32) -> MemStyle {
    if depth <= DISTRIBUTED_DEPTH {
        MemStyle::Distributed
    } else {
        MemStyle::Block
    }
}

/// One bank of an activation group: `depth` FP32 words, one read and one write port.
/// Address register, memory, output register: data three cycles after the address.
pub fn act_bank(depth: u32) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new(&format!("nf_act_bank_{depth}"));
    m.doc("One bank of an activation group; data leave three cycles after the address.");
    let a = addr_width(depth);
    let raddr = m.input("raddr", a);
    let waddr = m.input("waddr", a);
    let we = m.input("we", 1);
    let wdata = m.input("wdata", 32);
    let raddr_q = m.pipe("raddr", raddr, 1);
    let waddr_q = m.pipe("waddr", waddr, 1);
    let wdata_q = m.pipe("wdata", wdata, 1);
    let we_q = m.reg_next("we_q", we).with_reset(0).q();
    let mem = m.mem(
        "words",
        MemSpec {
            depth,
            width: 32,
            style: style(depth),
            output_reg: true,
            ..MemSpec::default()
        },
    );
    let rdata = mem.read(raddr_q, m.lit(1, 1));
    mem.write(waddr_q, wdata_q, we_q);
    m.output("rdata", rdata);
    m.finish()
}

/// One bank of the position-code ROM, same timing as an activation bank.
pub fn position_bank(bank: usize, words: &[u32], block: bool) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new(&format!("nf_position_bank_{bank}"));
    m.doc("One bank of the position code (sine and cosine), FP32.");
    let depth = words.len() as u32;
    let style = match block {
        true => MemStyle::Block,
        false => MemStyle::Distributed,
    };
    let raddr = m.input("raddr", addr_width(depth));
    let raddr_q = m.pipe("raddr", raddr, 1);
    let mem = m.mem(
        "words",
        MemSpec {
            depth,
            width: 32,
            style,
            init: Some(MemInit::new(
                &format!("position_{bank}.mem"),
                32,
                words.iter().map(|w| u128::from(*w)),
            )),
            output_reg: true,
            ..MemSpec::default()
        },
    );
    m.output("rdata", mem.read(raddr_q, m.lit(1, 1)));
    m.finish()
}

/// The exponent file: one 8-bit `emax` per tensor, written by three engines each into its own
/// registers, read by the two edges of the array. Number 0 is the constant 127; the mat, vec
/// and weight registers follow (`trainer::encode::exp_number`).
pub fn exponent_file(mat: usize, vec: usize, weight: usize) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_exponent_file");
    m.doc("Largest biased exponent of every operand tensor.");
    let total = 1 + mat + vec + weight;
    let id_bits = addr_width(total as u32);
    let mut registers = vec![m.lit(127, 8)];
    for (engine, count) in [("mat", mat), ("vec", vec), ("adam", weight)] {
        m.port_group(&format!("Updates by the {engine} engine"));
        let bits = addr_width(count.max(1) as u32);
        let we = m.input(&format!("{engine}_we"), 1);
        let id = m.input(&format!("{engine}_id"), bits);
        let value = m.input(&format!("{engine}_value"), 8);
        let first = m.input(&format!("{engine}_first"), 1);
        for n in 0..count {
            let r = m.reg(&format!("{engine}_{n}_q"), 8).with_reset(0);
            let larger = r.q().ult(value).or(first);
            r.set_next(value)
                .with_enable(we.and(id.eq(m.lit(n as u128, bits))).and(larger));
            registers.push(r.q());
        }
    }
    m.port_group("Reads by the array's edges");
    for edge in ["row", "col"] {
        let id = m.input(&format!("{edge}_id"), id_bits);
        m.output(&format!("{edge}_emax"), m.select(id, &registers));
    }
    m.finish()
}
