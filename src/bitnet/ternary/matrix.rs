//! The in-memory form of a ternary matrix.

use super::i2s::{I2sLayout, find_reserved};
use super::tq;
use crate::bitnet::gguf::{Bytes, GgufFile, TensorInfo, TensorType};
use crate::bitnet::{Error, Result};

/// Columns per block of the in-memory order.
const BLOCK: usize = 128;

/// Weight scale: the factor from an integer dot product to the layer's output.
#[derive(Debug, Clone, PartialEq)]
pub enum Scales {
    /// One for the whole matrix.
    Tensor(f32),
    /// One per output row.
    PerRow(Vec<f32>),
}

impl Scales {
    /// Scale of output row `row`.
    pub fn of(&self, row: usize) -> f32 {
        match self {
            Self::Tensor(s) => *s,
            Self::PerRow(s) => s[row],
        }
    }
}

/// `rows` outputs by `cols` inputs of trits, in 128-column `I2_S` order.
#[derive(Debug, Clone)]
pub struct TernaryMatrix {
    id: u64,
    rows: usize,
    cols: usize,
    data: Bytes,
    /// Weight scale.
    pub scales: Scales,
}

impl TernaryMatrix {
    /// Packs trits given row by row.
    pub fn from_trits(rows: usize, cols: usize, trits: &[i8], scale: f32) -> Result<Self> {
        if rows == 0 || cols == 0 || rows.checked_mul(cols) != Some(trits.len()) {
            return Err(Error::Shape(format!(
                "{} trits given for a {rows} x {cols} matrix",
                trits.len()
            )));
        }
        let codes: Vec<u8> = trits.iter().map(|&t| (t + 1) as u8).collect();
        if let Some(at) = codes.iter().position(|&c| c > 2) {
            return Err(Error::Data(format!(
                "element {at} is {}; accepted: -1, 0, 1",
                trits[at]
            )));
        }
        Ok(Self::from_codes(rows, cols, &codes, Scales::Tensor(scale)))
    }

    fn from_codes(rows: usize, cols: usize, codes: &[u8], scales: Scales) -> Self {
        let row_bytes = cols.div_ceil(BLOCK) * BLOCK / 4;
        let mut data = vec![0u8; rows * row_bytes];
        for (row, codes) in codes.chunks_exact(cols).enumerate() {
            let packed = &mut data[row * row_bytes..(row + 1) * row_bytes];
            for col in 0..cols.next_multiple_of(BLOCK) {
                let code = codes.get(col).copied().unwrap_or(1);
                let (block, within) = (col / BLOCK, col % BLOCK);
                packed[32 * block + within % 32] |= code << (6 - 2 * (within / 32));
            }
        }
        Self {
            id: next_id(),
            rows,
            cols,
            data: data.into(),
            scales,
        }
    }

    /// Reads tensor `tensor` of `file`. `I2_S` in the 128 layout is used where it lies; the
    /// other containers are converted. Float tensors are taken when every element is
    /// `-s, 0` or `s` for one `s`.
    pub fn from_gguf(file: &GgufFile, tensor: &TensorInfo, layout: I2sLayout) -> Result<Self> {
        let (rows, cols) = tensor.matrix();
        let too_big = |_| Error::Shape(format!("tensor `{}` is too large", tensor.name));
        let rows = usize::try_from(rows).map_err(too_big)?;
        let cols = usize::try_from(cols).map_err(too_big)?;
        let data = file.data(tensor)?;
        let name = tensor.name.as_str();
        match tensor.dtype {
            TensorType::I2S => Self::from_i2s(rows, cols, data, layout, name),
            TensorType::Tq1_0 => Self::from_tq(rows, cols, &data, true, name),
            TensorType::Tq2_0 => Self::from_tq(rows, cols, &data, false, name),
            TensorType::F32 | TensorType::F16 => {
                let values = crate::bitnet::model::float_values(file, tensor)?;
                Self::from_floats(rows, cols, &values, name)
            }
        }
    }

    fn from_i2s(
        rows: usize,
        cols: usize,
        data: Bytes,
        layout: I2sLayout,
        name: &str,
    ) -> Result<Self> {
        layout.check(rows, cols, name)?;
        let code_bytes = rows * cols / 4;
        let tail = &data[code_bytes..code_bytes + 4];
        let scale = f32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
        check_scale(scale, name)?;
        if let Some(byte) = find_reserved(&data[..code_bytes]) {
            let place = (0..rows * cols)
                .map(|e| (e / cols, e % cols))
                .find(|&(r, c)| layout.code(&data, r, c, cols) == 3);
            return Err(reserved(name, byte, place, cols));
        }
        let scales = Scales::Tensor(scale);
        if layout == I2sLayout::Block128
            && let Some(data) = data.slice(0..code_bytes)
        {
            return Ok(Self {
                id: next_id(),
                rows,
                cols,
                data,
                scales,
            });
        }
        let codes: Vec<u8> = (0..rows * cols)
            .map(|e| layout.code(&data, e / cols, e % cols, cols))
            .collect();
        Ok(Self::from_codes(rows, cols, &codes, scales))
    }

    fn from_tq(rows: usize, cols: usize, data: &[u8], one: bool, name: &str) -> Result<Self> {
        let size = if one { tq::TQ1_BYTES } else { tq::TQ2_BYTES };
        let mut codes = vec![0u8; rows * cols];
        let mut row_scales: Vec<Option<f32>> = vec![None; rows];
        for (index, (block, codes)) in data
            .chunks_exact(size)
            .zip(codes.chunks_exact_mut(tq::BLOCK))
            .enumerate()
        {
            let scale = if one {
                tq::unpack_tq1(block, codes)
            } else {
                tq::unpack_tq2(block, codes)
            };
            if let Some(at) = codes.iter().position(|&c| c > 2) {
                let element = index * tq::BLOCK + at;
                let place = Some((element / cols, element % cols));
                return Err(reserved(name, index * size + at / 4, place, cols));
            }
            check_scale(scale, name)?;
            // A block of zeros contributes nothing, so its scale does not matter.
            if codes.iter().all(|&c| c == 1) {
                continue;
            }
            let row = index * tq::BLOCK / cols;
            match row_scales[row] {
                None => row_scales[row] = Some(scale),
                Some(first) if first == scale => {}
                Some(first) => {
                    return Err(Error::Unsupported(format!(
                        "tensor `{name}`, row {row}: block scales {first} and {scale} differ \
                         within the row; the array drains one exact integer per row, which \
                         needs one scale per row"
                    )));
                }
            }
        }
        let first = row_scales.iter().flatten().next().copied().unwrap_or(0.0);
        let scales = if row_scales.iter().flatten().all(|&s| s == first) {
            Scales::Tensor(first)
        } else {
            Scales::PerRow(row_scales.iter().map(|s| s.unwrap_or(first)).collect())
        };
        Ok(Self::from_codes(rows, cols, &codes, scales))
    }

    /// Takes floats that already are ternary: every element `-s, 0` or `s`.
    pub fn from_floats(rows: usize, cols: usize, values: &[f32], name: &str) -> Result<Self> {
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            return Err(Error::Data(format!(
                "tensor `{name}`: element ({}, {}) is {}; accepted: finite numbers",
                at / cols,
                at % cols,
                values[at]
            )));
        }
        let scale = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        let mut trits = Vec::with_capacity(values.len());
        for (at, &value) in values.iter().enumerate() {
            let trit = if value == scale && scale > 0.0 {
                1
            } else if value == -scale && scale > 0.0 {
                -1
            } else if value == 0.0 {
                0
            } else {
                return Err(Error::Data(format!(
                    "tensor `{name}` is not ternary: element ({}, {}) is {value}, the largest \
                     magnitude is {scale}; accepted: -{scale}, 0, {scale} only",
                    at / cols,
                    at % cols
                )));
            };
            trits.push(trit);
        }
        Self::from_trits(rows, cols, &trits, scale)
    }

    /// Number that only this matrix and its clones have, for caches.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Output rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes of a packed row: columns rounded up to 128, divided by 4.
    pub fn row_bytes(&self) -> usize {
        self.cols.div_ceil(BLOCK) * BLOCK / 4
    }

    /// Packed codes of a row.
    pub fn packed_row(&self, row: usize) -> &[u8] {
        let bytes = self.row_bytes();
        &self.data[row * bytes..(row + 1) * bytes]
    }

    /// All packed codes.
    pub fn packed(&self) -> &[u8] {
        &self.data
    }

    /// Codes (0 to 2) of a row, without the padding.
    pub fn codes(&self, row: usize) -> Vec<u8> {
        let packed = self.packed_row(row);
        (0..self.cols)
            .map(|col| {
                let (block, within) = (col / BLOCK, col % BLOCK);
                packed[32 * block + within % 32] >> (6 - 2 * (within / 32)) & 3
            })
            .collect()
    }

    /// Counts of -1, 0 and +1.
    pub fn histogram(&self) -> [u64; 3] {
        let mut counts = [0u64; 4];
        for &byte in self.data.iter() {
            for shift in [0, 2, 4, 6] {
                counts[usize::from(byte >> shift & 3)] += 1;
            }
        }
        let padding = self.rows * (4 * self.row_bytes() - self.cols);
        [counts[0], counts[1] - padding as u64, counts[2]]
    }

    /// Encodes as container type `dtype`.
    pub fn encode(&self, dtype: TensorType, layout: I2sLayout, name: &str) -> Result<Vec<u8>> {
        match dtype {
            TensorType::I2S => self.encode_i2s(layout, name),
            TensorType::Tq1_0 | TensorType::Tq2_0 => self.encode_tq(dtype, name),
            TensorType::F32 | TensorType::F16 => {
                let mut out = Vec::new();
                for row in 0..self.rows {
                    let scale = self.scales.of(row);
                    if dtype == TensorType::F16 {
                        check_half(scale, name)?;
                    }
                    for code in self.codes(row) {
                        let value = (f32::from(code) - 1.0) * scale;
                        if dtype == TensorType::F32 {
                            out.extend_from_slice(&value.to_le_bytes());
                        } else {
                            out.extend_from_slice(&half::f16::from_f32(value).to_le_bytes());
                        }
                    }
                }
                Ok(out)
            }
        }
    }

    fn encode_i2s(&self, layout: I2sLayout, name: &str) -> Result<Vec<u8>> {
        layout.check(self.rows, self.cols, name)?;
        let Scales::Tensor(scale) = self.scales else {
            return Err(Error::Unsupported(format!(
                "tensor `{name}` has one scale per row; I2_S holds one per tensor"
            )));
        };
        let mut out = if layout == I2sLayout::Block128 {
            self.data.to_vec()
        } else {
            let mut out = vec![0; self.rows * self.cols / 4];
            for row in 0..self.rows {
                for (col, code) in self.codes(row).into_iter().enumerate() {
                    layout.put(&mut out, row, col, self.cols, code);
                }
            }
            out
        };
        out.extend_from_slice(&scale.to_le_bytes());
        out.extend_from_slice(&[0; 28]);
        Ok(out)
    }

    fn encode_tq(&self, dtype: TensorType, name: &str) -> Result<Vec<u8>> {
        if !self.cols.is_multiple_of(tq::BLOCK) {
            return Err(Error::Shape(format!(
                "tensor `{name}`: row length {} is not a multiple of 256, which {} needs",
                self.cols,
                dtype.name()
            )));
        }
        let mut out = Vec::new();
        for row in 0..self.rows {
            let scale = self.scales.of(row);
            check_half(scale, name)?;
            for block in self.codes(row).chunks_exact(tq::BLOCK) {
                if dtype == TensorType::Tq1_0 {
                    tq::pack_tq1(block, scale, &mut out);
                } else {
                    tq::pack_tq2(block, scale, &mut out);
                }
            }
        }
        Ok(out)
    }
}

fn next_id() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Half precision would make the scale infinite, or 0 and with it every weight.
fn check_half(scale: f32, name: &str) -> Result<()> {
    let half = half::f16::from_f32(scale).to_f32();
    if half.is_finite() && (half != 0.0 || scale == 0.0) {
        return Ok(());
    }
    Err(Error::Data(format!(
        "tensor `{name}`: scale {scale} does not fit half precision, which holds about 6e-8 to 65504"
    )))
}

pub(crate) fn check_scale(scale: f32, name: &str) -> Result<()> {
    if !scale.is_finite() || scale < 0.0 {
        return Err(Error::Data(format!(
            "tensor `{name}`: weight scale {scale}; accepted: finite and not negative"
        )));
    }
    Ok(())
}

fn reserved(name: &str, byte: usize, place: Option<(usize, usize)>, cols: usize) -> Error {
    let element = place.map_or(String::new(), |(r, c)| {
        format!(", element {} (row {r}, column {c})", r * cols + c)
    });
    Error::Data(format!(
        "tensor `{name}`: reserved code 3 at byte {byte}{element}; trit codes are 0, 1, 2"
    ))
}
