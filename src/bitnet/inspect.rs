//! What a file contains, and what in it is likely to surprise.

use serde::Serialize;

use super::gguf::GgufFile;
use super::model::ModelConfig;
use super::shapes::Shape;
use super::ternary::{I2sLayout, Scales, TernaryMatrix};
use super::{Error, Result};

/// A tensor of the listing.
#[derive(Debug, Clone, Serialize)]
pub struct TensorReport {
    /// Name.
    pub name: String,
    /// Dimensions, contiguous first.
    pub dims: Vec<u64>,
    /// Type name.
    #[serde(rename = "type")]
    pub dtype: &'static str,
    /// Offset within the tensor data.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Weight scale of a ternary tensor (the first of several).
    pub scale: Option<f32>,
    /// Counts of -1, 0, +1.
    pub trits: Option<[u64; 3]>,
}

/// The whole listing.
#[derive(Debug, Clone, Serialize)]
pub struct InspectReport {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Container version.
    pub version: u32,
    /// Alignment of the tensor data.
    pub alignment: u64,
    /// Byte at which the tensor data starts.
    pub data_start: u64,
    /// Keys with a one-line value.
    pub keys: Vec<(String, String)>,
    /// Tensors in file order.
    pub tensors: Vec<TensorReport>,
    /// Architecture, when the model is one this decoder runs.
    pub architecture: Option<String>,
    /// Layer sizes.
    pub shape: Option<Shape>,
    /// Why the model cannot be decoded, if so.
    pub not_decodable: Option<String>,
    /// Number of ternary weights.
    pub ternary_weights: u64,
    /// Things worth knowing.
    pub warnings: Vec<String>,
}

/// Reads everything and checks every ternary tensor code by code.
pub fn inspect(file: &GgufFile, layout: I2sLayout) -> Result<InspectReport> {
    let mut warnings = Vec::new();
    let mut tensors = Vec::new();
    let mut ternary_weights = 0;
    for tensor in &file.tensors {
        let (mut scale, mut trits) = (None, None);
        if tensor.dtype.is_ternary() {
            let matrix = TernaryMatrix::from_gguf(file, tensor, layout)?;
            let counts = matrix.histogram();
            ternary_weights += tensor.elements();
            scale = Some(match &matrix.scales {
                Scales::Tensor(s) => *s,
                Scales::PerRow(s) => s[0],
            });
            if counts[1] * 1000 < tensor.elements() {
                warnings.push(format!(
                    "tensor `{}` has {} zeros among {} weights: probably quantised from a model \
                     that was not ternary",
                    tensor.name,
                    counts[1],
                    tensor.elements()
                ));
            }
            trits = Some(counts);
        }
        tensors.push(TensorReport {
            name: tensor.name.clone(),
            dims: tensor.dims.clone(),
            dtype: tensor.dtype.name(),
            offset: tensor.offset,
            bytes: tensor.size,
            scale,
            trits,
        });
    }
    if file.get("tokenizer.ggml.model").is_some() && file.get("tokenizer.ggml.pre").is_none() {
        warnings.push(
            "tokenizer.ggml.pre is missing: llama-bpe is used; readers that fall back to the \
             default split words differently"
                .into(),
        );
    }
    let (config, not_decodable) = match ModelConfig::from_gguf(file) {
        Ok(config) => (Some(config), None),
        Err(error @ (Error::Unsupported(_) | Error::Format(_) | Error::Shape(_))) => {
            (None, Some(error.to_string()))
        }
        Err(error) => return Err(error),
    };
    Ok(InspectReport {
        file_bytes: file.file_size(),
        version: 3,
        alignment: file.alignment,
        data_start: file.data_start,
        keys: file
            .keys
            .iter()
            .map(|(k, v)| (k.clone(), v.summary()))
            .collect(),
        tensors,
        architecture: config.as_ref().map(|c| c.architecture.clone()),
        shape: config.map(|c| c.shape),
        not_decodable,
        ternary_weights,
        warnings,
    })
}
