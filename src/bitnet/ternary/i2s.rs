//! The three byte orders that carry the type number of `I2_S`. Nothing in a file tells them
//! apart, so the layout is the caller's choice.

use crate::bitnet::{Error, Result};

/// Byte order of an `I2_S` tensor (four 2-bit codes per byte, first code in bits 7:6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum I2sLayout {
    /// Blocks of 128 in 32 bytes: byte `p` holds elements `p, p+32, p+64, p+96` (x86 builds and
    /// the published file).
    #[default]
    #[value(name = "128")]
    Block128,
    /// Blocks of 64 in 16 bytes: byte `p` holds elements `p, p+16, p+32, p+48` (ARM builds).
    #[value(name = "64")]
    Block64,
    /// One byte per column of four rows: byte `g*K + k` holds rows `4g..4g+4` of column `k`.
    #[value(name = "4row")]
    FourRow,
}

impl I2sLayout {
    /// Checks that a `rows x cols` matrix can be stored in this order.
    pub fn check(self, rows: usize, cols: usize, name: &str) -> Result<()> {
        let (value, unit, what) = match self {
            Self::Block128 => (cols, 128, "row length"),
            Self::Block64 => (cols, 64, "row length"),
            Self::FourRow => (rows, 4, "row count"),
        };
        if value % unit != 0 {
            return Err(Error::Shape(format!(
                "tensor `{name}`: {what} {value} is not a multiple of {unit}, which this I2_S \
                 layout needs"
            )));
        }
        Ok(())
    }

    /// Byte and left-most bit pair (0 is bits 7:6) of element `(row, col)`.
    fn place(self, row: usize, col: usize, cols: usize) -> (usize, u32) {
        match self {
            Self::Block128 => block_place(row * cols + col, 32),
            Self::Block64 => block_place(row * cols + col, 16),
            Self::FourRow => (row / 4 * cols + col, (row % 4) as u32),
        }
    }

    /// Code of element `(row, col)`.
    pub fn code(self, data: &[u8], row: usize, col: usize, cols: usize) -> u8 {
        let (byte, pair) = self.place(row, col, cols);
        data[byte] >> (6 - 2 * pair) & 3
    }

    /// Stores a code into zeroed data.
    pub fn put(self, data: &mut [u8], row: usize, col: usize, cols: usize, code: u8) {
        let (byte, pair) = self.place(row, col, cols);
        data[byte] |= code << (6 - 2 * pair);
    }
}

fn block_place(index: usize, stride: usize) -> (usize, u32) {
    let block = 4 * stride;
    let within = index % block;
    (
        index / block * stride + within % stride,
        (within / stride) as u32,
    )
}

/// First byte that contains the reserved code 3, if any.
pub(super) fn find_reserved(data: &[u8]) -> Option<usize> {
    let bad = |b: u8| b & b >> 1 & 0x55 != 0;
    let (head, words, tail) = {
        let words = data.chunks_exact(8);
        let tail_at = data.len() - words.remainder().len();
        (0, words, tail_at)
    };
    for (index, chunk) in words.enumerate() {
        let mut raw = [0; 8];
        raw.copy_from_slice(chunk);
        let word = u64::from_le_bytes(raw);
        if word & word >> 1 & 0x5555_5555_5555_5555 != 0 {
            let start = head + 8 * index;
            return (start..start + 8).find(|&at| bad(data[at]));
        }
    }
    (tail..data.len()).find(|&at| bad(data[at]))
}
