use rand::{RngExt, SeedableRng};

use super::*;
use crate::bitnet::gguf::{GgufFile, GgufWriter, TensorType};

fn random_trits(count: usize, seed: u64) -> Vec<i8> {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
    (0..count).map(|_| rng.random_range(-1..=1)).collect()
}

fn through(matrix: &TernaryMatrix, dtype: TensorType, layout: I2sLayout) -> TernaryMatrix {
    let mut writer = GgufWriter::new();
    let data = matrix.encode(dtype, layout, "w").unwrap();
    let dims = [matrix.cols() as u64, matrix.rows() as u64];
    writer.tensor("w", &dims, dtype, data).unwrap();
    let file = GgufFile::parse(writer.to_bytes().into()).unwrap();
    TernaryMatrix::from_gguf(&file, file.tensor("w").unwrap(), layout).unwrap()
}

#[test]
fn every_container_returns_the_same_trits() {
    let trits = random_trits(8 * 512, 1);
    let matrix = TernaryMatrix::from_trits(8, 512, &trits, 0.75).unwrap();
    for (dtype, layout) in [
        (TensorType::I2S, I2sLayout::Block128),
        (TensorType::I2S, I2sLayout::Block64),
        (TensorType::I2S, I2sLayout::FourRow),
        (TensorType::Tq1_0, I2sLayout::Block128),
        (TensorType::Tq2_0, I2sLayout::Block128),
        (TensorType::F32, I2sLayout::Block128),
        (TensorType::F16, I2sLayout::Block128),
    ] {
        let back = through(&matrix, dtype, layout);
        assert_eq!(back.packed(), matrix.packed(), "{dtype:?} {layout:?}");
        assert_eq!(back.scales, Scales::Tensor(0.75), "{dtype:?} {layout:?}");
    }
}

/// Byte tables worked by hand from the formats' descriptions.
#[test]
fn bytes_lie_where_the_formats_put_them() {
    let mut trits = vec![0i8; 4 * 256];
    trits[0] = 1; // row 0, column 0
    trits[33] = -1; // row 0, column 33
    trits[256 + 2] = 1; // row 1, column 2
    let matrix = TernaryMatrix::from_trits(4, 256, &trits, 1.0).unwrap();
    let bytes = |dtype, layout| matrix.encode(dtype, layout, "w").unwrap();
    let wide = bytes(TensorType::I2S, I2sLayout::Block128);
    assert_eq!(&wide[..3], &[0b10_01_01_01, 0b01_00_01_01, 0b01_01_01_01]);
    assert_eq!(wide[64 + 2], 0b10_01_01_01);
    assert_eq!(wide.len(), 256 + 32);
    let narrow = bytes(TensorType::I2S, I2sLayout::Block64);
    assert_eq!(&narrow[..2], &[0b10_01_01_01, 0b01_01_00_01]);
    let four = bytes(TensorType::I2S, I2sLayout::FourRow);
    assert_eq!(four[0], 0b10_01_01_01);
    assert_eq!(four[2], 0b01_10_01_01);
    assert_eq!(four[33], 0b00_01_01_01);
    let tq2 = bytes(TensorType::Tq2_0, I2sLayout::Block128);
    assert_eq!(&tq2[..2], &[0b01_01_01_10, 0b01_01_00_01]);
    assert_eq!(tq2[64..66], half::f16::ONE.to_le_bytes());
    let tq1 = bytes(TensorType::Tq1_0, I2sLayout::Block128);
    // Digits 2,1,1,1,1 are 202 in base 3, digits 1,0,1,1,1 are 94.
    assert_eq!(tq1[0], (202u16 * 256).div_ceil(243) as u8);
    assert_eq!(tq1[1], (94u16 * 256).div_ceil(243) as u8);
}

#[test]
fn reserved_code_is_reported_with_its_element() {
    for (layout, element) in [
        (I2sLayout::Block128, 256 + 32 + 5),
        (I2sLayout::Block64, 256 + 80 + 5),
    ] {
        let matrix = TernaryMatrix::from_trits(4, 256, &random_trits(1024, 2), 1.0).unwrap();
        let mut data = matrix.encode(TensorType::I2S, layout, "w").unwrap();
        let byte = match layout {
            I2sLayout::Block128 => 64 + 5,
            _ => 64 + 16 + 5,
        };
        data[byte] |= 0x30;
        let mut writer = GgufWriter::new();
        writer
            .tensor("w", &[256, 4], TensorType::I2S, data)
            .unwrap();
        let file = GgufFile::parse(writer.to_bytes().into()).unwrap();
        let text = TernaryMatrix::from_gguf(&file, &file.tensors[0], layout)
            .unwrap_err()
            .to_string();
        let expected = match layout {
            I2sLayout::Block128 => element,
            _ => 256 + 64 + 16 + 5,
        };
        assert!(text.contains(&format!("element {expected} ")), "{text}");
    }
}

#[test]
fn tq_scales_that_differ_within_a_row_are_refused() {
    let matrix = TernaryMatrix::from_trits(2, 512, &random_trits(1024, 3), 1.0).unwrap();
    let mut data = matrix
        .encode(TensorType::Tq2_0, I2sLayout::Block128, "w")
        .unwrap();
    let file_of = |data: Vec<u8>| {
        let mut writer = GgufWriter::new();
        writer
            .tensor("w", &[512, 2], TensorType::Tq2_0, data)
            .unwrap();
        GgufFile::parse(writer.to_bytes().into()).unwrap()
    };
    let two = half::f16::from_f32(2.0).to_le_bytes();
    data[3 * 66 + 64..].copy_from_slice(&two);
    let file = file_of(data.clone());
    let text = TernaryMatrix::from_gguf(&file, &file.tensors[0], I2sLayout::Block128)
        .unwrap_err()
        .to_string();
    assert!(text.contains("row 1") && text.contains("differ"), "{text}");
    data[2 * 66 + 64..3 * 66].copy_from_slice(&two);
    let file = file_of(data);
    let matrix = TernaryMatrix::from_gguf(&file, &file.tensors[0], I2sLayout::Block128).unwrap();
    assert_eq!(matrix.scales, Scales::PerRow(vec![1.0, 2.0]));
}

#[test]
fn floats_that_are_not_ternary_are_refused() {
    let mut values = vec![0.5f32, -0.5, 0.0, 0.5];
    assert!(TernaryMatrix::from_floats(2, 2, &values, "w").is_ok());
    values[2] = 0.1;
    let text = TernaryMatrix::from_floats(2, 2, &values, "w")
        .unwrap_err()
        .to_string();
    assert!(text.contains("not ternary: element (1, 0)"), "{text}");
    values[2] = f32::NAN;
    assert!(TernaryMatrix::from_floats(2, 2, &values, "w").is_err());
}

#[test]
fn both_streams_hold_every_column_once() {
    for cols in [1, 64, 100, 128, 200, 2560] {
        let matrix = TernaryMatrix::from_trits(3, cols, &random_trits(3 * cols, 4), 1.0).unwrap();
        for format in [
            StreamFormat::TwoBit,
            StreamFormat::FiveTrits,
            StreamFormat::Nibbles,
        ] {
            let stream = weight_stream(&matrix, format);
            let bytes = format.row_bytes(cols);
            assert_eq!(stream.len(), 3 * bytes);
            for row in 0..3 {
                let codes = matrix.codes(row);
                let mut seen = vec![0; cols];
                for byte in 0..bytes {
                    for digit in 0..format.digits() {
                        let raw = stream[row * bytes + byte];
                        let code = match format {
                            StreamFormat::TwoBit => raw >> (6 - 2 * digit) & 3,
                            StreamFormat::FiveTrits => tq::trit_of(raw, digit as u32),
                            StreamFormat::Nibbles => (raw >> (4 - 4 * digit)).wrapping_add(1) & 3,
                        };
                        let col = format.column(byte, digit);
                        if col < cols {
                            seen[col] += 1;
                            assert_eq!(code, codes[col]);
                        } else {
                            assert_eq!(code, 1);
                        }
                    }
                }
                assert!(seen.iter().all(|&n| n == 1));
            }
        }
    }
}

/// The histogram warns about tensors that were never ternarised: those have no zeros.
#[test]
fn histogram_ignores_padding() {
    let matrix = TernaryMatrix::from_trits(2, 3, &[1, 0, -1, 1, 1, 0], 1.0).unwrap();
    assert_eq!(matrix.histogram(), [1, 2, 3]);
}
