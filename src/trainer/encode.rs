//! Instruction words: one list of fields per engine, used to write the ROM and to decode it.

use super::isa::*;

/// A field of an instruction word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    pub low: u32,
    pub width: u32,
}

/// Word layout of one engine's instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub fields: Vec<Field>,
    pub width: u32,
}

impl Layout {
    /// The field called `name`; a missing name is a programming error of the netlist.
    pub fn field(&self, name: &str) -> &Field {
        self.fields
            .iter()
            .find(|f| f.name == name)
            .unwrap_or_else(|| panic!("instruction word has no field {name}"))
    }
}

/// Bits that hold the values 0..=max, at least 1.
pub fn bits_for(max: usize) -> u32 {
    (usize::BITS - max.leading_zeros()).max(1)
}

type Values = Vec<(&'static str, u128)>;

/// A program as ROM words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    pub layout: Layout,
    /// Bits of each word, least significant limb first.
    pub words: Vec<Vec<u64>>,
}

impl Encoded {
    /// Bits of a word that differ between any two words of the program.
    pub fn varying_bits(&self) -> usize {
        let Some(first) = self.words.first() else {
            return 0;
        };
        let mut varying = vec![0; first.len()];
        for word in &self.words {
            for (v, (a, b)) in varying.iter_mut().zip(word.iter().zip(first)) {
                *v |= a ^ b;
            }
        }
        varying.iter().map(|v: &u64| v.count_ones() as usize).sum()
    }
}

fn encode(programs: &[Values]) -> Encoded {
    // Each field is as wide as its largest value in this program.
    let Some(first) = programs.first() else {
        return Encoded {
            layout: Layout {
                fields: vec![],
                width: 0,
            },
            words: vec![],
        };
    };
    let mut fields = Vec::new();
    let mut low = 0;
    for (i, (name, _)) in first.iter().enumerate() {
        let max = programs.iter().map(|v| v[i].1).max().unwrap_or(0);
        let width = (128 - max.leading_zeros()).max(1);
        fields.push(Field { name, low, width });
        low += width;
    }
    let words = programs
        .iter()
        .map(|values| {
            let mut limbs = vec![0u64; (low as usize).div_ceil(64)];
            for (f, (_, v)) in fields.iter().zip(values) {
                for bit in 0..f.width {
                    if v >> bit & 1 == 1 {
                        let at = (f.low + bit) as usize;
                        limbs[at / 64] |= 1 << (at % 64);
                    }
                }
            }
            limbs
        })
        .collect();
    Encoded {
        layout: Layout { fields, width: low },
        words,
    }
}

/// Number of an exponent register on the mat engine's read port: 0 is the constant 127, then
/// the mat, vec and weight registers.
pub fn exp_number(shape: &Shape, id: ExpId) -> usize {
    match id {
        ExpId::One => 0,
        ExpId::Mat(n) => 1 + n,
        ExpId::Vec(n) => 1 + shape.mat_exps + n,
        ExpId::Weight(n) => 1 + shape.mat_exps + shape.vec_exps + n,
    }
}

fn head(phase: Phase, wait: [usize; 3]) -> Values {
    vec![
        ("phase", phase as u128),
        ("wait_mat", wait[0] as u128),
        ("wait_vec", wait[1] as u128),
        ("wait_adam", wait[2] as u128),
    ]
}

fn opt(v: Option<usize>) -> (u128, u128) {
    (v.is_some() as u128, v.unwrap_or(0) as u128)
}

/// Encodes the mat program. Groups: `*_group`; `row_kind` 0 weights 1 act 2 ones;
/// `col_kind` 0 act 1 one-hot; `add_kind` 0 none 1 act 2 position; `dst_grad` with
/// `dst_addr` already `place * B`; `tail` slots follow the k operand steps.
pub fn encode_mat(shape: &Shape, program: &[MatInstr]) -> Encoded {
    let rows: Vec<Values> = program
        .iter()
        .enumerate()
        .map(|(n, i)| {
            let tail = i.tail(shape.b, program.get(n + 1));
            let (row_kind, row_group) = match i.row_source {
                RowSource::Weights => (0, 0),
                RowSource::Act(g) => (1, g),
                RowSource::Ones => (2, 0),
            };
            let (col_kind, col_group) = match i.col_source {
                ColSource::Act(g) => (0, g),
                ColSource::OneHot => (1, 0),
            };
            let (add_kind, add_group) = match i.add_source {
                AddSource::None => (0, 0),
                AddSource::Act(g) => (1, g),
                AddSource::Position => (2, 0),
            };
            let (dst_grad, dst_group, dst_addr) = match i.dest {
                MatDest::Act(g) => (0, g, i.dst.addr),
                MatDest::Grad(h) => (1, 0, h * shape.b),
            };
            let (scale_en, scale) = opt(i.scale);
            let (exp_en, exp) = opt(i.dst_exp);
            let mut v = head(i.phase, i.wait);
            v.extend([
                ("row_kind", row_kind),
                ("row_group", row_group as u128),
                ("row_h", i.row_mode as u128),
                ("row_addr", i.row.addr as u128),
                ("row_rot", i.row.rot as u128),
                ("row_pitch", i.row.pitch as u128),
                ("row_exp", exp_number(shape, i.row_exp) as u128),
                ("col_kind", col_kind),
                ("col_group", col_group as u128),
                ("col_h", i.col_mode as u128),
                ("col_addr", i.col.addr as u128),
                ("col_rot", i.col.rot as u128),
                ("col_pitch", i.col.pitch as u128),
                ("col_exp", exp_number(shape, i.col_exp) as u128),
                ("k", i.k as u128),
                ("tail", tail as u128),
                ("nr", i.nr as u128),
                ("nc", i.nc as u128),
                ("scale_en", scale_en),
                ("scale", scale),
                ("add_kind", add_kind),
                ("add_group", add_group as u128),
                ("add_addr", i.add.addr as u128),
                ("add_rot", i.add.rot as u128),
                ("dst_grad", dst_grad),
                ("dst_group", dst_group as u128),
                ("dst_addr", dst_addr as u128),
                ("dst_rot", i.dst.rot as u128),
                ("exp_en", exp_en),
                ("exp", exp),
                ("exp_first", i.dst_first as u128),
            ]);
            v
        })
        .collect();
    encode(&rows)
}

/// Encodes the vec program.
pub fn encode_vec(program: &[VecInstr]) -> Encoded {
    let rows: Vec<Values> = program
        .iter()
        .map(|i| {
            let y = i.y.unwrap_or_default();
            let z = i.z;
            let zs = z.map(|z| z.stream).unwrap_or_default();
            let (exp_en, exp) = opt(z.and_then(|z| z.exp));
            let mut v = head(i.phase, i.wait);
            v.extend([
                ("n", i.n as u128),
                ("nc", i.nc as u128),
                ("x_group", i.x.0 as u128),
                ("x_addr", i.x.1.addr as u128),
                ("x_rot", i.x.1.rot as u128),
                ("y_en", i.y.is_some() as u128),
                ("y_group", y.0 as u128),
                ("y_addr", y.1.addr as u128),
                ("y_rot", y.1.rot as u128),
                ("z_en", z.is_some() as u128),
                ("z_group", z.map_or(0, |z| z.group) as u128),
                ("z_addr", zs.addr as u128),
                ("z_rot", zs.rot as u128),
                ("exp_en", exp_en),
                ("exp", exp),
                ("exp_first", z.is_some_and(|z| z.first) as u128),
                ("sub_s0", i.sub_s0 as u128),
                ("mul1", i.mul1 as u128),
                ("table", i.table as u128),
                ("mul2", i.mul2 as u128),
                ("add", i.add as u128),
                ("reduce", i.reduce as u128),
                ("post", i.post as u128),
                ("s0", i.s0 as u128),
                ("s1", i.s1 as u128),
                ("s2", i.s2 as u128),
                ("post_row", i.post_row as u128),
                ("c1", i.c1 as u128),
                ("c2", i.c2 as u128),
                ("c3", i.c3 as u128),
                ("gamma", i.gamma as u128),
                ("beta", i.beta as u128),
                ("mask", i.mask as u128),
                ("tile", i.tile as u128),
                ("ce_max", i.ce_max as u128),
                ("ce_exp", i.ce_exp as u128),
            ]);
            v
        })
        .collect();
    encode(&rows)
}

/// Encodes the adam program. Fields of moment blocks exist only where a tile has them: `block_waddr` is the weight
/// address of the block's first column.
pub fn encode_adam(program: &[AdamInstr]) -> Encoded {
    let blocks = program.iter().any(|i| i.block.is_some());
    let rows: Vec<Values> = program
        .iter()
        .map(|i| {
            let mut v = head(i.phase, i.wait);
            v.extend([
                ("layernorm", (i.kind == AdamKind::LayerNorm) as u128),
                ("place", i.place as u128),
                ("waddr", i.waddr as u128),
                ("tensor", i.tensor as u128),
                ("element0", i.element0 as u128),
                ("row_len", i.row_len as u128),
                ("nr", i.nr as u128),
                ("nc", i.nc as u128),
                ("first", i.first as u128),
            ]);
            if blocks {
                let (block_first, block_last) = i.block_ends();
                let of = |field: fn(BlockPart) -> usize| i.block.map_or(0, field) as u128;
                v.extend([
                    ("block_first", block_first as u128),
                    ("block_last", block_last as u128),
                    ("scale", of(|p| p.scale)),
                    ("row0", of(|p| p.row0)),
                    ("columns", of(|p| p.columns)),
                    ("block_row0", of(|p| p.block_row0)),
                    ("turn", of(|p| p.turn)),
                    ("block_waddr", i.waddr as u128 - of(|p| p.offset)),
                ]);
            }
            v
        })
        .collect();
    encode(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adam(waddr: usize, place: usize) -> AdamInstr {
        AdamInstr {
            phase: Phase::Backward,
            wait: [5, 0, 1],
            kind: AdamKind::Matrix,
            place,
            waddr,
            tensor: 3,
            element0: 100,
            row_len: 88,
            nr: 44,
            nc: 44,
            first: false,
            block: None,
        }
    }

    #[test]
    fn every_field_reads_back() {
        let encoded = encode_adam(&[adam(1000, 0), adam(70_000, 1)]);
        let read = |word: &[u64], name: &str| {
            let f = encoded.layout.field(name);
            (0..f.width).fold(0u64, |acc, bit| {
                let at = (f.low + bit) as usize;
                acc | (word[at / 64] >> (at % 64) & 1) << bit
            })
        };
        for (word, (waddr, place)) in encoded.words.iter().zip([(1000, 0), (70_000, 1)]) {
            assert_eq!(read(word, "waddr"), waddr);
            assert_eq!(read(word, "place"), place);
            assert_eq!(read(word, "row_len"), 88);
            assert_eq!(read(word, "wait_mat"), 5);
            assert_eq!(read(word, "phase"), 2);
        }
        assert_eq!(encoded.layout.field("waddr").width, bits_for(70_000));
    }
}
