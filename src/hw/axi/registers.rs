//! The hardware's view of a register map, and its checks.

use std::collections::BTreeMap;

/// Who may change a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Driven by the hardware; a write is answered with SLVERR.
    ReadOnly,
    /// Written and read by software.
    ReadWrite,
    /// Set by the hardware, cleared by writing ones.
    WriteOneToClear,
    /// Ones written here reach the hardware for one cycle; reads as zero.
    WritePulse,
}

/// One 32-bit register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Lower-case identifier, part of the port names.
    pub name: String,
    /// Byte offset, a multiple of 4.
    pub offset: u32,
    pub access: Access,
    /// Bits in use, 1..=32, from bit 0.
    pub width: u32,
    /// Value after reset (`ReadWrite` and `WriteOneToClear`).
    pub reset: u32,
    /// Comment above the register's ports.
    pub doc: String,
}

impl Register {
    /// A register with reset value 0.
    pub fn new(name: &str, offset: u32, access: Access, width: u32, doc: &str) -> Self {
        Register {
            name: name.to_string(),
            offset,
            access,
            width,
            reset: 0,
            doc: doc.to_string(),
        }
    }

    /// The same with another reset value.
    pub fn with_reset(mut self, reset: u32) -> Self {
        self.reset = reset;
        self
    }
}

/// A checked register map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterMap {
    name: String,
    registers: Vec<Register>,
    address_width: u32,
}

/// What is wrong with a register description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterMapError {
    #[error("a register map needs at least one register")]
    Empty,
    #[error("register `{0}` at offset {1:#x}: offsets are multiples of 4")]
    Unaligned(String, u32),
    #[error("registers `{0}` and `{1}` share offset {2:#x}")]
    SharedOffset(String, String, u32),
    #[error("two registers are called `{0}`")]
    SharedName(String),
    #[error("register `{0}` has {1} bits; 1 to 32 are possible")]
    Width(String, u32),
    #[error("register `{0}`: reset value {1:#x} does not fit {2} bits")]
    Reset(String, u32, u32),
    #[error("offset {1:#x} of register `{0}` does not fit {2} address bits")]
    OutOfRange(String, u32, u32),
}

impl RegisterMap {
    /// Checks a description. `name` is the module name,
    /// `address_width` the width of AWADDR and ARADDR in bits, at most 32.
    pub fn new(
        name: &str,
        address_width: u32,
        mut registers: Vec<Register>,
    ) -> Result<Self, RegisterMapError> {
        registers.sort_by_key(|r| r.offset);
        let mut offsets = BTreeMap::new();
        let mut names = BTreeMap::new();
        for r in &registers {
            if !r.offset.is_multiple_of(4) {
                return Err(RegisterMapError::Unaligned(r.name.clone(), r.offset));
            }
            if let Some(other) = offsets.insert(r.offset, r.name.clone()) {
                return Err(RegisterMapError::SharedOffset(
                    other,
                    r.name.clone(),
                    r.offset,
                ));
            }
            if names.insert(r.name.clone(), ()).is_some() {
                return Err(RegisterMapError::SharedName(r.name.clone()));
            }
            if !(1..=32).contains(&r.width) {
                return Err(RegisterMapError::Width(r.name.clone(), r.width));
            }
            if r.width < 32 && r.reset >> r.width != 0 {
                return Err(RegisterMapError::Reset(r.name.clone(), r.reset, r.width));
            }
            if u64::from(r.offset) >> address_width != 0 {
                return Err(RegisterMapError::OutOfRange(
                    r.name.clone(),
                    r.offset,
                    address_width,
                ));
            }
        }
        if registers.is_empty() {
            return Err(RegisterMapError::Empty);
        }
        Ok(RegisterMap {
            name: name.to_string(),
            registers,
            address_width,
        })
    }

    /// Module name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Registers by offset.
    pub fn registers(&self) -> &[Register] {
        &self.registers
    }

    /// Bits of AWADDR and ARADDR.
    pub fn address_width(&self) -> u32 {
        self.address_width
    }
}
