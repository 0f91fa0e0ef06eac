//! The array in the DSL: lane, row, group with its memory port, write master, registers, top.
//!
//! Every module takes its sizes from [`ArrayConfig`](super::ArrayConfig); nothing of a model is
//! built in. Every register that steers something has a reset, so the array needs no more of it
//! than one clock cycle; what has none is data that is written before it is read.

mod fifo;
mod group;
mod loader;
mod pe;
mod reader;
mod sequencer;
mod sma4;
mod store;
mod top;
mod writer;

pub use pe::{ROW_LATENCY, pe};
pub use reader::FIFO_BEATS;
pub use sequencer::CREDITS;
pub use sma4::sma4_lane;
pub use top::{TOP, WRITE_MASTER, read_master, top};

use crate::dsl::{Module, Sig};

/// Bits of a byte address on the memory ports.
pub const ADDRESS_BITS: u32 = 40;
/// Bits of a beat counter.
pub const BEATS_BITS: u32 = 24;

/// Bit positions of the control token that walks down the rows.
pub mod token {
    /// The row works in this cycle.
    pub const VALID: u32 = 0;
    /// First step of a dot product.
    pub const FIRST: u32 = 1;
    /// Last step of a dot product.
    pub const LAST: u32 = 2;
    /// Last token of an output, at every step.
    pub const ROW_END: u32 = 3;
    /// First step of a weight word.
    pub const WORD_START: u32 = 4;
    /// Last step of a weight word.
    pub const WORD_END: u32 = 5;
    /// First step of a tile.
    pub const TILE_START: u32 = 6;
    /// Last step of a tile.
    pub const TILE_END: u32 = 7;
    /// Half of the local memory to read.
    pub const HALF: u32 = 8;
    /// Last step of the launch.
    pub const FINAL: u32 = 9;
    /// Bits of the token.
    pub const WIDTH: u32 = 10;
}

/// Whether the one-bit `half` selects half `index`.
fn is_half(index: usize, half: Sig<'_>) -> Sig<'_> {
    if index == 0 { !half } else { half }
}

/// `width` zero bits.
fn zero(m: &Module, width: u32) -> Sig<'_> {
    m.lit(0, width)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::cgla::LaneSign;
    use crate::dsl::Interpreter;

    #[test]
    fn a_lane_is_the_sum_of_eight_products() {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(1);
        for sign in [LaneSign::Signed, LaneSign::UnsignedLo] {
            let mut lane = Interpreter::new(&sma4_lane(sign).unwrap());
            for case in 0..3000 {
                let (mut a, mut w): (u32, u32) = (rng.random(), rng.random());
                if case == 0 {
                    (a, w) = (0x8888_8888, 0x8888_8888);
                }
                let unsigned = sign == LaneSign::UnsignedLo && case % 2 == 1;
                lane.set_input("a", a.into());
                lane.set_input("w", w.into());
                if sign == LaneSign::UnsignedLo {
                    lane.set_input("a_unsigned", unsigned.into());
                }
                lane.step();
                let nibble = |v: u32, i: u32| ((v >> (4 * i) << 28) as i32) >> 28;
                let expected: i32 = (0..8)
                    .map(|i| {
                        let value = nibble(a, i);
                        (if unsigned { value & 15 } else { value }) * nibble(w, i)
                    })
                    .sum();
                assert_eq!(lane.get_output("sum"), (expected as u32 & 0x7ff).into());
            }
        }
    }
}
