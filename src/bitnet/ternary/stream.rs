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
}

impl StreamFormat {
    /// Weights per byte, which is also the number of steps per 8-byte word.
    pub fn digits(self) -> usize {
        match self {
            Self::TwoBit => 4,
            Self::FiveTrits => 5,
        }
    }

    /// Name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::TwoBit => "2bit",
            Self::FiveTrits => "1.6bit",
        }
    }

    /// Bytes of one output row of `cols` weights: whole beats of 16 bytes (2-bit rows also keep
    /// the 32-byte block of `I2_S`).
    pub fn row_bytes(self, cols: usize) -> usize {
        match self {
            Self::TwoBit => cols.div_ceil(128) * 32,
            Self::FiveTrits => cols.div_ceil(80) * 16,
        }
    }

    /// Column that digit `digit` of byte `byte` of an output row holds (it may lie beyond the
    /// last column: padding).
    pub fn column(self, byte: usize, digit: usize) -> usize {
        match self {
            Self::TwoBit => byte / 32 * 128 + digit * 32 + byte % 32,
            Self::FiveTrits => byte / 16 * 80 + digit * 16 + byte % 16,
        }
    }
}

/// The whole matrix as a stream, `row_bytes` per output row.
pub fn weight_stream(matrix: &TernaryMatrix, format: StreamFormat) -> Vec<u8> {
    match format {
        StreamFormat::TwoBit => matrix.packed().to_vec(),
        StreamFormat::FiveTrits => {
            let bytes = format.row_bytes(matrix.cols());
            let mut out = Vec::with_capacity(bytes * matrix.rows());
            for row in 0..matrix.rows() {
                let codes = matrix.codes(row);
                for byte in 0..bytes {
                    let digits: [u8; 5] = std::array::from_fn(|digit| {
                        codes.get(format.column(byte, digit)).copied().unwrap_or(1)
                    });
                    out.push(tq::pack_trits(&digits));
                }
            }
            out
        }
    }
}
