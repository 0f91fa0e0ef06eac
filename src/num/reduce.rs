//! The fixed order of FP32 sums (`docs/arithmetic.md` section 1).

use super::fp32::add;

/// `sum8`: eight interleaved partial sums from +0, combined as
/// `((s0+s4) + (s2+s6)) + ((s1+s5) + (s3+s7))`.
pub fn sum8(values: impl IntoIterator<Item = f32>) -> f32 {
    let mut s = [0f32; 8];
    for (i, a) in values.into_iter().enumerate() {
        s[i % 8] = add(s[i % 8], a);
    }
    combine8(s)
}

/// The last seven additions of `sum8`.
#[inline(always)]
pub fn combine8(s: [f32; 8]) -> f32 {
    add(
        add(add(s[0], s[4]), add(s[2], s[6])),
        add(add(s[1], s[5]), add(s[3], s[7])),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_the_stated_one() {
        // 2^24 + 1 loses the 1 unless the two meet in different partial sums first.
        let big = 16_777_216f32;
        assert_eq!(sum8([big, 0., 1., 0., 0., 0., 1.]), big + 2.0);
        assert_eq!(sum8([big, 0., 0., 0., 1.]), big);
        assert_eq!(sum8([big, 0., 0., 0., 0., 0., 0., 0., 1.]), big);
        assert_eq!(sum8([big, 1., 0., 1.]), big + 2.0);
        assert_eq!(sum8([]).to_bits(), 0);
        assert_eq!(sum8([-0.0]).to_bits(), 0);
    }
}
