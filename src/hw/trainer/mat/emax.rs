//! Largest exponent of a tile.

use crate::dsl::*;
use std::sync::Arc;

/// Comparison levels between two registers.
const LEVELS: u32 = 2;

/// Comparison levels of B exponents.
fn levels(b: usize) -> u32 {
    usize::BITS - (b - 1).leading_zeros()
}

/// Cycles from a row's exponents to `row_max`.
pub fn max_latency(b: usize) -> u32 {
    levels(b).div_ceil(LEVELS)
}

/// `nf_exponent_max_x<B>`: the largest of B exponents, a comparison tree with a register after
/// every second level.
pub fn exponent_max(b: usize) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new(&format!("nf_exponent_max_x{b}"));
    m.doc(&format!(
        "Largest of {b} 8-bit exponents. Latency {}.",
        max_latency(b)
    ));
    let mut nodes: Vec<Sig<'_>> = (0..b).map(|l| m.input(&format!("e_{l}"), 8)).collect();
    for level in 1..=levels(b) {
        let register = level % LEVELS == 0 || level == levels(b);
        nodes = nodes
            .chunks(2)
            .enumerate()
            .map(|(k, pair)| {
                let larger = match *pair {
                    [a, c] => m.mux(a.ult(c), c, a),
                    _ => pair[0],
                };
                match register {
                    true => m.reg_next(&format!("max{level}_{k}_q"), larger).q(),
                    false => larger,
                }
            })
            .collect();
    }
    m.output("row_max", nodes[0]);
    m.finish()
}
