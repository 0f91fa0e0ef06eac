//! The finished netlist: plain data, shared by the printer, the checker and the interpreter.

use super::bits::Bits;
use std::sync::Arc;

/// Index of a node in its module.
pub type NodeId = u32;

/// Operations with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// Bitwise complement.
    Not,
    /// Two's complement negation.
    Neg,
    /// OR of all bits.
    RedOr,
    /// AND of all bits.
    RedAnd,
    /// XOR of all bits.
    RedXor,
}

/// Operations with two operands. All but the products and the shifts demand equal widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// Sum modulo 2^w.
    Add,
    /// Difference modulo 2^w.
    Sub,
    /// Bitwise AND.
    And,
    /// Bitwise OR.
    Or,
    /// Bitwise exclusive OR.
    Xor,
    /// Unsigned product of wa + wb bits.
    Mul,
    /// Two's complement product of wa + wb bits.
    SMul,
    /// Equality.
    Eq,
    /// Inequality.
    Ne,
    /// Unsigned less than.
    Ult,
    /// Unsigned less or equal.
    Ule,
    /// Two's complement less than.
    Slt,
    /// Two's complement less or equal.
    Sle,
    /// Shift left by a variable amount.
    Shl,
    /// Shift right, zeros enter.
    Shr,
    /// Shift right, copies of the sign bit enter.
    Sra,
}

/// What a node computes from earlier nodes, ports and state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Input port by index.
    Input(u32),
    /// Literal.
    Const(Bits),
    /// Named constant by index into `ModuleDef::localparams`.
    Param(u32),
    /// A second name for a node.
    Buf(NodeId),
    /// One operand.
    Unary(Unary, NodeId),
    /// Two operands.
    Binary(Binary, NodeId, NodeId),
    /// Bits from `lo` upwards.
    Slice(NodeId, u32),
    /// Concatenation, most significant part first.
    Cat(Box<[NodeId]>),
    /// Copies side by side.
    Repeat(NodeId, u32),
    /// Sign extension to the node's width.
    Sext(NodeId),
    /// `select ? when1 : when0`.
    Mux(NodeId, NodeId, NodeId),
    /// Choice by index; an index past the end takes the last choice.
    Select(NodeId, Box<[NodeId]>),
    /// Choice by value, with a default.
    Case(NodeId, Box<[(Bits, NodeId)]>, NodeId),
    /// Output of a register.
    RegQ(u32),
    /// Data of a memory's read port: (memory, port).
    MemQ(u32, u32),
    /// Output port of an instance: (instance, port).
    InstOut(u32, u32),
}

/// Calls `f` for each operand of `op`, in order.
pub fn for_each_operand(op: &Op, mut f: impl FnMut(NodeId)) {
    match op {
        Op::Input(_)
        | Op::Const(_)
        | Op::Param(_)
        | Op::RegQ(_)
        | Op::MemQ(..)
        | Op::InstOut(..) => {}
        Op::Buf(a) | Op::Unary(_, a) | Op::Slice(a, _) | Op::Repeat(a, _) | Op::Sext(a) => f(*a),
        Op::Binary(_, a, b) => {
            f(*a);
            f(*b);
        }
        Op::Cat(parts) => parts.iter().for_each(|&p| f(p)),
        Op::Mux(s, a, b) => {
            f(*s);
            f(*a);
            f(*b);
        }
        Op::Select(i, choices) => {
            f(*i);
            choices.iter().for_each(|&c| f(c));
        }
        Op::Case(s, arms, default) => {
            f(*s);
            arms.iter().for_each(|&(_, a)| f(a));
            f(*default);
        }
    }
}

/// One node of the netlist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it computes.
    pub op: Op,
    /// Width in bits.
    pub width: u32,
}

/// A port of a module, without the implicit `clk` and `rst`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name in the Verilog text.
    pub name: String,
    /// Width in bits.
    pub width: u32,
    /// Inputs: the port's node. Outputs: the node that drives it.
    pub node: NodeId,
    /// Comment printed above the port (starts a group).
    pub group: Option<String>,
}

/// A register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegDef {
    /// Name in the Verilog text.
    pub name: String,
    /// Width in bits.
    pub width: u32,
    /// Node of its output.
    pub q: NodeId,
    /// Next value.
    pub next: NodeId,
    /// One bit; the register keeps its value while it is 0.
    pub enable: Option<NodeId>,
    /// Value taken while `rst` is 1 (synchronous, wins over the enable).
    pub reset: Option<Bits>,
    /// Value at power-on.
    pub init: Option<Bits>,
    /// Section of the text in which its assignment is printed.
    pub section: u32,
}

/// Which physical memory a memory asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MemStyle {
    /// The tool chooses.
    #[default]
    Auto,
    /// Block RAM.
    Block,
    /// LUT RAM.
    Distributed,
    /// UltraRAM (no initial contents).
    Ultra,
}

/// What a read returns when the same word is written in the same cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Collision {
    /// The word as it was before the write.
    #[default]
    OldData,
    /// Nothing defined: a simulation reports it, synthesis may choose the cheapest shape.
    Undefined,
}

/// Initial contents of a memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemInit {
    /// Name of the `$readmemh` file, a plain file name such as `exp2_table.mem`.
    pub file: String,
    /// One value per word; missing words at the end are zero.
    pub words: Arc<Vec<Bits>>,
}

impl MemInit {
    /// Contents of `width`-bit words given as integers.
    pub fn new(file: &str, width: u32, words: impl IntoIterator<Item = u128>) -> Self {
        MemInit {
            file: file.to_string(),
            words: Arc::new(words.into_iter().map(|w| Bits::new(w, width)).collect()),
        }
    }

    /// The text `$readmemh` reads, one word per line, padded to `depth`.
    pub fn text(&self, depth: u32, width: u32) -> String {
        let zero = Bits::zero(width);
        let mut text = String::new();
        for i in 0..depth as usize {
            text.push_str(&self.words.get(i).unwrap_or(&zero).hex());
            text.push('\n');
        }
        text
    }
}

/// Shape and behaviour of a memory.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MemSpec {
    /// Words.
    pub depth: u32,
    /// Bits of a word.
    pub width: u32,
    /// Physical kind.
    pub style: MemStyle,
    /// Initial contents.
    pub init: Option<MemInit>,
    /// Read during write.
    pub collision: Collision,
    /// A second register behind each read port: data after two cycles.
    pub output_reg: bool,
    /// Width of one write lane; the write enable then has `width / lane` bits.
    pub write_lane: Option<u32>,
}

/// A registered or combinational read port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPort {
    /// Address.
    pub addr: NodeId,
    /// Read enable of the data register; `None` reads without a register (LUT RAM only).
    pub enable: Option<NodeId>,
    /// Node of the data.
    pub q: NodeId,
    /// Name of the data register (or wire).
    pub name: String,
}

/// The write port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePort {
    /// Address.
    pub addr: NodeId,
    /// Data.
    pub data: NodeId,
    /// One bit, or one bit per lane.
    pub enable: NodeId,
}

/// A memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemDef {
    /// Name in the Verilog text.
    pub name: String,
    /// Shape and behaviour.
    pub spec: MemSpec,
    /// Read ports.
    pub reads: Vec<ReadPort>,
    /// Write port, absent for a ROM.
    pub write: Option<WritePort>,
    /// Section of the text in which it is printed.
    pub section: u32,
}

/// An instance of another module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstDef {
    /// Instance name.
    pub name: String,
    /// The module.
    pub def: Arc<ModuleDef>,
    /// Driver of each input port, in the order of `def.inputs`.
    pub inputs: Vec<NodeId>,
    /// Node of each output port in use, in the order of `def.outputs`.
    pub outputs: Vec<Option<NodeId>>,
    /// Section of the text in which it is printed.
    pub section: u32,
}

/// A simulation check on each rising clock edge outside reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssertDef {
    /// One bit that must be 1.
    pub condition: NodeId,
    /// Printed when it is 0.
    pub message: String,
}

/// A named constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalParam {
    /// Name in the Verilog text.
    pub name: String,
    /// Value.
    pub value: Bits,
}

/// A parameter value of a vendor primitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrimitiveValue {
    /// A plain integer.
    Int(i64),
    /// A quoted string.
    Text(String),
    /// A sized literal.
    Bits(Bits),
}

/// What a port of a vendor primitive is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrimitiveConn {
    /// The module's clock.
    Clock,
    /// The module's reset.
    Reset,
    /// An expression of input ports and constants.
    Input(NodeId),
    /// An output port of the module: (port name, lowest bit of the primitive's port, width of that port).
    Output {
        /// Output port of the module.
        port: String,
        /// Bit of the primitive's port that is bit 0 of the module's port.
        low: u32,
        /// Width of the primitive's port.
        width: u32,
    },
    /// Left open.
    Open,
}

/// The synthesis twin of a module: one vendor primitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primitive {
    /// Cell name, e.g. `DSP48E2`.
    pub cell: String,
    /// Instance name.
    pub instance: String,
    /// Parameters in print order.
    pub parameters: Vec<(String, PrimitiveValue)>,
    /// Connections in print order.
    pub ports: Vec<(String, PrimitiveConn)>,
}

/// A comment that opens a part of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// First node that belongs to it.
    pub first: NodeId,
    /// The comment.
    pub text: String,
}

/// A checked module. Immutable; share it with `Arc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleDef {
    /// Module name, unique for its body within a design.
    pub name: String,
    /// What it does, for the header of its file.
    pub doc: String,
    /// Input ports without `clk` and `rst`.
    pub inputs: Vec<Port>,
    /// Output ports.
    pub outputs: Vec<Port>,
    /// Port order of the text: (is output, index).
    pub port_order: Vec<(bool, u32)>,
    /// Nodes in creation order.
    pub nodes: Vec<Node>,
    /// Author's name of a node.
    pub names: Vec<Option<Box<str>>>,
    /// Registers.
    pub regs: Vec<RegDef>,
    /// Memories.
    pub mems: Vec<MemDef>,
    /// Instances.
    pub instances: Vec<InstDef>,
    /// Simulation checks.
    pub asserts: Vec<AssertDef>,
    /// Named constants.
    pub localparams: Vec<LocalParam>,
    /// Comments of the text.
    pub sections: Vec<Section>,
    /// Vendor primitive that replaces the body under `SYNTHESIS`.
    pub synthesis: Option<Primitive>,
    /// Whether the module has a `clk` port.
    pub has_clk: bool,
    /// Whether the module has a `rst` port.
    pub has_rst: bool,
    /// Buses that `aclk` serves when the module has the clock and reset ports of an AXI core,
    /// `aclk` and `aresetn`, instead of `clk` and `rst`.
    pub axi_clock: Option<String>,
    /// Nodes that reach an output, an instance, or a check; the others are not printed.
    pub live: Vec<bool>,
    /// For each output, the inputs it depends on without a register in between.
    pub comb_deps: Vec<Vec<u32>>,
}

impl ModuleDef {
    /// Whether a register is printed and simulated.
    pub fn reg_is_live(&self, reg: &RegDef) -> bool {
        self.live[reg.q as usize]
    }

    /// Whether any read port of a memory is in use.
    pub fn mem_is_live(&self, mem: &MemDef) -> bool {
        mem.reads.iter().any(|r| self.live[r.q as usize])
    }

    /// Index of an input port.
    pub fn input_index(&self, name: &str) -> Option<usize> {
        self.inputs.iter().position(|p| p.name == name)
    }

    /// Index of an output port.
    pub fn output_index(&self, name: &str) -> Option<usize> {
        self.outputs.iter().position(|p| p.name == name)
    }
}
