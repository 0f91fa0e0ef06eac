//! Values of the key table.

/// A value with its stored type.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    U64(u64),
    I64(i64),
    F64(f64),
    /// Homogeneous array; the element type number is kept so that empty arrays round-trip.
    Array(u32, Vec<Value>),
    /// Array of numbers or truth values as its bytes lie in the file: a [`Value`] each would be up to 32 times the file.
    Packed(u32, Vec<u8>),
}

impl Value {
    /// Type number in the file.
    pub fn type_id(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::String(_) => 8,
            Self::Array(..) | Self::Packed(..) => 9,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }

    /// Smallest number of bytes a value of type `id` takes, `None` for an unknown type.
    pub(super) fn min_size(id: u32) -> Option<usize> {
        Some(match id {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            9 => 12,
            _ => return None,
        })
    }

    /// Bytes of an element of type `id` whose size does not depend on its value.
    pub(super) fn fixed_size(id: u32) -> Option<usize> {
        Self::min_size(id).filter(|_| !matches!(id, 8 | 9))
    }

    /// The elements of an array as non-negative integers, `None` for each that is not one.
    pub fn integers(&self) -> Box<dyn Iterator<Item = Option<u64>> + '_> {
        match self {
            Self::Array(_, items) => Box::new(items.iter().map(Self::as_u64)),
            Self::Packed(id, raw) => {
                let (id, size) = (*id, Self::fixed_size(*id).unwrap_or(1));
                Box::new(raw.chunks_exact(size).map(move |b| integer(id, b)))
            }
            _ => Box::new(std::iter::empty()),
        }
    }

    /// The value as a non-negative integer, from any integer type.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::U64(v) => Some(v),
            Self::I8(v) => v.try_into().ok(),
            Self::I16(v) => v.try_into().ok(),
            Self::I32(v) => v.try_into().ok(),
            Self::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// The value as a single precision number.
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Self::F32(v) => Some(v),
            Self::F64(v) => Some(v as f32),
            _ => None,
        }
    }

    /// The value as text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(s) => Some(s),
            _ => None,
        }
    }

    /// The value as a truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(b) => Some(b),
            _ => None,
        }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(_, items) => Some(items),
            _ => None,
        }
    }

    /// An array of strings.
    pub fn strings<S: Into<String>>(items: impl IntoIterator<Item = S>) -> Self {
        Self::Array(
            8,
            items.into_iter().map(|s| Self::String(s.into())).collect(),
        )
    }

    /// One line for a person: scalars as they are, arrays by their length.
    pub fn summary(&self) -> String {
        match self {
            Self::U8(v) => v.to_string(),
            Self::I8(v) => v.to_string(),
            Self::U16(v) => v.to_string(),
            Self::I16(v) => v.to_string(),
            Self::U32(v) => v.to_string(),
            Self::I32(v) => v.to_string(),
            Self::F32(v) => v.to_string(),
            Self::Bool(v) => v.to_string(),
            Self::U64(v) => v.to_string(),
            Self::I64(v) => v.to_string(),
            Self::F64(v) => v.to_string(),
            Self::String(s) => {
                let short: String = s.chars().take(60).collect();
                format!("{short:?}")
            }
            Self::Array(_, items) => format!("[{} values]", items.len()),
            Self::Packed(id, raw) => {
                format!(
                    "[{} values]",
                    raw.len() / Self::fixed_size(*id).unwrap_or(1)
                )
            }
        }
    }
}

/// Little-endian integer of element type `id`, when it is one and not negative.
fn integer(id: u32, bytes: &[u8]) -> Option<u64> {
    let signed = matches!(id, 1 | 3 | 5 | 11);
    let negative = signed && bytes.last().is_some_and(|b| b & 0x80 != 0);
    if negative || !matches!(id, 0..=5 | 10 | 11) {
        return None;
    }
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}
