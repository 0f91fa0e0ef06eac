//! One row of the array: weight bank, aligner, B cells.

use super::aligner::aligner;
use super::cell::{OPERAND_BITS, SUM_BITS, mac_cell};
use super::copies;
use crate::config::model::WeightFormat;
use crate::dsl::*;
use crate::trainer::plan::weight_columns;
use std::sync::Arc;

/// Cycles from `wa_addr` to the weight at the aligner's input.
pub const WEIGHT_LATENCY: u32 = 4;
/// Cycles from `row` to the cells' operands.
pub const ROW_LATENCY: u32 = 1;
/// Cells that share one copy of the row operand and of the mode.
const ROW_LOADS: usize = 16;

/// One word of columns, lowest bits first.
fn join<'m>(m: &'m Module, mut columns: Vec<Sig<'m>>) -> Sig<'m> {
    columns.reverse();
    match columns[..] {
        [whole] => whole,
        _ => m.cat(&columns),
    }
}

/// `nf_neuron_core`: row r of the array with bank r of the weights.
///
/// The bank's word (or the activation of bank r) is aligned and leaves as `q`; the core rotates
/// the B values to lanes and returns this row's lane as `row`. Port B of the bank is read-first
/// and has one address for both directions, so that the bank maps to true dual-port block RAM.
pub fn neuron_core(
    format: WeightFormat,
    weight_depth: usize,
    b: usize,
) -> Result<Arc<ModuleDef>, DslError> {
    let bits = format.bits();
    let m = Module::new("nf_neuron_core");
    m.doc(&format!(
        "Row of the array: a bank of {weight_depth} weights of {bits} bits, its aligner and {b} cells.\n\
         Port A feeds the array, port B (read-first, data after two cycles) the optimiser and the\n\
         host. q: aligned word, to the rotator; row: this row's lane, from the rotator."
    ));
    let depth = weight_depth as u32;
    let addr_bits = addr_width(depth);
    m.port_group("port A of the bank: the array");
    let wa_addr = m.input("wa_addr", addr_bits);
    let wa_en = m.input("wa_en", 1);
    m.port_group("port B of the bank: optimiser and host");
    let wb_addr = m.input("wb_addr", addr_bits);
    let wb_en = m.input("wb_en", 1);
    let wb_we = m.input("wb_we", 1);
    let wb_wdata = m.input("wb_wdata", bits);
    m.port_group("operand of this bank");
    let act = m.input("act", 32);
    let use_weight = m.input("use_weight", 1);
    let emax = m.input("emax", 8);
    let ones = m.input("ones", 1);
    m.port_group("operands of this row's cells");
    let row = m.input("row", OPERAND_BITS);
    let cols: Vec<Sig<'_>> = (0..b)
        .map(|c| m.input(&format!("col_{c}"), OPERAND_BITS))
        .collect();
    m.port_group("mode of the cells");
    let mode = ["mul", "keep", "shift"].map(|name| (name, m.input(name, 1)));
    m.port_group("sums of the next row");
    let next: Vec<Sig<'_>> = (0..b)
        .map(|c| m.input(&format!("pc_in_{c}"), SUM_BITS))
        .collect();

    m.section("weight bank");
    let wa_addr_q = m.pipe("wa_addr", wa_addr, 1);
    let wa_en_q = m.pipe("wa_en", wa_en, 1);
    // Lowest bits first; more than one column where that takes fewer blocks.
    let columns = weight_columns(weight_depth, bits as usize);
    let (mut words, mut rdata, mut low) = (vec![], vec![], 0);
    for (n, &column) in columns.iter().enumerate() {
        let width = column as u32;
        let name = match columns.len() {
            1 => "bank".to_string(),
            _ => format!("bank{n}"),
        };
        let bank = m.mem(
            &name,
            MemSpec {
                depth,
                width,
                style: MemStyle::Block,
                output_reg: true,
                ..MemSpec::default()
            },
        );
        words.push(bank.read(wa_addr_q, wa_en_q));
        rdata.push(bank.read(wb_addr, wb_en));
        bank.write(wb_addr, wb_wdata.slice(low + width - 1, low), wb_en & wb_we);
        low += width;
    }
    // A deep bank is several blocks: a register behind the multiplexer between them.
    let weight = m.pipe("weight", join(&m, words), 1);
    let wb_rdata = join(&m, rdata);

    m.section("aligned operand");
    let decoded = match 32 - bits {
        0 => weight,
        low => m.cat(&[weight, m.lit(0, low)]),
    };
    let q = m
        .instance("u_aligner", &aligner()?)
        .input("x", m.mux(use_weight, decoded, act))
        .input("emax", emax)
        .input("unit", ones)
        .input("hit", m.lit(1, 1))
        .output("q");

    m.section("cells");
    let row = copies(&m, "row", row, b, ROW_LOADS);
    let mode = mode.map(|(name, s)| (name, copies(&m, name, s, b, ROW_LOADS)));
    let cell = mac_cell()?;
    let mut sums = Vec::with_capacity(b);
    for c in 0..b {
        let mut u = m
            .instance(&format!("u_cell_{c}"), &cell)
            .input("a", row[c])
            .input("b", cols[c])
            .input("pc_in", next[c]);
        for (name, copy) in &mode {
            u = u.input(name, copy[c]);
        }
        sums.push((u.output("p"), u.output("pc_out")));
    }

    m.port_group("data of port B");
    m.output("wb_rdata", wb_rdata);
    m.port_group("aligned word of this bank");
    m.output("q", q);
    m.port_group("sums, to the fabric (row 0) and over the cascade");
    for (c, (p, _)) in sums.iter().enumerate() {
        m.output(&format!("p_{c}"), *p);
    }
    for (c, (_, pc)) in sums.iter().enumerate() {
        m.output(&format!("pc_out_{c}"), *pc);
    }
    m.finish()
}
