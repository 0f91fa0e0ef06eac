//! Epilogue of one column lane: normalise, scale, add, mask.

use super::cell::SUM_BITS;
use super::normaliser::{BASE_BITS, NORMALISE_LATENCY, normaliser};
use crate::dsl::*;
use crate::hw::fp;
use crate::hw::trainer::register_delay;
use std::sync::Arc;

/// Cycles after `sum` at which `scale` enters.
pub const SCALE_AT: u32 = NORMALISE_LATENCY;
/// Cycles after `sum` at which `addend` enters.
pub const ADDEND_AT: u32 = SCALE_AT + fp::MUL_LATENCY;
/// Cycles after `sum` at which `keep` enters.
pub const KEEP_AT: u32 = ADDEND_AT + fp::ADD_LATENCY;
/// Cycles from `sum` to `y`.
pub const LANE_LATENCY: u32 = KEEP_AT + 1;
/// What the epilogue multiplies a tile's sums with, when the instruction asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// A constant of the table; the port is its 32 bits, or 1.0.
    Multiplier,
    /// 2^-p, always the same; the port is one bit. No DSP and a quarter of the LUTs.
    Halvings(u32),
}

impl Scale {
    /// Bits of the `scale` port.
    pub fn port_bits(self) -> u32 {
        match self {
            Scale::Multiplier => 32,
            Scale::Halvings(_) => 1,
        }
    }
}

/// `fl(y * 2^-p)` where `on`, one cycle later. What leaves the normal range becomes zero, except the largest value
/// below it, which gradual underflow rounds up (`docs/arithmetic.md` section 1).
fn halve<'m>(m: &'m Module, y: Sig<'m>, on: Sig<'m>, p: u32) -> Sig<'m> {
    let exponent = y.slice(30, 23);
    let below = exponent.ult(m.lit(u128::from(p) + 1, 8));
    let edge = exponent.eq_const(u128::from(p)) & y.trunc(23).and_reduce();
    let lower = m.cat(&[exponent.sub_const(u128::from(p)), y.trunc(23)]);
    let least = m.cat(&[m.lit(0, 7), edge, m.lit(0, 23)]);
    let scaled = m.mux(below, least, lower);
    let unchanged = !on | exponent.and_reduce();
    let magnitude = m.mux(unchanged, y.trunc(31), scaled);
    m.pipe("halved", m.cat(&[y.msb(), magnitude]), 1)
}

/// Scale that changes nothing: 1.0.
pub const NO_SCALE: u32 = 0x3f80_0000;
/// Addend that changes nothing, the sign of zero included: -0.
pub const NO_ADDEND: u32 = 0x8000_0000;

/// `nf_epilogue_lane`: `fl(fl(fl32(sum) * scale) + addend)`, +0 unless `keep`.
pub fn epilogue_lane(kind: Scale) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_epilogue_lane");
    m.doc(&format!(
        "One column of a product's rows: FP32 of the sum, times scale, plus addend; zero unless\n\
         keep. After the sum enter base 3, scale {SCALE_AT}, addend {ADDEND_AT}, keep {KEEP_AT} \
         cycles later; latency {LANE_LATENCY}."
    ));
    let sum = m.input("sum", SUM_BITS);
    let base = m.input("base", BASE_BITS);
    let scale = m.input("scale", kind.port_bits());
    let addend = m.input("addend", 32);
    let keep = m.input("keep", 1);
    let product = m
        .instance("u_normaliser", &normaliser()?)
        .input("sum", sum)
        .input("base", base)
        .output("y");
    let scaled = match kind {
        Scale::Multiplier => m
            .instance("u_scale", &fp::fp32_mul()?)
            .input("a", product)
            .input("b", scale)
            .output("y"),
        Scale::Halvings(p) => {
            let halved = halve(&m, product, scale, p);
            register_delay(&m, "scaled", halved, fp::MUL_LATENCY - 1)
        }
    };
    let total = m
        .instance("u_add", &fp::fp32_add()?)
        .input("a", scaled)
        .input("b", addend)
        .output("y");
    m.output("y", m.reg_next("y_q", total & keep.repeat(32)).q());
    m.finish()
}
