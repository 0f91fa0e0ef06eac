//! Epilogue of one column lane: normalise, scale, add, mask.

use super::cell::SUM_BITS;
use super::normaliser::{BASE_BITS, NORMALISE_LATENCY, normaliser};
use crate::dsl::*;
use crate::hw::fp;
use std::sync::Arc;

/// Cycles after `sum` at which `scale` enters.
pub const SCALE_AT: u32 = NORMALISE_LATENCY;
/// Cycles after `sum` at which `addend` enters.
pub const ADDEND_AT: u32 = SCALE_AT + fp::MUL_LATENCY;
/// Cycles after `sum` at which `keep` enters.
pub const KEEP_AT: u32 = ADDEND_AT + fp::ADD_LATENCY;
/// Cycles from `sum` to `y`.
pub const LANE_LATENCY: u32 = KEEP_AT + 1;
/// Scale that changes nothing: 1.0.
pub const NO_SCALE: u32 = 0x3f80_0000;
/// Addend that changes nothing, the sign of zero included: -0.
pub const NO_ADDEND: u32 = 0x8000_0000;

/// `nf_epilogue_lane`: `fl(fl(fl32(sum) * scale) + addend)`, +0 unless `keep`.
pub fn epilogue_lane() -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_epilogue_lane");
    m.doc(&format!(
        "One column of a product's rows: FP32 of the sum, times scale, plus addend; zero unless\n\
         keep. After the sum enter base 3, scale {SCALE_AT}, addend {ADDEND_AT}, keep {KEEP_AT} \
         cycles later; latency {LANE_LATENCY}."
    ));
    let sum = m.input("sum", SUM_BITS);
    let base = m.input("base", BASE_BITS);
    let scale = m.input("scale", 32);
    let addend = m.input("addend", 32);
    let keep = m.input("keep", 1);
    let product = m
        .instance("u_normaliser", &normaliser()?)
        .input("sum", sum)
        .input("base", base)
        .output("y");
    let scaled = m
        .instance("u_scale", &fp::fp32_mul()?)
        .input("a", product)
        .input("b", scale)
        .output("y");
    let total = m
        .instance("u_add", &fp::fp32_add()?)
        .input("a", scaled)
        .input("b", addend)
        .output("y");
    m.output("y", m.reg_next("y_q", total & keep.repeat(32)).q());
    m.finish()
}
