//! The builder of one module.

use super::bits::Bits;
use super::names;
use super::node::*;
use super::signal::Sig;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::Location;
use std::sync::Arc;

/// Driver of something that is not connected yet.
pub(super) const UNBOUND: NodeId = NodeId::MAX;

/// One mistake, with the place in the Rust source that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, with the numbers.
    pub message: String,
    /// Source file of the call.
    pub file: &'static str,
    /// Line of the call.
    pub line: u32,
}

/// All mistakes found in a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct DslError {
    /// Module name.
    pub module: String,
    /// At least one problem.
    pub problems: Vec<Problem>,
}

impl fmt::Display for DslError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "module {} has {} problem(s)",
            self.module,
            self.problems.len()
        )?;
        for p in &self.problems {
            write!(f, "\n  {} ({}:{})", p.message, p.file, p.line)?;
        }
        Ok(())
    }
}

/// A multiplicative hasher: the sharing table is looked up once per node, keys are trusted.
#[derive(Default)]
pub(super) struct FastHasher(u64);

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(v as u64);
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0.rotate_left(5) ^ v).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    fn write_usize(&mut self, v: usize) {
        self.write_u64(v as u64);
    }
    fn write_isize(&mut self, v: isize) {
        self.write_u64(v as u64);
    }
}

type Shared = HashMap<(Op, u32), NodeId, BuildHasherDefault<FastHasher>>;

pub(super) struct Inner {
    pub(super) def: ModuleDef,
    /// Where each late-bound thing was created, for messages.
    pub(super) reg_places: Vec<&'static Location<'static>>,
    pub(super) inst_places: Vec<&'static Location<'static>>,
    pub(super) problems: Vec<Problem>,
    pub(super) scopes: Vec<String>,
    taken: HashMap<String, &'static Location<'static>>,
    shared: Shared,
    port_group: Option<String>,
    pub(super) valid_only: Vec<String>,
    place: &'static Location<'static>,
}

/// Builder of a module. Its methods take `&self`; signals are copyable handles that borrow it.
pub struct Module {
    pub(super) inner: RefCell<Inner>,
}

/// Names given while this guard lives get a prefix.
pub struct NameScope<'m> {
    module: &'m Module,
}

impl Drop for NameScope<'_> {
    fn drop(&mut self) {
        self.module.inner.borrow_mut().scopes.pop();
    }
}

impl Module {
    /// Starts a module.
    #[track_caller]
    pub fn new(name: &str) -> Self {
        let place = Location::caller();
        let mut inner = Inner {
            def: ModuleDef {
                name: name.to_string(),
                doc: String::new(),
                inputs: vec![],
                outputs: vec![],
                port_order: vec![],
                nodes: vec![],
                names: vec![],
                regs: vec![],
                mems: vec![],
                instances: vec![],
                asserts: vec![],
                localparams: vec![],
                sections: vec![],
                synthesis: None,
                has_clk: false,
                has_rst: false,
                axi_clock: None,
                live: vec![],
                comb_deps: vec![],
            },
            reg_places: vec![],
            inst_places: vec![],
            problems: vec![],
            scopes: vec![],
            taken: HashMap::new(),
            shared: Shared::default(),
            port_group: None,
            valid_only: vec![],
            place,
        };
        if let Some(why) = names::complaint(name) {
            inner.problem(place, format!("module name {why}"));
        }
        Module {
            inner: RefCell::new(inner),
        }
    }

    /// One or more lines for the head of the emitted file: what the module does, latency, rate.
    pub fn doc(&self, text: &str) {
        self.inner.borrow_mut().def.doc = text.trim().to_string();
    }

    /// Makes the module the top of an AXI core: its clock is called `aclk`, its reset is `aresetn`
    /// (active low, synchronised and held for 256 cycles more inside). `buses` lists the interfaces that belong to the clock.
    pub fn axi_clock(&self, buses: &[&str]) {
        self.inner.borrow_mut().def.axi_clock = Some(buses.join(":"));
    }

    /// Opens a part of the emitted text under a comment, e.g. a pipeline stage.
    pub fn section(&self, text: &str) {
        let mut inner = self.inner.borrow_mut();
        let first = inner.def.nodes.len() as NodeId;
        let text = text.trim().to_string();
        inner.def.sections.push(Section { first, text });
    }

    /// Starts a group of ports under a one-line comment.
    pub fn port_group(&self, text: &str) {
        self.inner.borrow_mut().port_group = Some(text.trim().to_string());
    }

    /// Prefixes every name given until the guard is dropped with `prefix_`
    /// (instances: `u_prefix_`). Scopes nest.
    #[must_use = "the scope ends when the guard is dropped"]
    pub fn name_scope(&self, prefix: &str) -> NameScope<'_> {
        self.inner.borrow_mut().scopes.push(prefix.to_string());
        NameScope { module: self }
    }

    /// Declares that `<name>_valid` has no `ready`: the receiver can always take the data.
    pub fn valid_only(&self, name: &str) {
        self.inner.borrow_mut().valid_only.push(name.to_string());
    }

    /// An input port.
    #[track_caller]
    pub fn input(&self, name: &str, width: u32) -> Sig<'_> {
        let place = Location::caller();
        let mut inner = self.inner.borrow_mut();
        inner.claim_exact(name, place);
        if width == 0 {
            inner.problem(place, format!("input `{name}` has no bits"));
        }
        let index = inner.def.inputs.len() as u32;
        let node = inner.push(Op::Input(index), width.max(1));
        let group = inner.port_group.take();
        inner.def.port_order.push((false, index));
        inner.def.inputs.push(Port {
            name: name.to_string(),
            width: width.max(1),
            node,
            group,
        });
        drop(inner);
        self.sig(node, width.max(1))
    }

    /// An output port driven by `value`.
    #[track_caller]
    pub fn output(&self, name: &str, value: Sig<'_>) {
        let place = Location::caller();
        let value = self.own(value, place);
        let mut inner = self.inner.borrow_mut();
        // A wire the author named like the port is the port.
        let same = inner.def.names[value.id as usize].as_deref() == Some(name)
            && !matches!(
                inner.def.nodes[value.id as usize].op,
                Op::RegQ(_) | Op::MemQ(..) | Op::Input(_)
            );
        if !same {
            inner.claim_exact(name, place);
        }
        let index = inner.def.outputs.len() as u32;
        let group = inner.port_group.take();
        inner.def.port_order.push((true, index));
        inner.def.outputs.push(Port {
            name: name.to_string(),
            width: value.width.max(1),
            node: value.id,
            group,
        });
    }

    /// A literal: the low `width` bits of `value`, which must fit.
    #[track_caller]
    pub fn lit(&self, value: u128, width: u32) -> Sig<'_> {
        if width == 0 || (width < 128 && value >> width != 0) {
            self.report(format!("literal {value} does not fit {width} bits"));
            return self.poison();
        }
        self.lit_bits(Bits::new(value, width))
    }

    /// A literal of any width.
    pub fn lit_bits(&self, value: Bits) -> Sig<'_> {
        let width = value.width();
        self.add_node(Op::Const(value), width)
    }

    /// A named constant, printed as a `localparam`. Give it an upper-case name.
    #[track_caller]
    pub fn localparam(&self, name: &str, value: u128, width: u32) -> Sig<'_> {
        let place = Location::caller();
        let mut inner = self.inner.borrow_mut();
        let name = inner.claim_upper(name, place);
        let index = inner.def.localparams.len() as u32;
        inner.def.localparams.push(LocalParam {
            name,
            value: Bits::new(value, width),
        });
        drop(inner);
        self.add_node(Op::Param(index), width)
    }

    /// Checks `condition` on every rising clock edge outside reset, in simulation only.
    #[track_caller]
    pub fn assert_(&self, condition: Sig<'_>, message: &str) {
        let place = Location::caller();
        let condition = self.own(condition, place);
        if condition.width != 1 {
            self.report_at(
                place,
                format!("assert needs 1 bit, got {}", condition.width),
            );
        }
        let message = message.replace(['"', '\\', '\n', '%'], "'");
        self.inner.borrow_mut().def.asserts.push(AssertDef {
            condition: condition.id,
            message,
        });
    }

    /// Replaces the body by one vendor primitive where `SYNTHESIS` is defined. The behavioural
    /// body stays for simulation and must do the same.
    #[track_caller]
    pub fn set_synthesis_body(&self, primitive: Primitive) {
        let place = Location::caller();
        let mut inner = self.inner.borrow_mut();
        if inner.def.synthesis.is_some() {
            inner.problem(place, "a module has at most one synthesis body".into());
        }
        inner.place = place;
        inner.def.synthesis = Some(primitive);
    }

    /// Records a problem of the caller's own; [`Module::finish`] returns it with the others.
    #[track_caller]
    pub fn problem(&self, message: &str) {
        self.report(message.to_string());
    }

    /// Number of nodes so far.
    pub fn node_count(&self) -> usize {
        self.inner.borrow().def.nodes.len()
    }

    /// Checks the module and freezes it. All problems are returned together.
    pub fn finish(self) -> Result<Arc<ModuleDef>, DslError> {
        let mut inner = self.inner.into_inner();
        super::check::check(&mut inner);
        if inner.problems.is_empty() {
            Ok(Arc::new(inner.def))
        } else {
            Err(DslError {
                module: inner.def.name,
                problems: inner.problems,
            })
        }
    }

    // ---- shared with the other builder files ----

    pub(super) fn sig(&self, id: NodeId, width: u32) -> Sig<'_> {
        Sig {
            module: self,
            id,
            width,
        }
    }

    /// What an erroneous call returns: width 0, accepted everywhere without further messages.
    pub(super) fn poison(&self) -> Sig<'_> {
        let mut inner = self.inner.borrow_mut();
        let id = inner.push(Op::Const(Bits::zero(1)), 1);
        drop(inner);
        self.sig(id, 0)
    }

    /// Adds a pure node, or returns the equal one that exists already.
    pub(super) fn add_node(&self, op: Op, width: u32) -> Sig<'_> {
        let id = self.inner.borrow_mut().share(op, width);
        self.sig(id, width)
    }

    #[track_caller]
    pub(super) fn report(&self, message: String) {
        self.report_at(Location::caller(), message);
    }

    pub(super) fn report_at(&self, place: &'static Location<'static>, message: String) {
        self.inner.borrow_mut().problem(place, message);
    }

    /// Refuses a signal of another module.
    pub(super) fn own<'m>(&'m self, s: Sig<'_>, place: &'static Location<'static>) -> Sig<'m> {
        if std::ptr::eq(self, s.module) {
            return self.sig(s.id, s.width);
        }
        let (from, into) = (
            s.module.inner.borrow().def.name.clone(),
            self.inner.borrow().def.name.clone(),
        );
        self.report_at(
            place,
            format!("a signal of module {from} is used in module {into}"),
        );
        self.poison()
    }
}

impl Inner {
    pub(super) fn problem(&mut self, place: &'static Location<'static>, message: String) {
        self.problems.push(Problem {
            message,
            file: place.file(),
            line: place.line(),
        });
    }

    pub(super) fn problem_here(&mut self, message: String) {
        self.problem(self.place, message);
    }

    pub(super) fn push(&mut self, op: Op, width: u32) -> NodeId {
        self.def.nodes.push(Node { op, width });
        self.def.names.push(None);
        (self.def.nodes.len() - 1) as NodeId
    }

    fn share(&mut self, op: Op, width: u32) -> NodeId {
        use std::collections::hash_map::Entry;
        let next = self.def.nodes.len() as NodeId;
        match self.shared.entry((op, width)) {
            Entry::Occupied(e) => *e.get(),
            Entry::Vacant(e) => {
                let op = e.key().0.clone();
                e.insert(next);
                self.push(op, width)
            }
        }
    }

    /// The section that is open now, counted from 1; 0 before the first.
    pub(super) fn section_now(&self) -> u32 {
        self.def.sections.len() as u32
    }

    /// The full name under the open scopes.
    fn scoped(&self, name: &str) -> String {
        if self.scopes.is_empty() {
            return name.to_string();
        }
        let prefix = self.scopes.join("_");
        match name.strip_prefix("u_") {
            Some(rest) => format!("u_{prefix}_{rest}"),
            None => format!("{prefix}_{name}"),
        }
    }

    fn claim_exact(&mut self, name: &str, place: &'static Location<'static>) {
        if let Some(why) = names::complaint(name) {
            self.problem(place, why);
        }
        if let Some(first) = self.taken.insert(name.to_string(), place) {
            self.problem(
                place,
                format!(
                    "the name `{name}` is used already at {}:{}",
                    first.file(),
                    first.line()
                ),
            );
        }
    }

    /// Registers a name under the open scopes and returns it in full.
    pub(super) fn claim(&mut self, name: &str, place: &'static Location<'static>) -> String {
        let full = self.scoped(name);
        self.claim_exact(&full, place);
        full
    }

    fn claim_upper(&mut self, name: &str, place: &'static Location<'static>) -> String {
        let full = if self.scopes.is_empty() {
            name.to_string()
        } else {
            format!("{}_{name}", self.scopes.join("_").to_uppercase())
        };
        self.claim_exact(&full, place);
        full
    }

    /// Whether the printer may use `name` for a net of its own.
    pub(super) fn set_name(&mut self, id: NodeId, name: String) {
        self.def.names[id as usize] = Some(name.into_boxed_str());
    }
}
