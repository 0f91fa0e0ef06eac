//! Weights as the array reads them from memory: whole 16-byte beats per output row.
//!
//! A row of the array consumes 8-byte words. Each byte gives one weight per step, its digits
//! most significant first, so step `s` of a word covers eight bytes at the same digit.

use super::{TernaryMatrix, tq};

/// Packing of the weight stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum StreamFormat {
    /// Four 2-bit codes per byte in `I2_S` order: a mapped tensor streams as it is.
    #[default]
    #[value(name = "2bit")]
    TwoBit,
    /// Five trits per byte (1.6 bits per weight), 160 columns per 32 bytes.
    #[value(name = "1.6bit")]
    FiveTrits,
    /// Two int4 values per byte, for weights that are not trits.
    #[value(name = "4bit")]
    Nibbles,
}

impl StreamFormat {
    /// Weights per byte, which is also the number of steps per 8-byte word.
    pub fn digits(self) -> usize {
        match self {
            Self::TwoBit => 4,
            Self::FiveTrits => 5,
            Self::Nibbles => 2,
        }
    }

    /// Name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::TwoBit => "2bit",
            Self::FiveTrits => "1.6bit",
            Self::Nibbles => "4bit",
        }
    }

    /// Bytes of one output row of `cols` weights: whole beats of 16 bytes (2-bit rows also keep
    /// the 32-byte block of `I2_S`).
    pub fn row_bytes(self, cols: usize) -> usize {
        match self {
            Self::TwoBit => cols.div_ceil(128) * 32,
            Self::FiveTrits => cols.div_ceil(80) * 16,
            Self::Nibbles => cols.div_ceil(32) * 16,
        }
    }

    /// Column that digit `digit` of byte `byte` of an output row holds (it may lie beyond the
    /// last column: padding).
    pub fn column(self, byte: usize, digit: usize) -> usize {
        match self {
            Self::TwoBit => byte / 32 * 128 + digit * 32 + byte % 32,
            Self::FiveTrits => byte / 16 * 80 + digit * 16 + byte % 16,
            Self::Nibbles => byte / 16 * 32 + digit * 16 + byte % 16,
        }
    }

    /// Packs one row of values (trits, or int4 for [`StreamFormat::Nibbles`]).
    pub fn pack_row(self, values: &[i8], out: &mut Vec<u8>) {
        for byte in 0..self.row_bytes(values.len()) {
            let value = |digit| values.get(self.column(byte, digit)).copied().unwrap_or(0);
            let code = |digit| (value(digit) + 1) as u8;
            out.push(match self {
                Self::TwoBit => (0..4).fold(0, |acc, d| acc << 2 | code(d)),
                Self::FiveTrits => tq::pack_trits(&std::array::from_fn::<u8, 5, _>(code)),
                Self::Nibbles => (value(0) as u8) << 4 | value(1) as u8 & 15,
            });
        }
    }
}

/// The whole matrix as a stream, `row_bytes` per output row.
pub fn weight_stream(matrix: &TernaryMatrix, format: StreamFormat) -> Vec<u8> {
    match format {
        StreamFormat::TwoBit => matrix.packed().to_vec(),
        StreamFormat::FiveTrits | StreamFormat::Nibbles => {
            let mut out = Vec::with_capacity(format.row_bytes(matrix.cols()) * matrix.rows());
            for row in 0..matrix.rows() {
                let trits: Vec<i8> = matrix.codes(row).iter().map(|&c| c as i8 - 1).collect();
                format.pack_row(&trits, &mut out);
            }
            out
        }
    }
}
