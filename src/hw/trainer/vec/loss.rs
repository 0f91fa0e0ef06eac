//! Cross-entropy loss of one token in Q24 (`docs/arithmetic.md` section 4).

use crate::dsl::{MemInit, MemSpec, MemStyle, Module, Sig};
use crate::num::tables::{LN2_Q24, LnTable};

/// Cycles from the operands to the loss.
pub const LATENCY: u32 = 4;
/// Bits of one token's loss: ln below 2^31, distance at most 127 * 2^24.
pub const BITS: u32 = 33;

/// `ln_fx(s) + trunc(min(|a|, 127) * 2^24)`: `s` is the sum of the exponentials (at least 1),
/// `a` the target's logit minus the largest, both FP32.
pub fn token_loss<'m>(m: &'m Module, s: Sig<'m>, a: Sig<'m>) -> Sig<'m> {
    m.section("Loss: table of ln and shift distance of |a|");
    let table = LnTable::new();
    let words = table
        .value
        .iter()
        .zip(&table.delta)
        .map(|(t, d)| u128::from(*t) | u128::from(*d) << 24);
    let rom = m.mem(
        "ln_rom",
        MemSpec {
            depth: 256,
            width: 41,
            style: MemStyle::Block,
            init: Some(MemInit::new("vector_ln.mem", 41, words)),
            output_reg: true,
            ..MemSpec::default()
        },
    );
    let entry = rom.read(s.slice(22, 15), m.lit(1, 1));
    let remainder = m.pipe("ln_remainder", s.trunc(15), 2);
    let octave = m.pipe("ln_octave", s.slice(30, 23).sub(m.lit(127, 8)), 2);
    let e = a.slice(30, 23);
    let distance = m.lit(133, 8).sub(e);
    let vanishes = distance.slice(7, 5).or_reduce();
    let shift = m.pipe("loss_shift", distance.trunc(5).or(vanishes.repeat(5)), 1);
    let huge = m.pipe("loss_huge", m.lit(133, 8).ult(e), 1);
    let mantissa = m.pipe("loss_mantissa", a.trunc(23), 1);

    m.section("Loss: |a| in Q24");
    // 128 > |a| >= 64 has its leading one at bit 30.
    let value = m.cat(&[m.lit(1, 1), mantissa, m.lit(0, 7)]).shr(shift);
    let value = m.pipe("loss_fixed", value, 1);
    let huge = m.pipe("loss_huge_late", huge, 1);

    m.section("Loss: products; |a| is at most 127");
    let cap = 127u128 << 24;
    let over = huge.or(m.lit(cap, 31).ule(value));
    let part_a = m.pipe("loss_distance", m.mux(over, m.lit(cap, 31), value), 1);
    let slope = m.pipe("ln_slope", entry.slice(40, 24).mul(remainder), 1);
    let whole = octave.mul(m.lit(LN2_Q24 as u128, 24));
    let whole = m.pipe("ln_whole", whole.trunc(31), 1);
    let base = m.pipe("ln_base", entry.trunc(24), 1);

    m.section("Loss: sum");
    let ln = whole
        .zext(BITS)
        .add(base.zext(BITS))
        .add(slope.slice(31, 15).zext(BITS));
    m.pipe("token_loss", ln.add(part_a.zext(BITS)), 1)
}
