//! Constant bit vectors of any width.

/// An unsigned vector of `width` bits held in 64-bit limbs, least significant first.
/// Bits above `width` are always zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bits {
    width: u32,
    limbs: Vec<u64>,
}

/// Number of 64-bit limbs that hold `width` bits (at least one).
pub fn limbs_for(width: u32) -> usize {
    (width as usize).div_ceil(64).max(1)
}

/// Clears the bits of `limbs` at and above `width`.
pub fn mask_top(limbs: &mut [u64], width: u32) {
    let rest = width % 64;
    if rest != 0 {
        let last = (width / 64) as usize;
        limbs[last] &= (1u64 << rest) - 1;
    }
}

/// Bit `i` of a limb slice.
pub fn get_bit(limbs: &[u64], i: u32) -> bool {
    limbs[(i / 64) as usize] >> (i % 64) & 1 == 1
}

/// Copies `width` bits of `src` starting at `lo` to `dst` starting at bit `at`.
/// The destination bits must be zero beforehand.
pub fn or_bits(dst: &mut [u64], at: u32, src: &[u64], lo: u32, width: u32) {
    let mut done = 0;
    while done < width {
        let (s, d) = (lo + done, at + done);
        let step = (64 - s % 64).min(64 - d % 64).min(width - done);
        let mut part = src[(s / 64) as usize] >> (s % 64);
        if step < 64 {
            part &= (1u64 << step) - 1;
        }
        dst[(d / 64) as usize] |= part << (d % 64);
        done += step;
    }
}

impl Bits {
    /// The zero vector.
    pub fn zero(width: u32) -> Self {
        Bits {
            width,
            limbs: vec![0; limbs_for(width)],
        }
    }

    /// The low `width` bits of `value`.
    pub fn new(value: u128, width: u32) -> Self {
        Self::from_limbs(&[value as u64, (value >> 64) as u64], width)
    }

    /// The low `width` bits of a limb slice; missing limbs are zero.
    pub fn from_limbs(limbs: &[u64], width: u32) -> Self {
        let mut bits = Self::zero(width);
        for (to, from) in bits.limbs.iter_mut().zip(limbs) {
            *to = *from;
        }
        mask_top(&mut bits.limbs, width);
        bits
    }

    /// Width in bits.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// The limbs, least significant first.
    pub fn limbs(&self) -> &[u64] {
        &self.limbs
    }

    /// The value's low 128 bits.
    pub fn to_u128(&self) -> u128 {
        self.limbs[0] as u128 | (self.limbs.get(1).copied().unwrap_or(0) as u128) << 64
    }

    /// Whether every bit is zero.
    pub fn is_zero(&self) -> bool {
        self.limbs.iter().all(|&l| l == 0)
    }

    /// Whether every bit is one.
    pub fn is_ones(&self) -> bool {
        (0..self.width).all(|i| self.bit(i))
    }

    /// Bit `i`; bits beyond the width are zero.
    pub fn bit(&self, i: u32) -> bool {
        i < self.width && get_bit(&self.limbs, i)
    }

    /// Bits `lo .. lo + width`.
    pub fn slice(&self, lo: u32, width: u32) -> Self {
        let mut out = Self::zero(width);
        or_bits(&mut out.limbs, 0, &self.limbs, lo, width);
        out
    }

    /// Concatenation, most significant part first.
    pub fn cat(parts: &[&Bits]) -> Self {
        let mut out = Self::zero(parts.iter().map(|p| p.width).sum());
        let mut at = 0;
        for part in parts.iter().rev() {
            or_bits(&mut out.limbs, at, &part.limbs, 0, part.width);
            at += part.width;
        }
        out
    }

    /// Bitwise complement.
    pub fn not(&self) -> Self {
        let mut out = self.clone();
        out.limbs.iter_mut().for_each(|l| *l = !*l);
        mask_top(&mut out.limbs, self.width);
        out
    }

    /// The digits as `$readmemh` reads them: `width / 4` rounded up, no prefix.
    pub fn hex(&self) -> String {
        let digits = (self.width as usize).div_ceil(4).max(1);
        (0..digits)
            .rev()
            .map(|d| {
                let nibble = self.limbs[d / 16] >> (d % 16 * 4) & 15;
                char::from_digit(nibble as u32, 16).unwrap_or('0')
            })
            .collect()
    }

    /// A sized Verilog literal: decimal while it is short, else hexadecimal.
    pub fn verilog(&self) -> String {
        if self.width == 1 {
            return format!("1'b{}", self.limbs[0]);
        }
        let small = self.limbs.iter().skip(1).all(|&l| l == 0) && self.limbs[0] < 1024;
        if small {
            format!("{}'d{}", self.width, self.limbs[0])
        } else {
            format!("{}'h{}", self.width, self.hex())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_sized_and_masked() {
        assert_eq!(Bits::new(0x1ff, 8).verilog(), "8'd255");
        assert_eq!(Bits::new(0x3f80_0000, 32).verilog(), "32'h3f800000");
        assert_eq!(Bits::new(1, 1).verilog(), "1'b1");
    }

    #[test]
    fn concatenation_and_slices_cross_limbs() {
        let a = Bits::new(0xdead_beef, 40);
        let b = Bits::new(0x1234_5678_9abc_def0, 61);
        let c = Bits::cat(&[&a, &b]);
        assert_eq!(c.width(), 101);
        assert_eq!(c.slice(61, 40), a);
        assert_eq!(c.slice(0, 61), b);
    }
}
