//! 8-bit block moments (`docs/arithmetic.md` section 6).
//!
//! A block is [`BLOCK`] consecutive elements of a row; a row's last block may be shorter. The
//! first moment is a signed code times its block's scale; the second is the square of an unsigned
//! code times its block's scale, so small second moments keep their precision. Codes are rounded
//! stochastically: to the nearest, a decay of 0.1 % per step would be lost for ever.

use super::fp32::{div, ftz, mul};

/// Elements of a block.
pub const BLOCK: usize = 44;
/// Largest first-moment code.
pub const M_MAX: u32 = 127;
/// Largest second-moment code.
pub const V_MAX: u32 = 255;

/// Blocks of a row of `columns` elements.
pub fn blocks_per_row(columns: usize) -> usize {
    columns.div_ceil(BLOCK)
}

/// Index ranges of the blocks of a row-major tensor of `len` elements.
pub fn blocks(len: usize, columns: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let columns = columns.max(1);
    (0..len / columns).flat_map(move |row| {
        (0..blocks_per_row(columns))
            .map(move |b| row * columns + b * BLOCK..row * columns + ((b + 1) * BLOCK).min(columns))
    })
}

/// Scale of a block from its largest magnitude (of m', or of sqrt(v')), and the reciprocal that encodes.
/// Both are 0 for a block of zeros.
#[inline(always)]
pub fn scale(largest: f32, max_code: u32) -> (f32, f32) {
    let step = if max_code == M_MAX {
        1.0 / 127.0
    } else {
        1.0 / 255.0
    };
    let scale = mul(largest, step);
    if scale == 0.0 {
        (0.0, 0.0)
    } else {
        (scale, div(1.0, scale))
    }
}

/// Unsigned code of a magnitude: `floor(x * reciprocal + random / 2^16)`, at most `max_code`.
#[inline(always)]
pub fn code(x: f32, reciprocal: f32, random: u32, max_code: u32) -> u32 {
    let scaled = ftz(x * reciprocal);
    // 8.16 fixed point; the bound keeps the conversion in range.
    let scaled = if scaled < 256.0 { scaled } else { 256.0 };
    let fixed = (scaled * 65_536.0) as i32 as u32;
    let code = (fixed + (random & 0xffff)) >> 16;
    if code < max_code { code } else { max_code }
}

/// First-moment code, sign and magnitude as a signed byte.
#[inline(always)]
pub fn encode_m(m: f32, reciprocal: f32, random: u32) -> i8 {
    let magnitude = code(m.abs(), reciprocal, random, M_MAX) as i8;
    if m < 0.0 { -magnitude } else { magnitude }
}

/// Second-moment code of `root = sqrt(v')`: at least one step when it is above zero.
#[inline(always)]
pub fn encode_v(root: f32, reciprocal: f32, random: u32) -> u8 {
    let code = code(root, reciprocal, random, V_MAX) as u8;
    if root > 0.0 && code == 0 { 1 } else { code }
}

/// First moment of a code.
#[inline(always)]
pub fn decode_m(code: i8, scale: f32) -> f32 {
    ftz(f32::from(code) * scale)
}

/// Second moment of a code.
#[inline(always)]
pub fn decode_v(code: u8, scale: f32) -> f32 {
    let root = ftz(f32::from(code) * scale);
    ftz(root * root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_a_block_uses_the_whole_code() {
        for k in 1..2000u32 {
            let largest = f32::from_bits(0x3000_0000 + k * 98_765);
            let (s, r) = scale(largest, M_MAX);
            for random in [0, 0x7fff, 0xffff] {
                let c = encode_m(-largest, r, random);
                assert!((-127..=-126).contains(&c), "{c}");
                assert!((decode_m(c, s) + largest).abs() <= largest * 0.009);
            }
            let (s, r) = scale(largest, V_MAX);
            let c = encode_v(largest, r, 0x8000);
            assert_eq!(c, 255);
            assert!((decode_v(c, s) / (largest * largest) - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn zeros_and_tiny_values() {
        assert_eq!(scale(0.0, M_MAX), (0.0, 0.0));
        assert_eq!(scale(f32::MIN_POSITIVE, V_MAX), (0.0, 0.0));
        let (_, r) = scale(1.0, V_MAX);
        assert_eq!(encode_v(1e-20, r, 0), 1);
        assert_eq!(encode_v(0.0, r, 0xffff), 0);
        assert_eq!(encode_m(-0.0, r, 0xffff), 0);
    }

    #[test]
    fn rounding_is_unbiased() {
        let (_, r) = scale(1.0, M_MAX);
        let x = 37.3 / 127.0;
        let sum: i64 = (0..=0xffffu32)
            .map(|random| i64::from(encode_m(x, r, random)))
            .sum();
        assert!((sum as f64 / 65_536.0 - 37.3).abs() < 1e-4);
    }
}
