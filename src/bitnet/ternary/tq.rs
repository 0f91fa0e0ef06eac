//! `TQ1_0` and `TQ2_0`: blocks of 256 weights with a half precision scale at the end.

use half::f16;

/// Weights of one block.
pub const BLOCK: usize = 256;
/// Bytes of a `TQ1_0` block.
pub const TQ1_BYTES: usize = 54;
/// Bytes of a `TQ2_0` block.
pub const TQ2_BYTES: usize = 66;

/// Packs up to five trit codes into a byte, first code most significant, scaled to 256 so that
/// repeated multiplication by 3 shifts the codes out at the top.
pub fn pack_trits(codes: &[u8]) -> u8 {
    let mut value = 0u16;
    for position in 0..5 {
        value = 3 * value + u16::from(codes.get(position).copied().unwrap_or(0));
    }
    ((value * 256).div_ceil(243)) as u8
}

/// Trit code `position` (0 to 4) of a byte.
pub fn trit_of(byte: u8, position: u32) -> u8 {
    let shifted = byte.wrapping_mul(3u8.wrapping_pow(position));
    ((u16::from(shifted) * 3) >> 8) as u8
}

/// `(byte, position)` of element `e` of a `TQ1_0` block.
fn tq1_place(e: usize) -> (usize, u32) {
    match e {
        0..160 => (e % 32, (e / 32) as u32),
        160..240 => (32 + (e - 160) % 16, ((e - 160) / 16) as u32),
        _ => (48 + (e - 240) % 4, ((e - 240) / 4) as u32),
    }
}

/// Unpacks a `TQ1_0` block into codes; returns the scale.
pub fn unpack_tq1(block: &[u8], codes: &mut [u8]) -> f32 {
    for (e, code) in codes.iter_mut().enumerate() {
        let (byte, position) = tq1_place(e);
        *code = trit_of(block[byte], position);
    }
    f16::from_le_bytes([block[52], block[53]]).to_f32()
}

/// Packs 256 codes into a `TQ1_0` block.
pub fn pack_tq1(codes: &[u8], scale: f32, out: &mut Vec<u8>) {
    let mut groups = [[0u8; 5]; 52];
    for (e, &code) in codes.iter().enumerate() {
        let (byte, position) = tq1_place(e);
        groups[byte][position as usize] = code;
    }
    out.extend(groups.iter().map(|g| pack_trits(g)));
    out.extend_from_slice(&f16::from_f32(scale).to_le_bytes());
}

/// Unpacks a `TQ2_0` block into codes; returns the scale.
pub fn unpack_tq2(block: &[u8], codes: &mut [u8]) -> f32 {
    for (e, code) in codes.iter_mut().enumerate() {
        let (half_block, within) = (e / 128, e % 128);
        *code = block[32 * half_block + within % 32] >> (2 * (within / 32)) & 3;
    }
    f16::from_le_bytes([block[64], block[65]]).to_f32()
}

/// Packs 256 codes into a `TQ2_0` block.
pub fn pack_tq2(codes: &[u8], scale: f32, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + 64, 0);
    for (e, &code) in codes.iter().enumerate() {
        let (half_block, within) = (e / 128, e % 128);
        out[start + 32 * half_block + within % 32] |= code << (2 * (within / 32));
    }
    out.extend_from_slice(&f16::from_f32(scale).to_le_bytes());
}
