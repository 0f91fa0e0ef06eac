//! Registers, memories and instances: the things that may close a loop.

use super::bits::Bits;
use super::module::{Module, UNBOUND};
use super::node::*;
use super::signal::Sig;
use std::panic::Location;
use std::sync::Arc;

/// A register. Its next value may be set after its output was used.
#[derive(Clone, Copy)]
pub struct Reg<'m> {
    module: &'m Module,
    index: u32,
    q: NodeId,
    width: u32,
}

impl<'m> Reg<'m> {
    /// The registered value.
    pub fn q(self) -> Sig<'m> {
        self.module.sig(self.q, self.width)
    }

    /// Connects the next value, once.
    #[track_caller]
    pub fn set_next(self, next: Sig<'_>) -> Self {
        let place = Location::caller();
        let next = self.module.own(next, place);
        if self.width == 0 || next.width == 0 {
            // Mark as bound, the cause is recorded already.
            self.module.inner.borrow_mut().def.regs[self.index as usize].next = self.q;
            return self;
        }
        let mut inner = self.module.inner.borrow_mut();
        let section = inner.section_now();
        let reg = &mut inner.def.regs[self.index as usize];
        let name = reg.name.clone();
        let twice = reg.next != UNBOUND;
        reg.next = next.id;
        reg.section = section;
        if twice {
            inner.problem(place, format!("register `{name}` has a second driver"));
        }
        if next.width != self.width {
            inner.problem(
                place,
                format!(
                    "register `{name}` has {} bits, its next value {}",
                    self.width, next.width
                ),
            );
        }
        self
    }

    /// Keeps the value while `enable` is 0.
    #[track_caller]
    pub fn with_enable(self, enable: Sig<'_>) -> Self {
        let place = Location::caller();
        let enable = self.module.own(enable, place);
        if enable.width > 1 {
            self.module
                .report(format!("register enable has {} bits", enable.width));
        }
        let mut inner = self.module.inner.borrow_mut();
        // A constant 1 is no enable.
        let always = matches!(&inner.def.nodes[enable.id as usize].op, Op::Const(c) if c.is_ones());
        inner.def.regs[self.index as usize].enable = (!always).then_some(enable.id);
        drop(inner);
        self
    }

    /// Takes `value` while `rst` is 1; the module gets a `rst` port.
    #[track_caller]
    pub fn with_reset(self, value: u128) -> Self {
        self.check_fits(value);
        self.module.inner.borrow_mut().def.regs[self.index as usize].reset =
            Some(Bits::new(value, self.width));
        self
    }

    /// Value at power-on, without a reset.
    #[track_caller]
    pub fn init(self, value: u128) -> Self {
        self.check_fits(value);
        self.module.inner.borrow_mut().def.regs[self.index as usize].init =
            Some(Bits::new(value, self.width));
        self
    }

    #[track_caller]
    fn check_fits(self, value: u128) {
        if self.width < 128 && value >> self.width != 0 {
            self.module.report(format!(
                "value {value} does not fit a register of {} bits",
                self.width
            ));
        }
    }
}

/// An instance of another module.
#[derive(Clone, Copy)]
pub struct Instance<'m> {
    module: &'m Module,
    index: u32,
}

impl<'m> Instance<'m> {
    fn def(self) -> Arc<ModuleDef> {
        self.module.inner.borrow().def.instances[self.index as usize]
            .def
            .clone()
    }

    fn name(self) -> String {
        self.module.inner.borrow().def.instances[self.index as usize]
            .name
            .clone()
    }

    /// Connects an input port, before or after outputs are used.
    #[track_caller]
    pub fn input(self, port: &str, value: Sig<'_>) -> Self {
        let place = Location::caller();
        let value = self.module.own(value, place);
        let def = self.def();
        let Some(k) = def.input_index(port) else {
            let known: Vec<&str> = def.inputs.iter().map(|p| p.name.as_str()).collect();
            self.module.report(format!(
                "{} has no input `{port}`; it has {}",
                def.name,
                known.join(", ")
            ));
            return self;
        };
        let width = def.inputs[k].width;
        if value.width != 0 && value.width != width {
            self.module.report(format!(
                "input `{port}` of {} ({}) has {width} bits, got {}",
                self.name(),
                def.name,
                value.width
            ));
        }
        let mut inner = self.module.inner.borrow_mut();
        let section = inner.section_now();
        let inst = &mut inner.def.instances[self.index as usize];
        let name = inst.name.clone();
        let twice = inst.inputs[k] != UNBOUND;
        inst.inputs[k] = value.id;
        inst.section = section;
        if twice {
            inner.problem(
                place,
                format!("input `{port}` of {name} is connected twice"),
            );
        }
        drop(inner);
        self
    }

    /// An output port.
    #[track_caller]
    pub fn output(self, port: &str) -> Sig<'m> {
        let def = self.def();
        let Some(k) = def.output_index(port) else {
            let known: Vec<&str> = def.outputs.iter().map(|p| p.name.as_str()).collect();
            self.module.report(format!(
                "{} has no output `{port}`; it has {}",
                def.name,
                known.join(", ")
            ));
            return self.module.poison();
        };
        let width = def.outputs[k].width;
        let sig = self
            .module
            .add_node(Op::InstOut(self.index, k as u32), width);
        self.module.inner.borrow_mut().def.instances[self.index as usize].outputs[k] = Some(sig.id);
        sig
    }
}

/// A memory: any number of read ports, at most one write port.
#[derive(Clone, Copy)]
pub struct Mem<'m> {
    module: &'m Module,
    index: u32,
}

/// Address bits of a memory of `depth` words (at least one).
pub fn addr_width(depth: u32) -> u32 {
    (32 - depth.saturating_sub(1).leading_zeros()).max(1)
}

impl<'m> Mem<'m> {
    /// Address bits.
    pub fn addr_width(self) -> u32 {
        addr_width(self.spec().depth)
    }

    fn spec(self) -> MemSpec {
        self.module.inner.borrow().def.mems[self.index as usize]
            .spec
            .clone()
    }

    /// A registered read port: data one cycle after `enable`, or two with `output_reg`.
    /// The data register keeps its value while `enable` is 0.
    #[track_caller]
    pub fn read(self, addr: Sig<'_>, enable: Sig<'_>) -> Sig<'m> {
        let place = Location::caller();
        let enable = self.module.own(enable, place);
        if enable.width > 1 {
            self.module
                .report(format!("read enable has {} bits", enable.width));
        }
        let q = self.read_port(addr, Some(enable.id));
        if !self.spec().output_reg || q.width == 0 {
            return q;
        }
        let mut name = {
            let inner = self.module.inner.borrow();
            let mem = &inner.def.mems[self.index as usize];
            mem.reads[mem.reads.len() - 1].name.clone()
        };
        name.push('2');
        // The port's name holds the scope already.
        let scopes = std::mem::take(&mut self.module.inner.borrow_mut().scopes);
        let q2 = self.module.reg_next(&name, q).q();
        self.module.inner.borrow_mut().scopes = scopes;
        q2
    }

    /// A read without a register, for LUT RAM (style `Distributed` or `Auto`).
    #[track_caller]
    pub fn read_comb(self, addr: Sig<'_>) -> Sig<'m> {
        if matches!(self.spec().style, MemStyle::Block | MemStyle::Ultra) {
            self.module
                .report("block RAM and UltraRAM have no combinational read".into());
        }
        self.read_port(addr, None)
    }

    #[track_caller]
    fn read_port(self, addr: Sig<'_>, enable: Option<NodeId>) -> Sig<'m> {
        let place = Location::caller();
        let addr = self.module.own(addr, place);
        let spec = self.spec();
        self.check_addr(addr);
        if spec.width == 0 {
            return self.module.poison();
        }
        let mut inner = self.module.inner.borrow_mut();
        let index = inner.def.mems[self.index as usize].reads.len() as u32;
        let base = inner.def.mems[self.index as usize].name.clone();
        let tail = if enable.is_some() { "q" } else { "rdata" };
        let port = match index {
            0 => format!("{base}_{tail}"),
            k => format!("{base}_port{}_{tail}", (b'a' + (k % 26) as u8) as char),
        };
        let scopes = std::mem::take(&mut inner.scopes);
        let name = inner.claim(&port, place);
        inner.scopes = scopes;
        let q = inner.push(Op::MemQ(self.index, index), spec.width);
        inner.set_name(q, name.clone());
        inner.def.mems[self.index as usize].reads.push(ReadPort {
            addr: addr.id,
            enable,
            q,
            name,
        });
        drop(inner);
        self.module.sig(q, spec.width)
    }

    /// The write port, once. `enable` has one bit, or one per lane with `write_lane`.
    #[track_caller]
    pub fn write(self, addr: Sig<'_>, data: Sig<'_>, enable: Sig<'_>) {
        let place = Location::caller();
        let spec = self.spec();
        let (addr, data, enable) = (
            self.module.own(addr, place),
            self.module.own(data, place),
            self.module.own(enable, place),
        );
        self.check_addr(addr);
        if data.width != 0 && data.width != spec.width {
            self.module.report(format!(
                "memory of {} bits is written with {}",
                spec.width, data.width
            ));
        }
        let lanes = spec.write_lane.map_or(1, |lane| spec.width / lane.max(1));
        if enable.width != 0 && enable.width != lanes {
            self.module.report(format!(
                "write enable has {} bits, needs {lanes}",
                enable.width
            ));
        }
        let mut inner = self.module.inner.borrow_mut();
        let section = inner.section_now();
        let mem = &mut inner.def.mems[self.index as usize];
        let twice = mem.write.is_some();
        mem.section = section;
        mem.write = Some(WritePort {
            addr: addr.id,
            data: data.id,
            enable: enable.id,
        });
        if twice {
            let name = mem.name.clone();
            inner.problem(place, format!("memory `{name}` has a second write port"));
        }
    }

    #[track_caller]
    fn check_addr(self, addr: Sig<'_>) {
        let needs = self.addr_width();
        if addr.width != 0 && addr.width != needs {
            self.module.report(format!(
                "memory of {} words has an address of {} bits, needs {needs}",
                self.spec().depth,
                addr.width
            ));
        }
    }
}

impl Module {
    /// A register of `width` bits whose next value comes later (`set_next`).
    #[track_caller]
    pub fn reg(&self, name: &str, width: u32) -> Reg<'_> {
        let place = Location::caller();
        if width == 0 {
            self.report(format!("register `{name}` has no bits"));
        }
        let mut inner = self.inner.borrow_mut();
        let full = inner.claim(name, place);
        let index = inner.def.regs.len() as u32;
        let q = inner.push(Op::RegQ(index), width.max(1));
        inner.set_name(q, full.clone());
        let section = inner.section_now();
        inner.def.regs.push(RegDef {
            name: full,
            width: width.max(1),
            q,
            next: UNBOUND,
            enable: None,
            reset: None,
            init: None,
            section,
        });
        inner.reg_places.push(place);
        Reg {
            module: self,
            index,
            q,
            width,
        }
    }

    /// A register that takes `next` on every clock edge.
    #[track_caller]
    pub fn reg_next(&self, name: &str, next: Sig<'_>) -> Reg<'_> {
        if next.width == 0 {
            let q = self.poison();
            let reg = self.reg(name, 1).set_next(self.sig(q.id, 1));
            return Reg { width: 0, ..reg };
        }
        self.reg(name, next.width).set_next(next)
    }

    /// `stages` registers in a row named `name_q, name_q2, ...`; 0 stages give `value` itself.
    #[track_caller]
    pub fn pipe<'m>(&'m self, name: &str, value: Sig<'_>, stages: u32) -> Sig<'m> {
        self.pipe_with(name, value, stages, None)
    }

    /// [`Module::pipe`] whose registers all keep their value while `enable` is 0.
    #[track_caller]
    pub fn pipe_en<'m>(
        &'m self,
        name: &str,
        value: Sig<'_>,
        stages: u32,
        enable: Sig<'_>,
    ) -> Sig<'m> {
        let enable = self.own(enable, Location::caller());
        self.pipe_with(name, value, stages, Some(enable))
    }

    #[track_caller]
    fn pipe_with<'m>(
        &'m self,
        name: &str,
        value: Sig<'_>,
        stages: u32,
        enable: Option<Sig<'m>>,
    ) -> Sig<'m> {
        let base = name.strip_suffix("_q").unwrap_or(name);
        let mut value = self.own(value, Location::caller());
        for k in 1..=stages {
            let name = match k {
                1 => format!("{base}_q"),
                _ => format!("{base}_q{k}"),
            };
            let mut reg = self.reg_next(&name, value);
            if let Some(en) = enable {
                reg = reg.with_enable(en);
            }
            value = reg.q();
        }
        value
    }

    /// The same delay as [`Module::pipe`] as one shift register `name_sr`, for narrow signals
    /// and many stages: tools map it to LUT shift registers.
    #[track_caller]
    pub fn delay<'m>(&'m self, name: &str, value: Sig<'_>, stages: u32) -> Sig<'m> {
        let value = self.own(value, Location::caller());
        if stages < 2 || value.width == 0 {
            return self.pipe(name, value, stages);
        }
        let w = value.width;
        let sr = self.reg(&format!("{name}_sr"), w * stages);
        sr.set_next(self.cat(&[sr.q().trunc(w * (stages - 1)), value]));
        sr.q().slice(w * stages - 1, w * (stages - 1))
    }

    /// A memory.
    #[track_caller]
    pub fn mem(&self, name: &str, spec: MemSpec) -> Mem<'_> {
        let place = Location::caller();
        if spec.depth == 0 || spec.width == 0 {
            self.report(format!(
                "memory `{name}` of {} words of {} bits",
                spec.depth, spec.width
            ));
        }
        if spec
            .write_lane
            .is_some_and(|l| l == 0 || !spec.width.is_multiple_of(l))
        {
            self.report(format!(
                "memory `{name}`: {} bits are no whole number of write lanes",
                spec.width
            ));
        }
        if let Some(init) = &spec.init {
            if spec.style == MemStyle::Ultra {
                self.report(format!("memory `{name}`: UltraRAM has no initial contents"));
            }
            if init.words.len() > spec.depth as usize {
                self.report(format!(
                    "memory `{name}` of {} words has {} initial words",
                    spec.depth,
                    init.words.len()
                ));
            }
            if init.words.iter().any(|w| w.width() != spec.width) {
                self.report(format!(
                    "memory `{name}`: initial words have another width than {} bits",
                    spec.width
                ));
            }
            let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if init.file.is_empty() || !init.file.chars().all(legal) {
                self.report(format!(
                    "memory `{name}`: `{}` is no plain file name",
                    init.file
                ));
            }
        }
        let mut inner = self.inner.borrow_mut();
        let full = inner.claim(name, place);
        let section = inner.section_now();
        inner.def.mems.push(MemDef {
            name: full,
            spec,
            reads: vec![],
            write: None,
            section,
        });
        let index = inner.def.mems.len() as u32 - 1;
        drop(inner);
        Mem {
            module: self,
            index,
        }
    }

    /// An instance of a finished module. Connect it with `input` and `output`.
    #[track_caller]
    pub fn instance(&self, name: &str, def: &Arc<ModuleDef>) -> Instance<'_> {
        let place = Location::caller();
        let mut inner = self.inner.borrow_mut();
        let full = inner.claim(name, place);
        let section = inner.section_now();
        inner.def.instances.push(InstDef {
            name: full,
            def: def.clone(),
            inputs: vec![UNBOUND; def.inputs.len()],
            outputs: vec![None; def.outputs.len()],
            section,
        });
        inner.inst_places.push(place);
        let index = inner.def.instances.len() as u32 - 1;
        drop(inner);
        Instance {
            module: self,
            index,
        }
    }
}
