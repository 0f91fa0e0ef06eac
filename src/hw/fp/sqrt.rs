//! FP32 square root, one result per cycle: two non-restoring root bits a stage.

use super::parts::{Fields, Special, WIDTH, round_and_pack};
use crate::dsl::{DslError, Module, ModuleDef, Sig};
use std::sync::Arc;

/// Stages that find two root bits each.
const STEPS: u32 = 12;
/// Cycles from the operand to the root.
pub const SQRT_LATENCY: u32 = STEPS + 2;

/// `nf_fp32_sqrt`: y = fl(sqrt(a)); the root of -0 is -0, of a negative number NaN.
pub fn fp32_sqrt() -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_fp32_sqrt");
    m.doc(&format!(
        "y = sqrt(a) in FP32, round to nearest even, subnormals are zero\nnon-restoring, two root bits a stage; latency {SQRT_LATENCY} cycles, one operation per cycle"
    ));
    let a = m.input("a", WIDTH);
    m.output("y", datapath(&m, a));
    m.finish()
}

/// The square root's logic, for inlining; names are prefixed by the open name scope.
pub fn datapath<'m>(m: &'m Module, a: Sig<'m>) -> Sig<'m> {
    m.section("Stage 1: radicand in [1, 4) with 24 fraction bits, root bit 1");
    let x = Fields::of(a);
    // The biased exponent of an even power of two is odd.
    let even = x.exponent.bit(0).named("even");
    let radicand = m.mux(
        even,
        m.cat(&[m.lit(1, 2), x.fraction, m.lit(0, 1)]),
        m.cat(&[m.lit(1, 1), x.fraction, m.lit(0, 2)]),
    );
    let exponent = x.exponent.slice(7, 1).zext(8) + m.lit(63, 8) + even.zext(8);
    let exponent = m.delay("exponent", exponent, STEPS + 1);
    let sign = m.delay("sign", x.sign, STEPS + 1);
    let special = Special {
        nan: x.nan() | (x.sign & !x.zero),
        infinite: x.huge,
        zero: x.zero,
    };
    let special = special.pipe(m, "special", STEPS + 1);
    // The root's first bit is one and takes one off the integer part.
    let first = radicand.slice(25, 24) - m.lit(1, 2);
    let mut rest = m.reg_next("rest_q", first.zext(3)).q();
    let mut below = Some(m.reg_next("below_q", radicand.trunc(24)).q());
    let mut root = m.lit(1, 1);

    for step in 1..=STEPS {
        let last = 2 * step + 1;
        m.section(&format!(
            "Stage {}: root bits {} and {last}",
            step + 1,
            last - 1
        ));
        let _scope = m.name_scope(&format!("step{step}"));
        let digits = match below {
            Some(b) => b.slice(b.width() - 1, b.width() - 4),
            None => m.lit(0, 4),
        };
        let (bit1, half) = subtract_or_add(m, rest, digits.slice(3, 2), root);
        let middle = m.cat(&[root, bit1]);
        let (bit2, full) = subtract_or_add(m, half.named("half"), digits.trunc(2), middle);
        root = m.reg_next("root_q", m.cat(&[middle, bit2])).q();
        if step < STEPS {
            rest = m.reg_next("rest_q", full).q();
            below = below
                .filter(|b| b.width() > 4)
                .map(|b| m.reg_next("below_q", b.trunc(b.width() - 4)).q());
        }
    }

    m.section(&format!(
        "Stage {SQRT_LATENCY}: round and pack; a root is never a tie"
    ));
    let y = round_and_pack(
        sign,
        exponent.zext(10),
        root.slice(23, 1),
        root.bit(0),
        special,
    );
    m.reg_next("y_q", y).q()
}

/// One step: (root bit, new remainder). For a root of k bits the remainder has k + 2.
fn subtract_or_add<'m>(
    m: &'m Module,
    rest: Sig<'m>,
    digits: Sig<'m>,
    root: Sig<'m>,
) -> (Sig<'m>, Sig<'m>) {
    let positive = !rest.msb();
    let k = root.width();
    let longer = m.cat(&[rest.trunc(k + 1), digits]);
    // -(4 * root + 1) or +(4 * root + 3), in k + 3 bits.
    let other = m.cat(&[positive, root ^ positive.repeat(k), m.lit(3, 2)]);
    let next = longer + other;
    (!next.msb(), next)
}
