//! Activation quantisers and epilogues, by name: the published builds differ in the last place,
//! so each is kept as it is.

use crate::bitnet::{Error, Result};

/// How one token's activations become int8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Quantiser {
    /// bitnet.cpp 2024: `m = max(1e-5, max|x|)` in double, `s = f32(127/m)`, nearest even.
    #[default]
    #[value(name = "a")]
    A,
    /// bitnet.cpp 2026: no floor, `s = 127/max|x|` in single, halves away from zero; an all-zero
    /// row has `s = 0` and its outputs are exactly 0.
    #[value(name = "b")]
    B,
    /// Reference Python model: `s = 127/max(max|x|, 1e-5)` in single, nearest even.
    #[value(name = "hf")]
    Hf,
}

/// Order of the two scalings of an integer dot product, single precision throughout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Epilogue {
    /// `(dot / activation_scale) * weight_scale`.
    #[default]
    #[value(name = "a")]
    A,
    /// `dot * (weight_scale / activation_scale)`.
    #[value(name = "b")]
    B,
}

/// Quantised activations of `tokens` rows of `cols` values.
#[derive(Debug, Clone, PartialEq)]
pub struct Activations {
    /// Number of rows.
    pub tokens: usize,
    /// Values per row.
    pub cols: usize,
    /// `tokens x cols` int8 values.
    pub values: Vec<i8>,
    /// Multiplier that made them, per row (0 for an all-zero row under [`Quantiser::B`]).
    pub scales: Vec<f32>,
}

impl Activations {
    /// Takes int8 rows as they are, with scale 1.
    pub fn from_int8(tokens: usize, cols: usize, values: Vec<i8>) -> Result<Self> {
        if tokens.checked_mul(cols) != Some(values.len()) {
            return Err(Error::Shape(format!(
                "{} activations given for {tokens} x {cols}",
                values.len()
            )));
        }
        Ok(Self {
            tokens,
            cols,
            values,
            scales: vec![1.0; tokens],
        })
    }

    /// Row `token`.
    pub fn row(&self, token: usize) -> &[i8] {
        &self.values[token * self.cols..(token + 1) * self.cols]
    }
}

/// Quantises `rows` (`tokens x cols`, row by row).
pub fn quantise(rows: &[f32], cols: usize, quantiser: Quantiser) -> Result<Activations> {
    if cols == 0 || rows.is_empty() || !rows.len().is_multiple_of(cols) {
        return Err(Error::Shape(format!(
            "{} activations do not form rows of {cols}",
            rows.len()
        )));
    }
    let tokens = rows.len() / cols;
    let mut values = Vec::with_capacity(rows.len());
    let mut scales = Vec::with_capacity(tokens);
    for (token, row) in rows.chunks_exact(cols).enumerate() {
        if let Some(at) = row.iter().position(|v| !v.is_finite()) {
            return Err(Error::Numeric(format!(
                "activation {at} of token {token} is {}; only finite values can be quantised",
                row[at]
            )));
        }
        let largest = row.iter().fold(0f32, |m, v| m.max(v.abs()));
        let scale = match quantiser {
            Quantiser::A => (127.0 / f64::from(largest).max(1e-5)) as f32,
            Quantiser::B if largest == 0.0 => 0.0,
            Quantiser::B => 127.0 / largest,
            Quantiser::Hf => 127.0 / largest.max(1e-5),
        };
        values.extend(row.iter().map(|&x| {
            let scaled = x * scale;
            let rounded = match quantiser {
                Quantiser::B => scaled.round(),
                Quantiser::A | Quantiser::Hf => scaled.round_ties_even(),
            };
            rounded.clamp(-128.0, 127.0) as i8
        }));
        scales.push(scale);
    }
    Ok(Activations {
        tokens,
        cols,
        values,
        scales,
    })
}

/// Scales one integer dot product. `act_scale` 0 marks an all-zero row: the result is 0.
pub fn apply_epilogue(dot: i32, act_scale: f32, weight_scale: f32, epilogue: Epilogue) -> f32 {
    if act_scale == 0.0 {
        return 0.0;
    }
    match epilogue {
        Epilogue::A => dot as f32 / act_scale * weight_scale,
        Epilogue::B => dot as f32 * (weight_scale / act_scale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_differ_where_they_should() {
        // 63.5 after scaling: nearest even gives 64, away from zero gives 64; 62.5 tells them apart.
        let row = [127.0f32, 62.5, -62.5, 1.0];
        let even = quantise(&row, 4, Quantiser::A).unwrap();
        assert_eq!(even.values, [127, 62, -62, 1]);
        assert_eq!(
            quantise(&row, 4, Quantiser::Hf).unwrap().values,
            even.values
        );
        let away = quantise(&row, 4, Quantiser::B).unwrap();
        assert_eq!(away.values, [127, 63, -63, 1]);
        assert_eq!(away.scales, [1.0]);
    }

    #[test]
    fn zero_row_gives_zero_not_nan() {
        for quantiser in [Quantiser::A, Quantiser::B, Quantiser::Hf] {
            let row = quantise(&[0.0; 8], 8, quantiser).unwrap();
            assert_eq!(row.values, [0; 8]);
            for epilogue in [Epilogue::A, Epilogue::B] {
                assert_eq!(apply_epilogue(0, row.scales[0], 0.5, epilogue), 0.0);
            }
        }
        assert_eq!(quantise(&[0.0; 8], 8, Quantiser::B).unwrap().scales, [0.0]);
    }

    #[test]
    fn tiny_rows_meet_the_floor_only_in_a_and_hf() {
        let row = [1e-6f32, 0.0];
        assert_eq!(quantise(&row, 2, Quantiser::A).unwrap().values, [13, 0]);
        assert_eq!(quantise(&row, 2, Quantiser::B).unwrap().values, [127, 0]);
    }

    #[test]
    fn nan_and_infinity_are_errors() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let text = quantise(&[1.0, bad], 2, Quantiser::A)
                .unwrap_err()
                .to_string();
            assert!(text.contains("activation 1 of token 0"), "{text}");
        }
    }

    #[test]
    fn epilogue_orders_differ_in_the_last_place() {
        let differs = (1..2000).any(|dot| {
            apply_epilogue(dot, 3.3, 0.7, Epilogue::A) != apply_epilogue(dot, 3.3, 0.7, Epilogue::B)
        });
        assert!(differs);
        assert_eq!(apply_epilogue(10, 4.0, 2.0, Epilogue::A), 5.0);
        assert_eq!(apply_epilogue(10, 4.0, 2.0, Epilogue::B), 5.0);
    }
}
