//! FP32 division, one result per cycle: two non-restoring quotient bits a stage.

use super::parts::{Fields, Special, WIDTH, round_and_pack};
use crate::dsl::{DslError, Module, ModuleDef, Sig};
use std::sync::Arc;

/// Stages that find two quotient bits each.
const STEPS: u32 = 12;
/// Cycles from the operands to the quotient.
pub const DIV_LATENCY: u32 = STEPS + 2;

/// `nf_fp32_div`: y = fl(a / b).
pub fn fp32_div() -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_fp32_div");
    m.doc(&format!(
        "y = a / b in FP32, round to nearest even, subnormals are zero\nnon-restoring, two quotient bits a stage; latency {DIV_LATENCY} cycles, one operation per cycle"
    ));
    let (a, b) = (m.input("a", WIDTH), m.input("b", WIDTH));
    m.output("y", datapath(&m, a, b));
    m.finish()
}

/// The divider's logic, for inlining; names are prefixed by the open name scope.
pub fn datapath<'m>(m: &'m Module, a: Sig<'m>, b: Sig<'m>) -> Sig<'m> {
    m.section("Stage 1: scale the dividend so that the quotient starts with a one");
    let (x, y) = (Fields::of(a), Fields::of(b));
    let less = x.fraction.ult(y.fraction).named("less");
    let dividend = m.mux(
        less,
        m.cat(&[m.lit(1, 1), x.fraction, m.lit(0, 1)]),
        m.cat(&[m.lit(1, 2), x.fraction]),
    );
    // That first quotient bit is subtracted at once; the remainder is not negative.
    let first = dividend - y.significand().zext(25);
    let mut rest = m.reg_next("rest_q", first).q();
    let mut divisor = m.reg_next("divisor_q", y.significand()).q();
    let exponent = x.exponent.zext(10) - y.exponent.zext(10) + m.lit(127, 10) - less.zext(10);
    let exponent = m.delay("exponent", exponent, STEPS + 1);
    let sign = m.delay("sign", x.sign ^ y.sign, STEPS + 1);
    let special = Special {
        nan: x.nan() | y.nan() | (x.zero & y.zero) | (x.huge & y.huge),
        infinite: x.huge | y.zero,
        zero: x.zero | y.huge,
    };
    let special = special.pipe(m, "special", STEPS + 1);

    let mut quotient: Option<Sig<'m>> = None;
    for step in 1..=STEPS {
        let last = 2 * step + 1;
        m.section(&format!(
            "Stage {}: quotient bits {} and {last}",
            step + 1,
            last - 1
        ));
        let _scope = m.name_scope(&format!("step{step}"));
        let (bit1, half) = subtract_or_add(m, rest, divisor);
        let (bit2, full) = subtract_or_add(m, half.named("half"), divisor);
        let bits = m.cat(&[bit1, bit2]);
        let found = match quotient {
            Some(q) => m.cat(&[q, bits]),
            None => bits,
        };
        quotient = Some(m.reg_next("quotient_q", found).q());
        if step < STEPS {
            rest = m.reg_next("rest_q", full).q();
            divisor = m.reg_next("divisor_q", divisor).q();
        }
    }

    m.section(&format!(
        "Stage {DIV_LATENCY}: round and pack; a quotient is never a tie"
    ));
    let quotient = quotient.unwrap_or(rest);
    let up = quotient.bit(0);
    let y = round_and_pack(sign, exponent, quotient.slice(23, 1), up, special);
    m.reg_next("y_q", y).q()
}

/// One step: (quotient bit, new remainder). The remainder lies in (-divisor, divisor).
fn subtract_or_add<'m>(m: &'m Module, rest: Sig<'m>, divisor: Sig<'m>) -> (Sig<'m>, Sig<'m>) {
    let positive = !rest.msb();
    // 2 * rest has a zero at the bottom, where the complement's carry goes in.
    let doubled = m.cat(&[rest.trunc(24), positive]);
    let other = divisor.zext(25) ^ positive.repeat(25);
    let next = doubled + other;
    (!next.msb(), next)
}
