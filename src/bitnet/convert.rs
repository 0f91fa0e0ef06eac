//! From one container to another, trits unchanged.

use super::gguf::{GgufFile, GgufWriter, TensorType, Value};
use super::make::file_type;
use super::ternary::{I2sLayout, Scales, TernaryMatrix};
use super::{Error, Result};

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct ConvertReport {
    /// Ternary tensors rewritten.
    pub converted: usize,
    /// Tensors copied byte by byte.
    pub copied: usize,
    /// Tensors whose scale had to be rounded to half precision: name, before, after.
    pub rounded_scales: Vec<(String, f32, f32)>,
}

/// Whether a tensor is one of the seven projections of a layer.
pub fn is_projection(name: &str) -> bool {
    let Some(part) = name
        .strip_prefix("blk.")
        .and_then(|rest| rest.split_once('.'))
        .and_then(|(_, part)| part.strip_suffix(".weight"))
    else {
        return false;
    };
    matches!(
        part,
        "attn_q" | "attn_k" | "attn_v" | "attn_output" | "ffn_gate" | "ffn_up" | "ffn_down"
    )
}

/// Rewrites every ternary tensor (and float projections that are ternary) of `file`, which has
/// `I2_S` tensors in `from` order, as `dtype`.
pub fn convert(
    file: &GgufFile,
    from: I2sLayout,
    dtype: TensorType,
    to: I2sLayout,
) -> Result<(GgufWriter, ConvertReport)> {
    convert_with(file, from, dtype, to, &mut || {})
}

/// [`convert`], calling `done` at each tensor.
pub fn convert_with(
    file: &GgufFile,
    from: I2sLayout,
    dtype: TensorType,
    to: I2sLayout,
    done: &mut dyn FnMut(),
) -> Result<(GgufWriter, ConvertReport)> {
    let mut writer = GgufWriter::new();
    let mut report = ConvertReport::default();
    for (name, value) in &file.keys {
        if name == "general.alignment" {
            continue; // the writer uses the default
        }
        if name == "general.file_type" {
            writer.key(name.clone(), Value::U32(file_type(dtype)));
        } else {
            writer.key(name.clone(), value.clone());
        }
    }
    for tensor in &file.tensors {
        done();
        if !tensor.dtype.is_ternary() && !is_projection(&tensor.name) {
            writer.tensor(
                tensor.name.clone(),
                &tensor.dims,
                tensor.dtype,
                file.data(tensor)?.to_vec(),
            )?;
            report.copied += 1;
            continue;
        }
        let matrix = TernaryMatrix::from_gguf(file, tensor, from)?;
        if matches!(
            dtype,
            TensorType::Tq1_0 | TensorType::Tq2_0 | TensorType::F16
        ) && let Scales::Tensor(scale) = matrix.scales
        {
            let half = half::f16::from_f32(scale).to_f32();
            if half != scale {
                report
                    .rounded_scales
                    .push((tensor.name.clone(), scale, half));
            }
        }
        let data = matrix.encode(dtype, to, &tensor.name)?;
        writer.tensor(tensor.name.clone(), &tensor.dims, dtype, data)?;
        report.converted += 1;
    }
    if report.converted == 0 {
        return Err(Error::Unsupported(
            "the file has no ternary tensor and no projection to convert".into(),
        ));
    }
    Ok((writer, report))
}
