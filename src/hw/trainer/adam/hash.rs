//! Threefry-2x32 with 8 rounds, one hash per cycle (`docs/arithmetic.md` section 5).

use crate::dsl::{DslError, Module, ModuleDef};
use crate::num::threefry::{PARITY, ROTATIONS};
use std::sync::Arc;

/// Cycles from counter to hash: eight rounds and two key injections.
pub const LATENCY: u32 = 10;

/// Module `nf_threefry8`.
///
/// Ports: key `k0`, `k1` (constant while hashes are under way); `x0 = element + k0` and
/// `x1 = tensor + k1`: the first key injection is left to the address generator, which folds it
/// into sums it makes anyway. After [`LATENCY`] cycles: `y0`, `y1`.
pub fn threefry8() -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_threefry8");
    m.doc("Threefry-2x32, 8 rounds, one hash per cycle, latency 10; x0 and x1 come with the first key injection.");
    let (k0, k1) = (m.input("k0", 32), m.input("k1", 32));
    let (mut x0, mut x1) = (m.input("x0", 32), m.input("x1", 32));
    // The key changes once per step: its derived words are registers of their own.
    let k2 = m
        .reg_next("k2_q", k0 ^ k1 ^ m.lit(u128::from(PARITY), 32))
        .q();
    let k2_plus1 = m.reg_next("k2_plus1_q", k2.add_const(1)).q();
    let k0_plus2 = m.reg_next("k0_plus2_q", k0.add_const(2)).q();
    for (round, &rotation) in ROTATIONS.iter().enumerate() {
        let sum = (x0 + x1).named(&format!("sum{round}"));
        let rotated = m.cat(&[x1.trunc(32 - rotation), x1.slice(31, 32 - rotation)]);
        x0 = m.reg_next(&format!("x0_round{round}_q"), sum).q();
        x1 = m.reg_next(&format!("x1_round{round}_q"), rotated ^ sum).q();
        let key = match round {
            3 => Some(("first", k1, k2_plus1)),
            7 => Some(("second", k2, k0_plus2)),
            _ => None,
        };
        if let Some((name, to_x0, to_x1)) = key {
            x0 = m.reg_next(&format!("x0_{name}_key_q"), x0 + to_x0).q();
            x1 = m.reg_next(&format!("x1_{name}_key_q"), x1 + to_x1).q();
        }
    }
    m.output("y0", x0);
    m.output("y1", x1);
    m.finish()
}
