//! The configuration word of a row: what its three execution stages do, where its operands come
//! from, and its two address generators. See `docs/cgla.md` for the stages.

use std::fmt;

use super::{Error, Result};

/// Declares an operation with its code and its mnemonic.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub enum $name { $($(#[$vdoc])* $variant = $code,)+ }
        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// Mnemonic.
            pub fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
            fn parse(text: &str) -> Result<Self> {
                Self::ALL.iter().copied().find(|v| v.text() == text).ok_or_else(|| {
                    let names: Vec<_> = Self::ALL.iter().map(|v| v.text()).collect();
                    Error::Program(format!("`{text}`; accepted: {}", names.join(", ")))
                })
            }
            fn decode(code: u128) -> Result<Self> {
                Self::ALL.iter().copied().find(|v| *v as u128 == code).ok_or_else(|| {
                    Error::Program(format!(concat!(stringify!($name), " code {}"), code))
                })
            }
        }
    };
}

codes! {
    /// First stage, on two signed 32-bit lanes.
    Ex1 {
        /// The first operand.
        #[default]
        Pass = 0 "pass",
        /// Sum.
        Add = 1 "add",
        /// First minus second.
        Sub = 2 "sub",
        /// Sum of eight signed int4 products per lane.
        Sma4 = 3 "sma4",
        /// Smaller.
        Min = 4 "min",
        /// Larger.
        Max = 5 "max",
    }
}
codes! {
    /// First operand.
    Source1 {
        /// Local memory port A.
        #[default]
        A = 0 "a",
        /// Chain word X.
        X = 1 "x",
        /// Chain word Y.
        Y = 2 "y",
        /// The row's constant.
        R = 3 "r",
    }
}
codes! {
    /// Second operand.
    Source2 {
        /// Local memory port B.
        #[default]
        B = 0 "b",
        /// Chain word X.
        X = 1 "x",
        /// Chain word Y.
        Y = 2 "y",
        /// The row's constant.
        R = 3 "r",
    }
}
codes! {
    /// Second stage.
    Ex2 {
        /// Unchanged.
        #[default]
        Pass = 0 "pass",
        /// Sum with the third operand.
        Add = 1 "add",
        /// Bitwise and.
        And = 2 "and",
        /// Bitwise or.
        Or = 3 "or",
        /// Bitwise exclusive or.
        Xor = 4 "xor",
    }
}
codes! {
    /// Third operand.
    Source3 {
        /// Chain word X.
        #[default]
        X = 0 "x",
        /// Chain word Y.
        Y = 1 "y",
        /// The row's constant.
        R = 2 "r",
    }
}
codes! {
    /// Third stage; `n` is the row's shift amount.
    Ex3 {
        /// Unchanged.
        #[default]
        Pass = 0 "pass",
        /// Both lanes left.
        Sll = 1 "sll",
        /// Both lanes right, zeros enter.
        Srl = 2 "srl",
        /// Both lanes right, the sign enters.
        Sra = 3 "sra",
        /// Lane 0 becomes `lane0 + (lane1 << n)`, lane 1 becomes 0.
        Fold = 4 "fold",
        /// Lane 1 becomes `lane0 + (lane1 << n)`, lane 0 becomes 0.
        FoldUp = 5 "foldup",
    }
}
codes! {
    /// Where the result goes on the chain; the other words pass.
    Dest {
        /// Nowhere.
        #[default]
        None = 0 "none",
        /// Chain word X.
        X = 1 "x",
        /// Chain word Y.
        Y = 2 "y",
    }
}
codes! {
    /// When the last row of a group stores its result to memory.
    Store {
        /// Never.
        #[default]
        None = 0 "none",
        /// At the last step of a dot product.
        Last = 1 "last",
        /// At every step.
        Every = 2 "every",
    }
}
codes! {
    /// How a 64-bit word of port B becomes an operand.
    FormatB {
        /// As it is.
        #[default]
        Raw = 0 "raw",
        /// Four steps per word: one 2-bit code of each byte, as int4 on both lanes.
        TwoBit = 1 "t2",
        /// Five steps per word: one trit of each byte, as int4 on both lanes.
        FiveTrits = 2 "t5",
        /// Two steps per word: the high, then the low nibble of each byte, on both lanes.
        Nibbles = 3 "n4",
    }
}
codes! {
    /// How a 64-bit word of port A becomes an operand.
    FormatA {
        /// As it is.
        #[default]
        Raw = 0 "raw",
        /// Eight int8 values: low fragments on lane 0, high fragments on lane 1.
        Fragments = 1 "frag",
    }
}

impl FormatB {
    /// Steps that one word lasts.
    pub fn digits(self) -> u32 {
        match self {
            Self::Raw => 1,
            Self::TwoBit => 4,
            Self::FiveTrits => 5,
            Self::Nibbles => 2,
        }
    }
}

/// Configuration of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowConfig {
    /// First stage.
    pub ex1: Ex1,
    /// Accumulate the first stage over the steps of a dot product.
    pub accumulate: bool,
    /// First operand.
    pub source1: Source1,
    /// Second operand.
    pub source2: Source2,
    /// Second stage.
    pub ex2: Ex2,
    /// Third operand.
    pub source3: Source3,
    /// Third stage.
    pub ex3: Ex3,
    /// Shift amount, 0 to 31.
    pub shift: u8,
    /// Chain destination.
    pub dest: Dest,
    /// Storing.
    pub store: Store,
    /// Store both lanes (64 bits) instead of lane 0.
    pub store_wide: bool,
    /// Operand format of port B.
    pub format_b: FormatB,
    /// Operand format of port A.
    pub format_a: FormatA,
    /// Lane 0 of the first operand is unsigned in `sma4` (builds with unsigned low lanes).
    pub low_unsigned: bool,
    /// Port B runs on from one dot product to the next instead of rewinding for the next token.
    pub stream_b: bool,
    /// Port A: first word of a tile.
    pub a_base: u16,
    /// Port A: words per step.
    pub a_inner: i8,
    /// Port A: words from the last step of a dot product to the next token's first.
    pub a_outer: i16,
    /// Port B: first word of a tile.
    pub b_base: u16,
    /// Port B: words per word step.
    pub b_inner: i8,
    /// Port B: words from one output to the next.
    pub b_outer: i16,
    /// Constant operand.
    pub constant: u64,
}

/// Bit positions of the fields in the configuration word, shared with the RTL.
pub mod field {
    /// `(low bit, width)`.
    pub type Field = (u32, u32);
    pub const EX1: Field = (0, 3);
    pub const ACCUMULATE: Field = (3, 1);
    pub const SOURCE1: Field = (4, 2);
    pub const SOURCE2: Field = (6, 2);
    pub const EX2: Field = (8, 3);
    pub const SOURCE3: Field = (11, 2);
    pub const EX3: Field = (13, 3);
    pub const SHIFT: Field = (16, 5);
    pub const DEST: Field = (21, 2);
    pub const STORE: Field = (23, 2);
    pub const STORE_WIDE: Field = (25, 1);
    pub const FORMAT_B: Field = (26, 2);
    pub const FORMAT_A: Field = (28, 1);
    pub const LOW_UNSIGNED: Field = (29, 1);
    pub const STREAM_B: Field = (30, 1);
    pub const A_BASE: Field = (32, 16);
    pub const A_OUTER: Field = (48, 16);
    pub const B_BASE: Field = (64, 16);
    pub const B_OUTER: Field = (80, 16);
    pub const A_INNER: Field = (96, 8);
    pub const B_INNER: Field = (104, 8);
    /// Bits of the word that hold something.
    pub const USED: u32 = 112;
}

impl RowConfig {
    /// The two beats of the row: configuration word, constant.
    pub fn encode(&self) -> [u128; 2] {
        let mut word = 0u128;
        let mut put = |(low, width): field::Field, value: u128| {
            word |= (value & ((1 << width) - 1)) << low;
        };
        put(field::EX1, self.ex1 as u128);
        put(field::ACCUMULATE, self.accumulate.into());
        put(field::SOURCE1, self.source1 as u128);
        put(field::SOURCE2, self.source2 as u128);
        put(field::EX2, self.ex2 as u128);
        put(field::SOURCE3, self.source3 as u128);
        put(field::EX3, self.ex3 as u128);
        put(field::SHIFT, self.shift.into());
        put(field::DEST, self.dest as u128);
        put(field::STORE, self.store as u128);
        put(field::STORE_WIDE, self.store_wide.into());
        put(field::FORMAT_B, self.format_b as u128);
        put(field::FORMAT_A, self.format_a as u128);
        put(field::LOW_UNSIGNED, self.low_unsigned.into());
        put(field::STREAM_B, self.stream_b.into());
        put(field::A_BASE, self.a_base.into());
        put(field::A_OUTER, self.a_outer as u16 as u128);
        put(field::B_BASE, self.b_base.into());
        put(field::B_OUTER, self.b_outer as u16 as u128);
        put(field::A_INNER, self.a_inner as u8 as u128);
        put(field::B_INNER, self.b_inner as u8 as u128);
        [word, self.constant.into()]
    }

    /// Inverse of [`RowConfig::encode`].
    pub fn decode([word, constant]: [u128; 2]) -> Result<Self> {
        let get = |(low, width): field::Field| word >> low & ((1 << width) - 1);
        Ok(Self {
            ex1: Ex1::decode(get(field::EX1))?,
            accumulate: get(field::ACCUMULATE) == 1,
            source1: Source1::decode(get(field::SOURCE1))?,
            source2: Source2::decode(get(field::SOURCE2))?,
            ex2: Ex2::decode(get(field::EX2))?,
            source3: Source3::decode(get(field::SOURCE3))?,
            ex3: Ex3::decode(get(field::EX3))?,
            shift: get(field::SHIFT) as u8,
            dest: Dest::decode(get(field::DEST))?,
            store: Store::decode(get(field::STORE))?,
            store_wide: get(field::STORE_WIDE) == 1,
            format_b: FormatB::decode(get(field::FORMAT_B))?,
            format_a: FormatA::decode(get(field::FORMAT_A))?,
            low_unsigned: get(field::LOW_UNSIGNED) == 1,
            stream_b: get(field::STREAM_B) == 1,
            a_base: get(field::A_BASE) as u16,
            a_outer: get(field::A_OUTER) as u16 as i16,
            b_base: get(field::B_BASE) as u16,
            b_outer: get(field::B_OUTER) as u16 as i16,
            a_inner: get(field::A_INNER) as u8 as i8,
            b_inner: get(field::B_INNER) as u8 as i8,
            constant: constant as u64,
        })
    }

    /// Reads the text form: `key=value` words, defaults where a key is absent.
    pub fn parse(text: &str) -> Result<Self> {
        let mut row = Self::default();
        for word in text.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else {
                match word {
                    "acc" => row.accumulate = true,
                    "wide" => row.store_wide = true,
                    "ulo" => row.low_unsigned = true,
                    "streamb" => row.stream_b = true,
                    _ => {
                        return Err(Error::Program(format!(
                            "`{word}`; accepted: key=value, acc, wide, ulo, streamb"
                        )));
                    }
                }
                continue;
            };
            match key {
                "ex1" => row.ex1 = Ex1::parse(value)?,
                "s1" => row.source1 = Source1::parse(value)?,
                "s2" => row.source2 = Source2::parse(value)?,
                "ex2" => row.ex2 = Ex2::parse(value)?,
                "s3" => row.source3 = Source3::parse(value)?,
                "ex3" => row.ex3 = Ex3::parse(value)?,
                "n" => row.shift = number(key, value, 0, 31)? as u8,
                "dest" => row.dest = Dest::parse(value)?,
                "store" => row.store = Store::parse(value)?,
                "fb" => row.format_b = FormatB::parse(value)?,
                "fa" => row.format_a = FormatA::parse(value)?,
                "a" => (row.a_base, row.a_inner, row.a_outer) = address(key, value)?,
                "b" => (row.b_base, row.b_inner, row.b_outer) = address(key, value)?,
                "r" => {
                    let digits = value.strip_prefix("0x").unwrap_or("");
                    row.constant = u64::from_str_radix(digits, 16).map_err(|_| {
                        Error::Program(format!("r={value}; accepted: 0x and up to 16 digits"))
                    })?;
                }
                _ => {
                    return Err(Error::Program(format!(
                        "`{key}`; accepted: ex1, s1, s2, ex2, s3, ex3, n, dest, store, fb, fa, \
                         a, b, r"
                    )));
                }
            }
        }
        Ok(row)
    }
}

pub(super) fn number(key: &str, value: &str, low: i64, high: i64) -> Result<i64> {
    value
        .parse()
        .ok()
        .filter(|v| (low..=high).contains(v))
        .ok_or_else(|| Error::Program(format!("{key}={value}; accepted: {low} to {high}")))
}

/// `base,inner,outer`.
fn address(key: &str, value: &str) -> Result<(u16, i8, i16)> {
    let parts: Vec<&str> = value.split(',').collect();
    let [base, inner, outer] = parts[..] else {
        return Err(Error::Program(format!(
            "{key}={value}; accepted: base,inner,outer"
        )));
    };
    Ok((
        number(key, base, 0, 65_535)? as u16,
        number(key, inner, -128, 127)? as i8,
        number(key, outer, -32_768, 32_767)? as i16,
    ))
}

impl fmt::Display for RowConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ex1={}", self.ex1.text())?;
        if self.accumulate {
            write!(f, " acc")?;
        }
        write!(f, " s1={} s2={}", self.source1.text(), self.source2.text())?;
        write!(f, " ex2={} s3={}", self.ex2.text(), self.source3.text())?;
        write!(f, " ex3={} n={}", self.ex3.text(), self.shift)?;
        write!(f, " dest={} store={}", self.dest.text(), self.store.text())?;
        if self.store_wide {
            write!(f, " wide")?;
        }
        write!(
            f,
            " fb={} fa={}",
            self.format_b.text(),
            self.format_a.text()
        )?;
        if self.low_unsigned {
            write!(f, " ulo")?;
        }
        if self.stream_b {
            write!(f, " streamb")?;
        }
        write!(f, " a={},{},{}", self.a_base, self.a_inner, self.a_outer)?;
        write!(f, " b={},{},{}", self.b_base, self.b_inner, self.b_outer)?;
        write!(f, " r={:#x}", self.constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_and_text_round_trip() {
        let row = RowConfig {
            ex1: Ex1::Sma4,
            accumulate: true,
            source1: Source1::Y,
            source2: Source2::R,
            ex2: Ex2::Xor,
            source3: Source3::R,
            ex3: Ex3::Fold,
            shift: 31,
            dest: Dest::Y,
            store: Store::Every,
            store_wide: true,
            format_b: FormatB::Nibbles,
            format_a: FormatA::Fragments,
            low_unsigned: true,
            stream_b: true,
            a_base: 511,
            a_inner: -128,
            a_outer: -32_768,
            b_base: 65_535,
            b_inner: 127,
            b_outer: 32_767,
            constant: u64::MAX,
        };
        assert_eq!(RowConfig::decode(row.encode()).unwrap(), row);
        assert_eq!(RowConfig::parse(&row.to_string()).unwrap(), row);
        let plain = RowConfig::default();
        assert_eq!(plain.encode(), [0, 0]);
        assert_eq!(RowConfig::parse(&plain.to_string()).unwrap(), plain);
    }

    #[test]
    fn bad_text_says_what_is_accepted() {
        for (text, expected) in [
            ("ex1=mul", "sma4"),
            ("n=32", "0 to 31"),
            ("a=1,2", "base,inner,outer"),
            ("r=12", "0x"),
            ("what", "key=value"),
            ("q=1", "accepted: ex1"),
        ] {
            let message = RowConfig::parse(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        assert!(RowConfig::decode([7, 0]).is_err());
    }
}
