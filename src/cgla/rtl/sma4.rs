//! OP_SMA4: eight products of signed int4 per 32-bit lane.

use std::sync::Arc;

use super::super::LaneSign;
use crate::dsl::{DslError, Module, ModuleDef, Sig};

/// How the two bits of a digit are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Digit {
    /// 0 to 3: the low half of any int4.
    Unsigned,
    /// -2 to 1: the high half of a signed int4.
    Signed,
    /// Either, by an input: the high half of an activation fragment.
    Either,
}

impl Digit {
    fn module_name(self) -> &'static str {
        match self {
            Self::Unsigned => "nf_sma4_digit_u",
            Self::Signed => "nf_sma4_digit_s",
            Self::Either => "nf_sma4_digit_us",
        }
    }
}

/// Digit times int4 as a table: six inputs per bit are one look-up table each, where a
/// multiplier would be a tree of adders. [`Digit::Either`] has a seventh input, `is_unsigned`.
fn digit_product(kind: Digit) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new(kind.module_name());
    m.doc("Product of a two-bit digit and an int4, as a table of look-up tables");
    let digit = m.input("digit", 2);
    let w = m.input("w", 4);
    let selector = match kind {
        Digit::Either => m.cat(&[m.input("is_unsigned", 1), digit, w]),
        _ => m.cat(&[digit, w]),
    };
    let product = |index: u128| {
        let weight = ((index & 15) as i32) << 28 >> 28;
        let bits = (index >> 4 & 3) as i32;
        let unsigned = match kind {
            Digit::Unsigned => true,
            Digit::Signed => false,
            Digit::Either => index >> 6 == 1,
        };
        let value = if unsigned { bits } else { bits << 30 >> 30 };
        m.lit((value * weight) as u128 & 63, 6)
    };
    let last = (1u128 << selector.width()) - 1;
    let arms: Vec<(u128, Sig<'_>)> = (0..last).map(|i| (i, product(i))).collect();
    m.output("product", m.case(selector, &arms, product(last)));
    m.finish()
}

/// One lane: `sum(a_i * w_i)` over eight nibbles. One register stage (sums of four), one
/// operation per cycle. Module `nf_sma4_lane`, or with [`LaneSign::UnsignedLo`] module
/// `nf_sma4_lane_us`, whose input `a_unsigned` makes the nibbles of `a` 0 to 15. The sum has 11
/// bits: it lies within -960 and 840.
pub fn sma4_lane(sign: LaneSign) -> Result<Arc<ModuleDef>, DslError> {
    let (name, high_kind) = match sign {
        LaneSign::Signed => ("nf_sma4_lane", Digit::Signed),
        LaneSign::UnsignedLo => ("nf_sma4_lane_us", Digit::Either),
    };
    let low_def = digit_product(Digit::Unsigned)?;
    let high_def = digit_product(high_kind)?;
    let m = Module::new(name);
    m.doc(
        "OP_SMA4 lane: sum of eight int4 products, each of two digit tables\n\
         latency 1 cycle, 1 operation per cycle",
    );
    m.port_group("Operands, eight nibbles each");
    let a = m.input("a", 32);
    let w = m.input("w", 32);
    let a_unsigned = (sign == LaneSign::UnsignedLo).then(|| m.input("a_unsigned", 1));
    m.section("Stage 1: digit products and their sums over four nibbles");
    let digits = |i: u32| -> (Sig<'_>, Sig<'_>) {
        let at = 4 * i;
        let weight = w.slice(at + 3, at);
        let low = m
            .instance(&format!("low{i}"), &low_def)
            .input("digit", a.slice(at + 1, at))
            .input("w", weight);
        let high = m
            .instance(&format!("high{i}"), &high_def)
            .input("digit", a.slice(at + 3, at + 2))
            .input("w", weight);
        if let Some(unsigned) = a_unsigned {
            high.input("is_unsigned", unsigned);
        }
        (low.output("product"), high.output("product"))
    };
    let pair = |i: u32| {
        let ((l0, h0), (l1, h1)) = (digits(2 * i), digits(2 * i + 1));
        let low = l0.sext(7) + l1.sext(7);
        let high = h0.sext(7) + h1.sext(7);
        // high * 4 + low; the two lowest bits pass the adder by.
        m.cat(&[high + low.slice(6, 2).sext(7), low.slice(1, 0)])
    };
    let quads: Vec<Sig<'_>> = (0..2)
        .map(|q| {
            let sum = pair(2 * q).sext(10) + pair(2 * q + 1).sext(10);
            m.reg_next(&format!("quad{q}_s10_q"), sum).q()
        })
        .collect();
    m.section("Output: sum of both");
    m.output("sum", quads[0].sext(11) + quads[1].sext(11));
    m.finish()
}
