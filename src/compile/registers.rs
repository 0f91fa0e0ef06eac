//! From the register map of software to the one of hardware.

use crate::emit::core::AXIL_ADDRESS_WIDTH;
use crate::emit::regmap;
use crate::hw::axi::registers::{Access, Register, RegisterMap, RegisterMapError};

/// The hardware's view of a register map, and the values of its constants.
pub type HardwareRegisters = (RegisterMap, Vec<(String, u32)>);

/// Names become lower case; a constant becomes a read-only register with its value beside it.
/// `module` is the name of the register file's module.
pub fn hardware_registers(
    map: &regmap::RegisterMap,
    module: &str,
) -> Result<HardwareRegisters, RegisterMapError> {
    let mut constants = vec![];
    let list = map
        .registers
        .iter()
        .map(|r| {
            let name = r.name.to_lowercase();
            let width = r.fields.iter().map(|f| f.lsb + f.width).max().unwrap_or(32);
            let (access, width) = match r.access {
                regmap::Access::Constant => {
                    constants.push((name.clone(), r.reset));
                    (Access::ReadOnly, 32)
                }
                regmap::Access::ReadOnly => (Access::ReadOnly, width),
                regmap::Access::ReadWrite => (Access::ReadWrite, width),
                regmap::Access::WriteOneToClear => (Access::WriteOneToClear, width),
                regmap::Access::WriteOneToStart => (Access::WritePulse, width),
            };
            let reset = match access {
                Access::ReadOnly => 0,
                _ => r.reset,
            };
            Register::new(&name, r.offset, access, width, r.doc).with_reset(reset)
        })
        .collect();
    let file = RegisterMap::new(module, AXIL_ADDRESS_WIDTH, list)?;
    Ok((file, constants))
}
