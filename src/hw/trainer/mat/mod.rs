//! The matrix engine: `nf_attention_core` and its parts (`docs/machine.md` sections 3 and 7).
//!
//! ```text
//! slot ─► addresses ─► memories ─► aligners ─► rotators ─► operand registers ─► B x B cells
//!   │                                                                             │ row 0, one
//!   └─ delayed by the same number of cycles: modes, drain tokens, tile constants  ▼ row a slot
//!                     exponents, retire ◄─ rotator to banks ◄─ mask ◄─ + addend ◄─ * scale ◄─ normaliser
//! ```
//!
//! An instruction takes k operand steps and a tail of few *slots*. The rows are cut into four
//! segments; each works as many cycles behind the one above as it has rows. So the segments' sums
//! are complete one after the other: while one shifts its rows out over its cascade, the segment
//! above has begun the next tile. Row r leaves r cycles after the last operand step, whatever its
//! segment. Everything behind the slot has a fixed latency; what belongs to an instruction
//! (exponents, masks, destinations) travels with its slots, or with its rows, through delay lines.

mod aligner;
mod cell;
mod core;
mod drain;
mod edge;
mod emax;
mod lane;
mod line;
mod neuron;
mod normaliser;
mod rotator;
mod stream;
mod timing;

pub use aligner::{ALIGN_LATENCY, aligner};
pub use cell::{CELL_LATENCY, mac_cell};
pub use core::{MatConfig, MatPorts, attention_core};
pub use emax::{exponent_max, max_latency};
pub use lane::{LANE_LATENCY, Scale, epilogue_lane};
pub use neuron::neuron_core;
pub use normaliser::{NORMALISE_LATENCY, normaliser};
pub use rotator::{Turn, rotate_latency, rotator};
pub use stream::stream;
pub use timing::MatTiming;

use crate::dsl::{Module, Sig};
use crate::trainer::encode::bits_for;

/// Bits of a rotation, 0..B.
fn rot_bits(b: usize) -> u32 {
    bits_for(b - 1)
}

/// Base-4 digits of a rotation.
fn digits(b: usize) -> u32 {
    rot_bits(b).div_ceil(2)
}

/// `value + 1`, or 0 after `b - 1`.
fn next_modulo<'m>(m: &'m Module, value: Sig<'m>, b: usize) -> Sig<'m> {
    let last = value.eq_const(b as u128 - 1);
    m.mux(last, m.lit(0, value.width()), value.add_const(1))
}

/// Registered copies of `value`, one per `group` loads; entry i is the copy for load i.
/// This bounds the fan-out of operands and selects.
fn copies<'m>(
    m: &'m Module,
    name: &str,
    value: Sig<'m>,
    loads: usize,
    group: usize,
) -> Vec<Sig<'m>> {
    let regs: Vec<Sig<'m>> = (0..loads.div_ceil(group))
        .map(|k| m.reg_next(&format!("{name}_{k}_q"), value).q())
        .collect();
    (0..loads).map(|l| regs[l / group]).collect()
}

/// Widens or cuts `value` to `width` bits; a cut field holds no larger value by construction.
fn fit(value: Sig<'_>, width: u32) -> Sig<'_> {
    if value.width() < width {
        value.zext(width)
    } else {
        value.trunc(width)
    }
}

#[cfg(test)]
mod tests;
