//! OP_SMA4: eight products of signed int4 per 32-bit lane.

use std::sync::Arc;

use super::super::LaneSign;
use crate::dsl::{DslError, Module, ModuleDef, Sig};

/// One lane, module `nf_sma4_lane`: `sum(a_i * w_i)` over eight nibbles. One register stage
/// (pair sums), one operation per cycle. With [`LaneSign::UnsignedLo`] an input `a_unsigned`
/// makes the nibbles of `a` 0 to 15. The sum has 11 bits: it lies within -960 and 840.
pub fn sma4_lane(sign: LaneSign) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_sma4_lane");
    m.doc("OP_SMA4 lane: sum of eight int4 products\nlatency 1 cycle, 1 operation per cycle");
    m.port_group("Operands, eight nibbles each");
    let a = m.input("a", 32);
    let w = m.input("w", 32);
    let a_unsigned = match sign {
        LaneSign::Signed => None,
        LaneSign::UnsignedLo => Some(m.input("a_unsigned", 1)),
    };
    m.section("Stage 1: products and pair sums");
    let product = |i: u32| -> Sig<'_> {
        let (lo, hi) = (4 * i, 4 * i + 3);
        let weight = w.slice(hi, lo);
        let nibble = a.slice(hi, lo);
        match a_unsigned {
            None => nibble.smul(weight),
            Some(unsigned) => {
                let sign = nibble.msb() & !unsigned;
                // -120 to 105: eight bits hold it.
                m.cat(&[sign, nibble]).smul(weight).trunc(8)
            }
        }
    };
    let mut pairs: Vec<Sig<'_>> = (0..4)
        .map(|i| {
            let sum = product(2 * i).sext(9) + product(2 * i + 1).sext(9);
            m.reg_next(&format!("pair{i}_s9_q"), sum).q()
        })
        .collect();
    m.section("Output: sum of the pairs");
    while pairs.len() > 1 {
        let width = pairs[0].width() + 1;
        pairs = pairs
            .chunks(2)
            .map(|p| p[0].sext(width) + p[1].sext(width))
            .collect();
    }
    m.output("sum", pairs[0]);
    m.finish()
}
