//! Writer: keys and tensors in the order given, data aligned, same input same bytes.

use std::io::Write;
use std::path::Path;

use super::{DEFAULT_ALIGNMENT, TensorType, Value};
use crate::bitnet::{Error, Result};
use crate::files::write_whole;

struct Tensor {
    name: String,
    dims: Vec<u64>,
    dtype: TensorType,
    data: Vec<u8>,
}

/// Collects keys and tensors and writes them as one file.
#[derive(Default)]
pub struct GgufWriter {
    keys: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
}

impl GgufWriter {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a key.
    pub fn key(&mut self, name: impl Into<String>, value: Value) -> &mut Self {
        self.keys.push((name.into(), value));
        self
    }

    /// Appends a tensor; `dims` has the contiguous dimension first.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        dims: &[u64],
        dtype: TensorType,
        data: Vec<u8>,
    ) -> Result<&mut Self> {
        let name = name.into();
        let elements = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let expected = elements.and_then(|n| dtype.byte_size(n));
        let whole = dims
            .first()
            .is_some_and(|row| row.is_multiple_of(dtype.block()));
        if !whole || expected != Some(data.len() as u64) {
            return Err(Error::Shape(format!(
                "tensor `{name}`: {dims:?} as {} needs {expected:?} bytes, given {}",
                dtype.name(),
                data.len()
            )));
        }
        self.tensors.push(Tensor {
            name,
            dims: dims.to_vec(),
            dtype,
            data,
        });
        Ok(self)
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        for tensor in &self.tensors {
            out.extend_from_slice(&tensor.data);
            pad(&mut out);
        }
        out
    }

    fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(b"GGUF");
        out.extend_from_slice(&3u32.to_le_bytes());
        out.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        out.extend_from_slice(&(self.keys.len() as u64).to_le_bytes());
        for (name, value) in &self.keys {
            put_string(&mut out, name);
            out.extend_from_slice(&value.type_id().to_le_bytes());
            put_value(&mut out, value);
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            put_string(&mut out, &tensor.name);
            out.extend_from_slice(&(tensor.dims.len() as u32).to_le_bytes());
            for dim in &tensor.dims {
                out.extend_from_slice(&dim.to_le_bytes());
            }
            out.extend_from_slice(&tensor.dtype.id().to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            offset += (tensor.data.len() as u64).next_multiple_of(DEFAULT_ALIGNMENT);
        }
        pad(&mut out);
        out
    }

    /// Writes the file without a second copy in memory; it appears whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        let stream = |file: &mut dyn Write| -> std::io::Result<()> {
            file.write_all(&self.header())?;
            let alignment = DEFAULT_ALIGNMENT as usize;
            for tensor in &self.tensors {
                let padding = tensor.data.len().next_multiple_of(alignment) - tensor.data.len();
                file.write_all(&tensor.data)?;
                file.write_all(&[0; DEFAULT_ALIGNMENT as usize][..padding])?;
            }
            Ok(())
        };
        write_whole(path, stream).map_err(|e| Error::io(path, e))
    }
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(DEFAULT_ALIGNMENT as usize), 0);
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(v) => out.push(*v),
        Value::I8(v) => out.push(*v as u8),
        Value::U16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::String(s) => put_string(out, s),
        Value::U64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Packed(element, raw) => {
            let size = Value::fixed_size(*element).unwrap_or(1);
            out.extend_from_slice(&element.to_le_bytes());
            out.extend_from_slice(&((raw.len() / size) as u64).to_le_bytes());
            out.extend_from_slice(raw);
        }
        Value::Array(element, items) => {
            out.extend_from_slice(&element.to_le_bytes());
            out.extend_from_slice(&(items.len() as u64).to_le_bytes());
            for item in items {
                put_value(out, item);
            }
        }
    }
}
