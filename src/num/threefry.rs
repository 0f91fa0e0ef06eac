//! Random bits of stochastic rounding: Threefry-2x32 with 8 rounds (Salmon, Moraes, Dror, Shaw 2011; `docs/arithmetic.md` section 5).

/// Rotation of each of the 8 rounds.
pub const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
/// Parity constant of the key schedule.
pub const PARITY: u32 = 0x1bd1_1bda;

/// The block function with a chosen number of rounds (a key injection after every fourth).
#[inline(always)]
fn rounds<const N: usize>(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    let ks = [key[0], key[1], key[0] ^ key[1] ^ PARITY];
    let mut x0 = counter[0].wrapping_add(ks[0]);
    let mut x1 = counter[1].wrapping_add(ks[1]);
    let mut round = 0;
    while round < N {
        x0 = x0.wrapping_add(x1);
        x1 = x1.rotate_left(ROTATIONS[round % 8]) ^ x0;
        round += 1;
        if round % 4 == 0 {
            let injection = round / 4;
            x0 = x0.wrapping_add(ks[injection % 3]);
            x1 = x1
                .wrapping_add(ks[(injection + 1) % 3])
                .wrapping_add(injection as u32);
        }
    }
    [x0, x1]
}

/// Threefry-2x32-8 of `key = [seed, step]` and `counter = [element, tensor]`.
#[inline(always)]
pub fn threefry2x32(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    rounds::<8>(key, counter)
}

/// The random fields of one parameter's update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundingBits {
    /// Added below a BF16 weight (16 bits); a 24-bit weight takes the low 8.
    pub weight: u32,
    /// Added below a BF16 first moment (16 bits).
    pub m: u32,
    /// Added below a BF16 second moment (16 bits).
    pub v: u32,
}

/// Random bits of `element` of `tensor` in `step` (1-based).
#[inline(always)]
pub fn rounding_bits(seed: u32, step: u32, element: u32, tensor: u32) -> RoundingBits {
    let [x0, x1] = threefry2x32([seed, step], [element, tensor]);
    RoundingBits {
        weight: x0 & 0xffff,
        m: x0 >> 16,
        v: x1 & 0xffff,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of the Random123 distribution for 20 rounds: key schedule, rotations and injections are shared with 8 rounds.
    #[test]
    fn known_answers() {
        assert_eq!(rounds::<20>([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(rounds::<20>([!0, !0], [!0, !0]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(
            rounds::<20>([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]),
            [0xc492_3a9c, 0x483d_f7a0]
        );
    }

    #[test]
    fn bits_are_balanced_and_depend_on_every_input() {
        let n = 20_000u32;
        let mut ones = [0u32; 64];
        for e in 0..n {
            let [a, b] = threefry2x32([7, 3], [e, 2]);
            let word = u64::from(a) | u64::from(b) << 32;
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += (word >> bit & 1) as u32;
            }
        }
        for count in ones {
            assert!(count.abs_diff(n / 2) < 400, "{count}");
        }
        let base = rounding_bits(1, 1, 1, 1);
        assert_ne!(base, rounding_bits(2, 1, 1, 1));
        assert_ne!(base, rounding_bits(1, 2, 1, 1));
        assert_ne!(base, rounding_bits(1, 1, 2, 1));
        assert_ne!(base, rounding_bits(1, 1, 1, 2));
    }
}
