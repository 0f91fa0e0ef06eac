//! What a host puts into memory and registers to run a launch.

use super::Result;
use super::launch::Launch;
use super::packet;
use super::registers::GROUPS;

/// Addresses within an image are multiples of this.
pub const ALIGNMENT: u64 = 256;

/// Bytes of memory, register writes in order, and where the results will be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Image {
    /// Address and bytes of every program segment.
    pub segments: Vec<(u64, Vec<u8>)>,
    /// Register name and value, the start last.
    pub registers: Vec<(&'static str, u32)>,
    /// Per group: address and 32-bit words of its results.
    pub outputs: Vec<Option<(u64, u32)>>,
    /// First address behind the image.
    pub end: u64,
}

impl Image {
    /// Places the programs and results of `launch` from `base` on. Weight segments lie where
    /// the launch says.
    pub fn new(launch: &Launch, base: u64) -> Result<Self> {
        let mut image = Self {
            end: base,
            ..Self::default()
        };
        let (mut started, mut linked) = (0u32, 0u32);
        for (index, (part, names)) in launch.groups.iter().zip(&GROUPS).enumerate() {
            let Some(part) = part else {
                image.outputs.push(None);
                continue;
            };
            started |= 1 << index;
            linked |= u32::from(part.linked) << index;
            let program: Vec<u8> = packet::encode(&part.packets)?
                .iter()
                .flat_map(|beat| beat.to_le_bytes())
                .collect();
            let at = image.end;
            let out = (at + program.len() as u64).next_multiple_of(ALIGNMENT);
            let bytes = u64::from(part.results) * 4 + 16;
            image.end = (out + bytes).next_multiple_of(ALIGNMENT);
            image.address(names.program_addr, at);
            image.set(names.program_beats, (program.len() / 16) as u32);
            image.address(names.out_addr, out);
            image.set(names.weight_beats, part.weight_beats);
            if part.weight_beats > 0 {
                image.address(names.weight_addr, part.weight_addr);
            }
            image.segments.push((at, program));
            image.outputs.push(Some((out, part.results)));
        }
        image.set("LINKS", linked);
        image.set("CONTROL", started);
        Ok(image)
    }

    fn set(&mut self, name: &'static str, value: u32) {
        self.registers.push((name, value));
    }

    fn address(&mut self, [low, high]: [&'static str; 2], value: u64) {
        self.set(low, value as u32);
        self.set(high, (value >> 32) as u32);
    }
}
