//! `nf_table_unit`: the functions of the table stage (`docs/arithmetic.md` section 3).
//!
//! One ROM holds the three tables; each of its two read ports serves one lane. All three
//! functions share one datapath: the fields of the word and the scale of the interpolation
//! remainder are chosen so that the sum always loses 13 fraction bits.

use std::sync::Arc;

use crate::config::model::Gelu;
use crate::dsl::{DslError, MemInit, MemSpec, MemStyle, Module, ModuleDef, Sig};
use crate::num::tables::{Exp2Table, OddTable};
use crate::trainer::isa::Table;

/// Cycles from `x` and `op` to `y`.
pub const LATENCY: u32 = 13;

/// Words of the ROM, one block RAM of two read ports: exp2n at 0, phi and dphi below 4 at 256
/// and 512, both from 4 to 8 at 768. There they hardly differ from 1: half a word holds the
/// differences, low half phi, high half dphi.
const DEPTH: u32 = 1024;
/// Bits of a half: value - 2^19 in 10 bits, then the slope in 8, both two's complement.
const HALF: u32 = 18;
/// Entry bits: value 20, slope 16 (two's complement).
const WORD: u32 = 36;

/// The ROM words: `{slope[16], value[20]}`, or two halves `{slope[8], value - 2^19 [10]}`.
pub fn rom_words(gelu: Gelu) -> Vec<u128> {
    let full = |value: u32, slope: i32| {
        u128::from(value & 0xf_ffff) | u128::from(slope as u32 & 0xffff) << 20
    };
    let exp = Exp2Table::new();
    let mut words: Vec<u128> = (0..256)
        .map(|i| full(exp.value[i], exp.slope[i] as i32))
        .collect();
    let tables = [OddTable::phi(gelu), OddTable::dphi(gelu)];
    for table in &tables {
        words.extend((0..256).map(|i| full(table.value[i], table.slope[i])));
    }
    let half = |table: &OddTable, i: usize| {
        let value = (table.value[i] as i32 - (1 << 19)) as u32 & 0x3ff;
        u128::from(value) | u128::from(table.slope[i] as u32 & 0xff) << 10
    };
    let [phi, dphi] = &tables;
    words.extend((256..512).map(|i| half(phi, i) | half(dphi, i) << HALF));
    words
}

/// What the front of a lane's datapath hands on, each field at the cycle it is used.
struct Front<'m> {
    /// ROM address, stage 4.
    address: Sig<'m>,
    /// The word holds two halves, and the high one is wanted, stage 5.
    halves: Sig<'m>,
    high_half: Sig<'m>,
    /// Interpolation remainder, 15 bits, stage 6.
    remainder: Sig<'m>,
    /// exp2n is selected, stage 6.
    exp: Sig<'m>,
    /// `2^23 - v` is wanted, stage 8.
    mirror: Sig<'m>,
    /// |x| >= 8, stage 8.
    saturated: Sig<'m>,
    /// Exponent field of a result whose leading one is at bit 23, stage 11.
    exponent: Sig<'m>,
    /// The result is +0, stage 12.
    kill: Sig<'m>,
}

/// The table unit of `lanes` (1 or 2) lanes. Inputs `op` (code of [`Table`], bypass gives
/// rubbish), `x_0`, `x_1`; outputs `y_0`, `y_1` after [`LATENCY`] cycles; FP32, one per cycle.
pub fn table_unit(gelu: Gelu, lanes: usize) -> Result<Arc<ModuleDef>, DslError> {
    let lanes = lanes.clamp(1, 2);
    let m = Module::new(match lanes {
        1 => "nf_table_unit_single",
        _ => "nf_table_unit",
    });
    m.doc(&format!(
        "exp2n(x), phi(x) or dphi(x) by table and linear interpolation, FP32 in and out.\n\
         Latency {LATENCY} cycles, one result per lane and cycle. op: 1 exp2n, 2 phi, 3 dphi."
    ));
    let op = m.input("op", 2);
    let x: Vec<_> = (0..lanes).map(|l| m.input(&format!("x_{l}"), 32)).collect();
    let fronts: Vec<_> = x
        .iter()
        .enumerate()
        .map(|(l, x)| {
            let _scope = m.name_scope(&format!("lane{l}"));
            front(&m, op, *x)
        })
        .collect();

    m.section("Stage 5: ROM, one port per lane");
    let rom = m.mem(
        "table_rom",
        MemSpec {
            depth: DEPTH,
            width: WORD,
            style: MemStyle::Block,
            init: Some(MemInit::new(
                match gelu {
                    Gelu::Erf => "vector_tables_erf.mem",
                    Gelu::Tanh => "vector_tables_tanh.mem",
                },
                WORD,
                rom_words(gelu),
            )),
            ..MemSpec::default()
        },
    );
    let words: Vec<_> = fronts
        .iter()
        .map(|f| rom.read(f.address, m.lit(1, 1)))
        .collect();
    for (l, (f, word)) in fronts.iter().zip(words).enumerate() {
        let y = {
            let _scope = m.name_scope(&format!("lane{l}"));
            let sum = interpolate(&m, f, word);
            to_float(&m, f, sum)
        };
        m.output(&format!("y_{l}"), y);
    }
    m.finish()
}

/// Stages 1 to 4: FP32 to the fixed-point argument.
fn front<'m>(m: &'m Module, op: Sig<'m>, x: Sig<'m>) -> Front<'m> {
    m.section("Stage 1: shift distance and special cases");
    let is = |t: Table| op.eq(m.lit(t as u128, 2));
    let (exp, phi, dphi) = (is(Table::Exp2n), is(Table::Phi), is(Table::Dphi));
    let (sign, e, frac) = (x.bit(31), x.slice(30, 23), x.slice(22, 0));
    // exp2n: |x| * 2^22; phi and dphi: |x| * 2^20 (their 18-bit fraction, moved up by two).
    let top = m.mux(exp, m.lit(133, 8), m.lit(135, 8));
    let distance = top.sub(e);
    let nan = e.and_reduce().and(frac.or_reduce());
    let zero_argument = exp.and(sign.not()).and(nan.not());
    // |x| >= 127
    let far = m
        .lit(133, 8)
        .ult(e)
        .or(e.eq(m.lit(133, 8)).and(frac.slice(22, 17).and_reduce()));
    let out = distance.slice(7, 5).or_reduce().or(zero_argument);
    let shift = distance.trunc(5).or(out.repeat(5));
    let shift = m.pipe("shift", shift, 1);
    let frac = m.pipe("fraction", frac, 1);
    let exp1 = m.pipe("exp", exp, 1);
    let op1 = m.pipe("gelu", m.cat(&[dphi, phi]), 1);
    let kill = m.pipe("far", exp.and(far).and(zero_argument.not()), 1);
    let saturated = m.pipe("saturated", m.lit(130, 8).ule(e).and(exp.not()), 1);
    let mirror = m.pipe("mirror", sign.and(exp.not()), 1);

    m.section("Stages 2 to 4: shift, and negate for exp2n");
    // The hidden one may stand even for zero: it is shifted out then.
    let mantissa = m.cat(&[m.lit(1, 1), frac, m.lit(0, 5)]);
    let by = |v: Sig<'m>, n: u32| v.shr_const(n);
    let coarse = m.select(
        shift.slice(4, 3),
        &[
            mantissa,
            by(mantissa, 8),
            by(mantissa, 16),
            by(mantissa, 24),
        ],
    );
    let coarse = m.pipe("coarse", coarse, 1);
    let shift = m.pipe("shift_fine", shift.trunc(3), 1);
    let fine = m.select(
        shift.slice(2, 1),
        &[coarse, by(coarse, 2), by(coarse, 4), by(coarse, 6)],
    );
    let fine = m.pipe("fine", fine, 1);
    let last = m.pipe("shift_last", shift.bit(0), 1);
    let exp3 = m.delay("exp_fine", exp1, 2);
    let magnitude = m.mux(last, by(fine, 1), fine).zext(30);
    let signed = magnitude.xor(exp3.repeat(30)).add(exp3.zext(30));
    let fixed = m.pipe("fixed", signed, 1);
    let exp4 = m.pipe("exp_fixed", exp3, 1);
    let op4 = m.delay("gelu_fixed", op1, 3);

    let halves = fixed.bit(22).and(exp4.not());
    let page = op4.or(halves.repeat(2));
    let address = m.cat(&[page, fixed.slice(21, 14)]).named("address");
    let low = fixed.trunc(2).and(exp4.repeat(2));
    let remainder = m.cat(&[fixed.slice(13, 2), low]);
    // dphi's slope is stored halved.
    let remainder = m.mux(
        op4.bit(1),
        m.cat(&[remainder, m.lit(0, 1)]),
        remainder.zext(15),
    );
    let biased = fixed.slice(29, 22).add(m.lit(127, 8));
    let exponent = m.mux(exp4, biased, m.lit(127, 8));
    let exponent = m.pipe("exponent", exponent, 1);
    let exp5 = m.pipe("exp_rom", exp4, 1);
    let kill = m.delay("kill", kill, 4).or(exponent.is_zero().and(exp5));
    Front {
        address,
        halves: m.pipe("halves", halves, 1),
        high_half: m.pipe("high_half", op4.bit(1), 1),
        remainder: m.pipe("remainder", remainder, 2),
        exp: m.pipe("exp_word", exp5, 1),
        mirror: m.delay("mirror_late", mirror, 7),
        saturated: m.delay("saturated_late", saturated, 7),
        exponent: m.delay("exponent_late", exponent, 6),
        kill: m.delay("kill_late", kill, 7),
    }
}

/// Stages 6 to 9: `v` in Q23, mirrored for negative arguments. 26 bits, two's complement.
fn interpolate<'m>(m: &'m Module, f: &Front<'m>, word: Sig<'m>) -> Sig<'m> {
    m.section("Stage 6: entry");
    let half = m.mux(
        f.high_half,
        word.slice(2 * HALF - 1, HALF),
        word.slice(HALF - 1, 0),
    );
    // 2^19 + difference.
    let near_one = m.cat(&[half.bit(9).not(), half.slice(9, 0).sext(19)]);
    let entry = m.mux(
        f.halves,
        m.cat(&[half.slice(17, 10).sext(16), near_one]),
        word,
    );
    let word = m.pipe("entry", entry, 1);

    m.section("Stage 7: slope * remainder");
    let (value, slope) = (word.slice(19, 0), word.slice(35, 20));
    let product = slope.smul(f.remainder.zext(16));
    let product = m.pipe("product", product, 1);
    // exp2n: 2^20 + T; phi, dphi: 2 T.
    let base = m.mux(
        f.exp,
        m.cat(&[m.lit(1, 1), value]),
        m.cat(&[value, m.lit(0, 1)]),
    );
    let base = m.pipe("base", base, 1);
    let exp = m.pipe("exp_product", f.exp, 1);

    m.section("Stage 8: add the entry");
    let sum = m.cat(&[base, m.lit(0, 16)]).zext(39).add(product.sext(39));
    let sum = m.pipe("sum", sum, 1);
    let exp = m.pipe("exp_sum", exp, 1);

    m.section("Stage 9: saturate and mirror");
    let v = sum.slice(38, 13);
    let clamp = exp.and(v.bit(24));
    let v = m.mux(clamp, m.lit((1 << 24) - 1, 26), v);
    let one = m.lit(1 << 23, 26);
    let v = m.mux(f.saturated, one, v);
    // 2^23 - v = ~v + 2^23 + 1.
    let offset = m.mux(f.mirror, m.lit((1 << 23) + 1, 26), m.lit(0, 26));
    let w = v.xor(f.mirror.repeat(26)).add(offset);
    m.pipe("q23", w, 1)
}

/// Stages 10 to 13: Q23 to FP32.
fn to_float<'m>(m: &'m Module, f: &Front<'m>, w: Sig<'m>) -> Sig<'m> {
    m.section("Stage 10: magnitude");
    let sign = w.bit(25);
    let magnitude = w.xor(sign.repeat(26)).add(sign.zext(26)).trunc(24);
    let magnitude = m.pipe("magnitude", magnitude, 1);
    let sign = m.delay("sign", sign, 3);

    m.section("Stage 11: leading zeros");
    let zeros = leading_zeros(m, magnitude);
    let zeros = m.pipe("zeros", zeros, 1);
    let nonzero = m.pipe("nonzero", magnitude.or_reduce(), 1);
    let magnitude = m.pipe("magnitude_late", magnitude, 1);

    m.section("Stages 12 and 13: normalise");
    let by = |v: Sig<'m>, n: u32| v.shl_const(n);
    let coarse = m.select(
        zeros.slice(4, 3),
        &[magnitude, by(magnitude, 8), by(magnitude, 16)],
    );
    let coarse = m.pipe("normal_coarse", coarse, 1);
    let exponent = m.pipe("result_exponent", f.exponent.sub(zeros.zext(8)), 1);
    let zeros = m.pipe("zeros_fine", zeros.trunc(3), 1);
    let live = m.pipe("live", nonzero, 1).and(f.kill.not());
    let choices: Vec<_> = (0..8).map(|n| by(coarse, n)).collect();
    let normal = m.select(zeros, &choices);
    let result = m.cat(&[sign, exponent, normal.trunc(23)]);
    m.pipe("result", result.and(live.repeat(32)), 1)
}

/// Leading zeros of 24 bits: 0 to 23 (24 bits of zero give 16 + 7).
fn leading_zeros<'m>(m: &'m Module, v: Sig<'m>) -> Sig<'m> {
    let byte = |k: u32| v.slice(8 * k + 7, 8 * k);
    // Within a byte: first half empty, then the place in the half.
    let place = |b: Sig<'m>| {
        let (hi, lo) = (b.slice(7, 4), b.slice(3, 0));
        let empty = hi.is_zero();
        let h = m.mux(empty, lo, hi);
        let none = h.slice(3, 2).is_zero();
        let odd = m.mux(none, h.bit(1).not(), h.bit(3).not());
        m.cat(&[empty, none, odd])
    };
    let (top, mid) = (byte(2).is_zero(), byte(1).is_zero());
    let low = m.mux(
        top,
        m.mux(mid, place(byte(0)), place(byte(1))),
        place(byte(2)),
    );
    m.cat(&[top.and(mid), top.and(mid.not()), low])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsl::Interpreter;

    fn expect(gelu: &(OddTable, OddTable, Exp2Table), op: Table, x: u32) -> u32 {
        let x = f32::from_bits(x);
        match op {
            Table::Exp2n => gelu.2.exp2n(x),
            Table::Phi => gelu.0.eval(x),
            Table::Dphi => gelu.1.eval(x),
            Table::Bypass => x,
        }
        .to_bits()
    }

    /// Arguments around every border, plus a sweep and random bits.
    fn arguments(count: usize) -> Vec<u32> {
        let mut list = vec![];
        for e in 0..256u32 {
            for f in [0, 1, 0x40_0000, 0x7d_ffff, 0x7e_0000, 0x7f_ffff] {
                for s in [0, 1 << 31] {
                    list.push(s | e << 23 | f);
                }
            }
        }
        for k in 0..=1024u32 {
            for d in -2i32..=2 {
                for scale in [1.0 / 64.0, 0.125] {
                    let x = (k as f32 * scale).to_bits() as i32 + d;
                    list.push(x as u32 & 0x7fff_ffff);
                    list.push(x as u32 | 1 << 31);
                }
            }
        }
        let mut state = 0x1234_5678_9abc_def1u64;
        for _ in 0..count {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let r = (state >> 16) as u32;
            // Most exponents where the tables live.
            list.push(if state & 7 == 0 {
                r
            } else {
                r & 0x807f_ffff | (110 + (r >> 8) % 26) << 23
            });
        }
        list
    }

    /// Every entry survives the packing of the words.
    #[test]
    fn the_rom_holds_every_entry() {
        for gelu in [Gelu::Erf, Gelu::Tanh] {
            let words = rom_words(gelu);
            assert_eq!(words.len(), DEPTH as usize);
            let signed = |w: u128, low: u32, bits: u32| {
                let field = (w >> low) as i64 & ((1 << bits) - 1);
                field - (field >> (bits - 1) << bits)
            };
            for (page, table) in [(1, OddTable::phi(gelu)), (2, OddTable::dphi(gelu))] {
                for i in 0..512 {
                    let (value, slope) = if i < 256 {
                        let w = words[page * 256 + i];
                        (w as i64 & 0xf_ffff, signed(w, 20, 16))
                    } else {
                        let w = words[512 + i] >> (HALF as usize * (page - 1));
                        ((1 << 19) + signed(w, 0, 10), signed(w, 10, 8))
                    };
                    assert_eq!(value, i64::from(table.value[i]), "page {page} entry {i}");
                    assert_eq!(slope, i64::from(table.slope[i]), "page {page} entry {i}");
                }
            }
        }
    }

    #[test]
    fn equals_the_tables_in_the_interpreter() {
        for gelu in [Gelu::Erf, Gelu::Tanh] {
            let oracle = (OddTable::phi(gelu), OddTable::dphi(gelu), Exp2Table::new());
            let mut sim = Interpreter::new(&table_unit(gelu, 2).unwrap());
            let list = arguments(20_000);
            let ops = [Table::Exp2n, Table::Phi, Table::Dphi];
            let mut queue = std::collections::VecDeque::new();
            for (k, &x) in list.iter().enumerate() {
                // The operation changes every cycle; the other lane gets another argument.
                for round in 0..3 {
                    let op = ops[(k + round) % 3];
                    let other = list[(k * 7 + 3) % list.len()];
                    sim.set_input("op", op as u128);
                    sim.set_input("x_0", u128::from(x));
                    sim.set_input("x_1", u128::from(other));
                    queue.push_back((op, x, other));
                    if queue.len() > LATENCY as usize {
                        let (op, x, other) = queue.pop_front().unwrap();
                        let got = [sim.get_output("y_0"), sim.get_output("y_1")];
                        assert_eq!(got[0] as u32, expect(&oracle, op, x), "{op:?} {x:08x}");
                        assert_eq!(
                            got[1] as u32,
                            expect(&oracle, op, other),
                            "{op:?} {other:08x}"
                        );
                    }
                    sim.step();
                }
            }
        }
    }
}
