//! FP32 order, maximum and flush. A subnormal counts as zero, both zeros are equal.

use super::parts::{Fields, WIDTH};
use crate::dsl::{DslError, Module, ModuleDef, Sig};
use std::sync::Arc;

/// Cycles from the operands to the maximum.
pub const MAX_LATENCY: u32 = 1;

/// `nf_fp32_max`: y = a < b ? b : a.
pub fn fp32_max() -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_fp32_max");
    m.doc(&format!(
        "y = a < b ? b : a in FP32; a NaN is not less than anything\nlatency {MAX_LATENCY} cycle, one operation per cycle"
    ));
    let (a, b) = (m.input("a", WIDTH), m.input("b", WIDTH));
    let larger = m.mux(less(a, b).named("less"), b, a);
    m.output("y", m.reg_next("y_q", larger).q());
    m.finish()
}

/// Whether a < b, 1 bit, without a register. False when either is NaN.
pub fn less<'m>(a: Sig<'m>, b: Sig<'m>) -> Sig<'m> {
    let ordered = !(Fields::of(a).nan() | Fields::of(b).nan());
    ordered & order_key(a).ult(order_key(b))
}

/// A 32-bit unsigned word that sorts like the number: both zeros give the same key.
pub fn order_key<'m>(word: Sig<'m>) -> Sig<'m> {
    let m = word.module();
    let x = Fields::of(word);
    let magnitude = word.trunc(31) ^ x.sign.repeat(31);
    let key = m.cat(&[!x.sign, magnitude]);
    m.mux(x.zero, m.lit(0x8000_0000, 32), key)
}

/// FP32 to FP32: a subnormal becomes zero of its sign.
pub fn flush<'m>(word: Sig<'m>) -> Sig<'m> {
    let m = word.module();
    let x = Fields::of(word);
    m.cat(&[x.sign, x.exponent, x.fraction & (!x.zero).repeat(23)])
}
