//! Pieces the FP32 units share: fields, leading zeros, rounding and packing.

use crate::dsl::{Module, Sig};

/// Bits of an FP32 word.
pub const WIDTH: u32 = 32;
/// The one NaN a unit produces.
pub const NAN: u128 = 0x7fc0_0000;
/// Magnitude of infinity.
pub const INFINITY: u128 = 0x7f80_0000;

/// Fields of an FP32 word. A subnormal counts as zero.
#[derive(Clone, Copy)]
pub struct Fields<'m> {
    /// 1 bit.
    pub sign: Sig<'m>,
    /// 8 bits, biased.
    pub exponent: Sig<'m>,
    /// 23 bits.
    pub fraction: Sig<'m>,
    /// Exponent field 0: zero or subnormal.
    pub zero: Sig<'m>,
    /// Exponent field 255: infinity or NaN.
    pub huge: Sig<'m>,
}

impl<'m> Fields<'m> {
    /// Splits a word.
    pub fn of(word: Sig<'m>) -> Self {
        let exponent = word.slice(30, 23);
        Fields {
            sign: word.bit(31),
            exponent,
            fraction: word.trunc(23),
            zero: exponent.is_zero(),
            huge: exponent.and_reduce(),
        }
    }

    /// NaN.
    pub fn nan(self) -> Sig<'m> {
        self.huge & self.fraction.or_reduce()
    }

    /// Infinity.
    pub fn infinite(self) -> Sig<'m> {
        self.huge & self.fraction.is_zero()
    }

    /// The 24-bit significand of a normal number, leading one included.
    pub fn significand(self) -> Sig<'m> {
        let m = self.sign.module();
        m.cat(&[m.lit(1, 1), self.fraction])
    }
}

/// Number of leading zeros of `x`, `ceil(log2(w))` bits; all ones pattern of the padded width
/// minus one where `x` is zero. A tree of four branches a node, which is two look-up tables deep:
/// four levels for 28 bits where a tree of two has eight.
pub fn leading_zeros<'m>(x: Sig<'m>) -> Sig<'m> {
    let m = x.module();
    let size = x.width().next_power_of_two();
    // Ones below keep the count of a zero word in range and cost nothing.
    let padded = match size - x.width() {
        0 => x,
        n => m.cat(&[x, m.lit((1 << n) - 1, n)]),
    };
    match tree(padded).1 {
        Some(count) => count,
        None => m.lit(0, 1),
    }
}

/// (any bit set, leading zeros) of a word whose width is a power of two; a single bit has no count.
fn tree<'m>(x: Sig<'m>) -> (Sig<'m>, Option<Sig<'m>>) {
    let m = x.module();
    let width = x.width();
    if width == 1 {
        return (x, None);
    }
    // Two branches at the top where the width is no power of four.
    let branches = if width.trailing_zeros().is_multiple_of(2) {
        4
    } else {
        2
    };
    let part = width / branches;
    let parts: Vec<_> = (0..branches)
        .map(|k| tree(x.slice(width - 1 - k * part, width - (k + 1) * part)))
        .collect();
    let any = parts.iter().skip(1).fold(parts[0].0, |all, p| all | p.0);
    let which = match parts[..] {
        [a, _] => !a.0,
        [a, b, c, _] => m.cat(&[!(a.0 | b.0), !a.0 & (b.0 | !c.0)]),
        _ => x,
    };
    let below = parts
        .iter()
        .rev()
        .skip(1)
        .fold(parts[parts.len() - 1].1, |rest, p| {
            Some(m.mux(p.0, p.1?, rest?))
        });
    let count = match below {
        Some(below) => m.cat(&[which, below]),
        None => which,
    };
    (any, Some(count))
}

/// What overrides a rounded number: the first that holds wins.
#[derive(Clone, Copy)]
pub struct Special<'m> {
    /// The result is NaN.
    pub nan: Sig<'m>,
    /// The result is infinite.
    pub infinite: Sig<'m>,
    /// The result is zero.
    pub zero: Sig<'m>,
}

impl<'m> Special<'m> {
    /// The same flags a number of cycles later.
    pub fn pipe(self, m: &'m Module, name: &str, stages: u32) -> Self {
        let word = m.cat(&[self.nan, self.infinite, self.zero]);
        let late = m.delay(name, word, stages);
        Special {
            nan: late.bit(2),
            infinite: late.bit(1),
            zero: late.bit(0),
        }
    }
}

/// Rounds and packs. `exponent` is the biased exponent in 10-bit two's complement before
/// rounding, `fraction` the 23 bits below the leading one, `up` whether rounding to nearest
/// even goes up.
///
/// A result below 2^-126 becomes zero, except that a significand of all ones at exponent 0
/// (which gradual underflow rounds up to 2^-126) becomes 2^-126: at exponent 0 the increment
/// is forced, and only all ones carry into the exponent.
pub fn round_and_pack<'m>(
    sign: Sig<'m>,
    exponent: Sig<'m>,
    fraction: Sig<'m>,
    up: Sig<'m>,
    special: Special<'m>,
) -> Sig<'m> {
    let m = sign.module();
    let increment = (up | exponent.is_zero()).named("increment");
    let rounded = (m.cat(&[exponent, fraction]) + increment.zext(33)).named("rounded");
    let top = rounded.slice(32, 23).named("rounded_exponent");
    let underflow = (top.msb() | top.is_zero() | special.zero).named("to_zero");
    let over = top.bit(8) | top.trunc(8).and_reduce();
    let overflow = ((!top.msb() & over & !special.zero) | special.infinite).named("to_infinity");
    let magnitude = m.mux(
        overflow,
        m.lit(INFINITY, 31),
        m.mux(underflow, m.lit(0, 31), rounded.trunc(31)),
    );
    m.mux(special.nan, m.lit(NAN, 32), m.cat(&[sign, magnitude]))
}
