//! The multiply-accumulate cell: one DSP48E2.

use crate::dsl::*;
use std::sync::Arc;

/// Bits of a grid value (`docs/arithmetic.md` section 2).
pub const OPERAND_BITS: u32 = 18;
/// Bits of an exact sum.
pub const SUM_BITS: u32 = 48;
/// Cycles from operands on the ports to the sum that contains their product.
pub const CELL_LATENCY: u32 = 3;
/// The mode enters this many cycles after its operands.
pub const MODE_LAG: u32 = 1;

/// `nf_mac_cell`: 18 x 18 signed product into a 48-bit accumulator.
///
/// The three mode bits are bits of the primitive's OPMODE, so no LUT decodes them:
///
/// | mode | `mul` | `keep` | `shift` | new sum |
/// |---|---|---|---|---|
/// | first | 1 | 0 | 0 | a*b |
/// | accumulate | 1 | 1 | 0 | sum + a*b |
/// | shift | 0 | 0 | 1 | `pc_in`, the sum of the next row |
/// | hold | 0 | 1 | 0 | sum |
pub fn mac_cell() -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_mac_cell");
    m.doc(
        "Multiply-accumulate cell: 18 x 18 signed product, 48-bit sum, one DSP48E2.\n\
         mul: first product (alone) or accumulate (with keep); keep alone: hold; shift: take the\n\
         sum of the next row over the cascade. The mode enters one cycle after its operands;\n\
         latency 3 from the operands to the sum.",
    );
    m.port_group("operands, signed");
    let a = m.input("a", OPERAND_BITS);
    let b = m.input("b", OPERAND_BITS);
    m.port_group("mode, one cycle later");
    let mul = m.input("mul", 1);
    let keep = m.input("keep", 1);
    let shift = m.input("shift", 1);
    m.port_group("cascade: sum of the next row");
    let pc_in = m.input("pc_in", SUM_BITS);

    let a_q = m.pipe("a", a, 1);
    let b_q = m.pipe("b", b, 1);
    let product = m.reg_next("product_q", a_q.smul(b_q)).q();
    let mul_q = m.pipe("mul", mul, 1);
    let keep_q = m.pipe("keep", keep, 1);
    let shift_q = m.pipe("shift", shift, 1);
    let sum = m.reg("sum_q", SUM_BITS);
    let zero = m.lit(0, SUM_BITS);
    let x = m.mux(mul_q, product.sext(SUM_BITS), zero);
    let z = m.mux(shift_q, pc_in, m.mux(keep_q, sum.q(), zero));
    sum.set_next(z + x);
    m.port_group("sum, to the fabric and over the cascade");
    m.output("p", sum.q());
    m.output("pc_out", sum.q());

    m.set_synthesis_body(dsp48e2(&m, [a, b], [mul, keep, shift], pc_in));
    m.finish()
}

/// The primitive: `P <= (X + Y = M or 0) + (Z = 0, P or PCIN)`.
fn dsp48e2(m: &Module, [a, b]: [Sig<'_>; 2], mode: [Sig<'_>; 3], pc_in: Sig<'_>) -> Primitive {
    let [mul, keep, shift] = mode;
    let zero = |w| m.lit(0, w);
    // OPMODE = {W = 00, Z = {0, keep, shift}, Y = {0, mul}, X = {0, mul}}.
    let opmode = m.cat(&[zero(3), keep, shift, zero(1), mul, zero(1), mul]);
    let int = |name: &str, v| (name.to_string(), PrimitiveValue::Int(v));
    let text = |name: &str, v: &str| (name.to_string(), PrimitiveValue::Text(v.to_string()));
    let input = |name: &str, s: Sig<'_>| (name.to_string(), PrimitiveConn::Input(s.node()));
    let high = |name: &str| input(name, m.lit(1, 1));
    let low = |name: &str, w| input(name, zero(w));
    let open = |name: &str| (name.to_string(), PrimitiveConn::Open);
    let sum = |name: &str, port: &str| {
        let port = port.to_string();
        let conn = PrimitiveConn::Output {
            port,
            low: 0,
            width: SUM_BITS,
        };
        (name.to_string(), conn)
    };
    let mut ports = vec![
        ("CLK".to_string(), PrimitiveConn::Clock),
        input("A", a.sext(30)),
        input("B", b),
        input("OPMODE", opmode),
        input("PCIN", pc_in),
        sum("P", "p"),
        sum("PCOUT", "pc_out"),
    ];
    ports.extend(["CEA2", "CEB2", "CEM", "CEP", "CECTRL"].map(high));
    ports.extend(
        [
            "CEA1",
            "CEB1",
            "CEAD",
            "CEALUMODE",
            "CEC",
            "CECARRYIN",
            "CED",
            "CEINMODE",
        ]
        .map(|n| low(n, 1)),
    );
    ports.extend(
        [
            ("ALUMODE", 4),
            ("INMODE", 5),
            ("CARRYIN", 1),
            ("CARRYINSEL", 3),
            ("C", 48),
            ("D", 27),
            ("ACIN", 30),
            ("BCIN", 18),
            ("CARRYCASCIN", 1),
            ("MULTSIGNIN", 1),
        ]
        .map(|(n, w)| low(n, w)),
    );
    ports.extend(
        [
            "RSTA",
            "RSTALLCARRYIN",
            "RSTALUMODE",
            "RSTB",
            "RSTC",
            "RSTCTRL",
            "RSTD",
            "RSTINMODE",
            "RSTM",
            "RSTP",
        ]
        .map(|n| low(n, 1)),
    );
    ports.extend(
        [
            "ACOUT",
            "BCOUT",
            "CARRYCASCOUT",
            "CARRYOUT",
            "MULTSIGNOUT",
            "OVERFLOW",
            "PATTERNBDETECT",
            "PATTERNDETECT",
            "UNDERFLOW",
            "XOROUT",
        ]
        .map(open),
    );
    Primitive {
        cell: "DSP48E2".to_string(),
        instance: "u_dsp".to_string(),
        parameters: vec![
            text("AMULTSEL", "A"),
            text("BMULTSEL", "B"),
            text("A_INPUT", "DIRECT"),
            text("B_INPUT", "DIRECT"),
            text("USE_MULT", "MULTIPLY"),
            text("USE_SIMD", "ONE48"),
            int("AREG", 1),
            int("BREG", 1),
            int("ACASCREG", 1),
            int("BCASCREG", 1),
            int("MREG", 1),
            int("PREG", 1),
            int("OPMODEREG", 1),
            int("ADREG", 0),
            int("DREG", 0),
            int("CREG", 0),
            int("ALUMODEREG", 0),
            int("CARRYINREG", 0),
            int("CARRYINSELREG", 0),
            int("INMODEREG", 0),
        ],
        ports,
    }
}
