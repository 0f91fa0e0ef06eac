//! Reader. Every count is checked against the bytes that are left before anything is allocated.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use super::{Bytes, DEFAULT_ALIGNMENT, TensorType, Value};
use crate::bitnet::{Error, Result};

/// Deepest nesting of array values that is followed.
const MAX_NESTING: u32 = 4;

/// One entry of the tensor table.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    /// Name, e.g. `blk.0.attn_q.weight`.
    pub name: String,
    /// Element counts, the contiguous dimension first (1 to 4 of them).
    pub dims: Vec<u64>,
    /// Storage type.
    pub dtype: TensorType,
    /// Start of the data, relative to the start of the tensor data.
    pub offset: u64,
    /// Bytes of the data.
    pub size: u64,
}

impl TensorInfo {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// `(rows, columns)`: columns is the contiguous dimension, rows all others together.
    pub fn matrix(&self) -> (u64, u64) {
        (self.dims[1..].iter().product(), self.dims[0])
    }
}

/// A parsed file: keys, tensor table, and the bytes they came from.
#[derive(Debug, Clone)]
pub struct GgufFile {
    /// Keys in file order.
    pub keys: Vec<(String, Value)>,
    /// Tensors in file order.
    pub tensors: Vec<TensorInfo>,
    /// Alignment of the tensor data in bytes.
    pub alignment: u64,
    /// Byte at which the tensor data starts.
    pub data_start: u64,
    /// Position of a tensor in `tensors` by its name.
    index: HashMap<String, usize>,
    bytes: Bytes,
}

impl GgufFile {
    /// Maps and parses a file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::parse(Bytes::map(path)?).map_err(|error| error.in_file(path))
    }

    /// Parses bytes.
    pub fn parse(bytes: Bytes) -> Result<Self> {
        let mut cursor = Cursor {
            bytes: &bytes,
            position: 0,
        };
        check_magic(&mut cursor)?;
        let tensor_count = cursor.u64("tensor count")?;
        let key_count = cursor.u64("key count")?;
        let key_count = cursor.count(key_count, 8 + 4 + 1, "key")?;

        let mut keys = Vec::with_capacity(key_count);
        let mut seen = BTreeSet::new();
        for index in 0..key_count {
            let at = cursor.position;
            let name = cursor.string(&format!("name of key {index}"))?;
            if !seen.insert(name.clone()) {
                return Err(Error::Format(format!(
                    "key `{name}` at byte {at} appears twice"
                )));
            }
            let type_id = cursor.u32("value type")?;
            let value = cursor.value(type_id, &name, 0)?;
            keys.push((name, value));
        }
        let alignment = match keys.iter().find(|(k, _)| k == "general.alignment") {
            None => DEFAULT_ALIGNMENT,
            Some((_, value)) => value
                .as_u64()
                .filter(|a| a.is_power_of_two() && *a <= 1 << 20)
                .ok_or_else(|| {
                    Error::Format(format!(
                        "general.alignment is {}; accepted: a power of two up to 1048576",
                        value.summary()
                    ))
                })?,
        };

        let tensor_count = cursor.count(tensor_count, 8 + 4 + 8 + 4 + 8, "tensor")?;
        let mut tensors = Vec::with_capacity(tensor_count);
        let mut index = HashMap::with_capacity(tensor_count);
        for number in 0..tensor_count {
            let tensor = read_tensor_info(&mut cursor, number, alignment)?;
            if index.insert(tensor.name.clone(), number).is_some() {
                return Err(Error::Format(format!(
                    "tensor `{}` appears twice",
                    tensor.name
                )));
            }
            tensors.push(tensor);
        }
        let data_start = (cursor.position as u64).next_multiple_of(alignment);
        check_extents(&tensors, data_start, bytes.len() as u64)?;
        Ok(Self {
            keys,
            tensors,
            alignment,
            data_start,
            index,
            bytes,
        })
    }

    /// Value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.keys.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// Table entry of a tensor.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&at| &self.tensors[at])
    }

    /// Data of a tensor of this file.
    pub fn data(&self, tensor: &TensorInfo) -> Result<Bytes> {
        let outside = || {
            Error::Format(format!(
                "data of tensor `{}` lies outside the file",
                tensor.name
            ))
        };
        let start = self
            .data_start
            .checked_add(tensor.offset)
            .ok_or_else(outside)?;
        let end = start.checked_add(tensor.size).ok_or_else(outside)?;
        let range = usize::try_from(start).map_err(|_| outside())?
            ..usize::try_from(end).map_err(|_| outside())?;
        self.bytes.slice(range).ok_or_else(outside)
    }

    /// Length of the file in bytes.
    pub fn file_size(&self) -> u64 {
        self.bytes.len() as u64
    }
}

fn check_magic(cursor: &mut Cursor) -> Result<()> {
    let magic = cursor.take(4, "magic")?;
    if magic != b"GGUF" {
        return Err(Error::Format(format!(
            "the file starts with {magic:02x?}, expected \"GGUF\" (47 47 55 46)"
        )));
    }
    match cursor.u32("version")? {
        3 => Ok(()),
        v if v.swap_bytes() == 3 => Err(Error::Unsupported(
            "big-endian GGUF (the version reads 3 with swapped bytes); accepted: little endian"
                .into(),
        )),
        v => Err(Error::Unsupported(format!(
            "GGUF version {v}; accepted: version 3"
        ))),
    }
}

fn read_tensor_info(cursor: &mut Cursor, index: usize, alignment: u64) -> Result<TensorInfo> {
    let name = cursor.string(&format!("name of tensor {index}"))?;
    let rank = cursor.u32("dimension count")?;
    if !(1..=4).contains(&rank) {
        return Err(Error::Format(format!(
            "tensor `{name}` has {rank} dimensions; accepted: 1 to 4"
        )));
    }
    let mut dims = Vec::with_capacity(rank as usize);
    let mut elements: u64 = 1;
    for _ in 0..rank {
        let dim = cursor.u64("dimension")?;
        elements = elements
            .checked_mul(dim)
            .filter(|&n| n > 0 && n < 1 << 60)
            .ok_or_else(|| {
                Error::Format(format!(
                    "tensor `{name}`: dimensions {dims:?} x {dim} are empty or overflow"
                ))
            })?;
        dims.push(dim);
    }
    let dtype = TensorType::from_id(cursor.u32("tensor type")?, &name)?;
    let offset = cursor.u64("tensor offset")?;
    if dims[0] % dtype.block() != 0 {
        return Err(Error::Shape(format!(
            "tensor `{name}`: row length {} is not a multiple of {}, the block of {}",
            dims[0],
            dtype.block(),
            dtype.name()
        )));
    }
    if offset % alignment != 0 {
        return Err(Error::Format(format!(
            "tensor `{name}`: offset {offset} is not a multiple of the alignment {alignment}"
        )));
    }
    let size = dtype
        .byte_size(elements)
        .ok_or_else(|| Error::Format(format!("tensor `{name}`: {elements} elements overflow")))?;
    Ok(TensorInfo {
        name,
        dims,
        dtype,
        offset,
        size,
    })
}

/// Every tensor inside the file, no two sharing a byte.
fn check_extents(tensors: &[TensorInfo], data_start: u64, file_size: u64) -> Result<()> {
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|t| t.offset);
    let mut previous: Option<(&TensorInfo, u64)> = None;
    for tensor in order {
        let end = tensor.offset.checked_add(tensor.size);
        let end_in_file = end.and_then(|e| e.checked_add(data_start));
        let (Some(end), Some(end_in_file)) = (end, end_in_file) else {
            return Err(Error::Format(format!(
                "tensor `{}`: offset {} plus {} bytes overflows",
                tensor.name, tensor.offset, tensor.size
            )));
        };
        if end_in_file > file_size {
            return Err(Error::Format(format!(
                "tensor `{}` ({}) ends at byte {end_in_file}, the file has {file_size}: \
                 truncated or wrong offset",
                tensor.name,
                tensor.dtype.name()
            )));
        }
        if let Some((before, before_end)) = previous
            && tensor.offset < before_end
        {
            return Err(Error::Format(format!(
                "tensors `{}` and `{}` overlap at data byte {}",
                before.name, tensor.name, tensor.offset
            )));
        }
        previous = Some((tensor, end));
    }
    Ok(())
}

fn truth(key: &str, found: u8) -> Error {
    Error::Format(format!(
        "key `{key}`: truth value {found}; accepted: 0 or 1"
    ))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    fn take(&mut self, length: usize, what: &str) -> Result<&'a [u8]> {
        if length > self.left() {
            return Err(Error::Format(format!(
                "{what} needs {length} bytes at byte {}, the file has {} more",
                self.position,
                self.left()
            )));
        }
        let slice = &self.bytes[self.position..self.position + length];
        self.position += length;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let slice = self.take(N, what)?;
        let mut out = [0; N];
        out.copy_from_slice(slice);
        Ok(out)
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// `count` items of at least `size` bytes each must fit in what is left.
    fn count(&self, count: u64, size: usize, what: &str) -> Result<usize> {
        let most = self.left() / size;
        match usize::try_from(count) {
            Ok(n) if n <= most => Ok(n),
            _ => Err(Error::Format(format!(
                "{what} count {count} at byte {}: the {} bytes left hold at most {most}",
                self.position,
                self.left()
            ))),
        }
    }

    fn string(&mut self, what: &str) -> Result<String> {
        let at = self.position;
        let length = self.u64(what)?;
        let length = self.count(length, 1, what)?;
        let raw = self.take(length, what)?;
        String::from_utf8(raw.to_vec())
            .map_err(|_| Error::Format(format!("{what} at byte {at} is not valid UTF-8")))
    }

    fn value(&mut self, type_id: u32, key: &str, depth: u32) -> Result<Value> {
        let what = "value";
        Ok(match type_id {
            0 => Value::U8(self.array::<1>(what)?[0]),
            1 => Value::I8(self.array::<1>(what)?[0] as i8),
            2 => Value::U16(u16::from_le_bytes(self.array(what)?)),
            3 => Value::I16(i16::from_le_bytes(self.array(what)?)),
            4 => Value::U32(self.u32(what)?),
            5 => Value::I32(self.u32(what)? as i32),
            6 => Value::F32(f32::from_bits(self.u32(what)?)),
            7 => match self.array::<1>(what)?[0] {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                other => return Err(truth(key, other)),
            },
            8 => Value::String(self.string(key)?),
            9 if depth < MAX_NESTING => {
                let element = self.u32("array element type")?;
                let length = self.u64("array length")?;
                let size = Value::min_size(element).ok_or_else(|| {
                    Error::Format(format!("key `{key}`: unknown element type {element}"))
                })?;
                let length = self.count(length, size, "array element")?;
                if Value::fixed_size(element).is_some() {
                    let raw = self.take(length * size, "array elements")?;
                    if let Some(other) = raw.iter().find(|b| element == 7 && **b > 1) {
                        return Err(truth(key, *other));
                    }
                    return Ok(Value::Packed(element, raw.to_vec()));
                }
                let mut items = Vec::with_capacity(length);
                for _ in 0..length {
                    items.push(self.value(element, key, depth + 1)?);
                }
                Value::Array(element, items)
            }
            9 => {
                return Err(Error::Format(format!(
                    "key `{key}`: arrays nested deeper than {MAX_NESTING}"
                )));
            }
            10 => Value::U64(self.u64(what)?),
            11 => Value::I64(self.u64(what)? as i64),
            12 => Value::F64(f64::from_bits(self.u64(what)?)),
            other => {
                return Err(Error::Format(format!(
                    "key `{key}` has value type {other}; accepted: 0 to 12"
                )));
            }
        })
    }
}
