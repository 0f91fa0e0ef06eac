//! Joining signals: concatenation and choice.

use super::super::bits::Bits;
use super::super::module::Module;
use super::super::node::*;
use super::Sig;
use std::panic::Location;

impl Module {
    pub(super) fn width_of(&self, id: NodeId) -> u32 {
        self.inner.borrow().def.nodes[id as usize].width
    }

    /// Concatenation, most significant part first.
    #[track_caller]
    pub fn cat<'m>(&'m self, parts: &[Sig<'_>]) -> Sig<'m> {
        let place = Location::caller();
        if parts.is_empty() {
            self.report("concatenation of nothing".into());
            return self.poison();
        }
        if let [only] = parts {
            return self.own(*only, place);
        }
        let mut flat: Vec<Sig<'m>> = Vec::with_capacity(parts.len());
        for &part in parts {
            let part = self.own(part, place);
            match part.op_unless_named() {
                // Short concatenations inside become part of this one.
                Some(Op::Cat(inside)) if inside.len() <= 4 => {
                    flat.extend(inside.iter().map(|&p| self.sig(p, self.width_of(p))));
                }
                _ => flat.push(part),
            }
        }
        let mut ids: Vec<NodeId> = Vec::with_capacity(flat.len());
        let mut width = 0;
        let mut last: Option<Bits> = None;
        for part in flat {
            if part.width == 0 {
                return self.poison();
            }
            width += part.width;
            // Neighbouring literals become one.
            match (last.take(), part.constant()) {
                (Some(before), Some(c)) => {
                    let both = Bits::cat(&[&before, &c]);
                    ids.pop();
                    ids.push(self.lit_bits(both.clone()).id);
                    last = Some(both);
                }
                (_, c) => {
                    ids.push(part.id);
                    last = c;
                }
            }
        }
        if let [only] = ids[..] {
            return self.sig(only, width);
        }
        self.add_node(Op::Cat(ids.into_boxed_slice()), width)
    }

    /// `select ? when1 : when0`.
    #[track_caller]
    pub fn mux<'m>(&'m self, select: Sig<'_>, when1: Sig<'_>, when0: Sig<'_>) -> Sig<'m> {
        let place = Location::caller();
        let (s, a, b) = (
            self.own(select, place),
            self.own(when1, place),
            self.own(when0, place),
        );
        if s.width == 0 || a.width == 0 || b.width == 0 {
            return self.poison();
        }
        if s.width != 1 {
            self.report(format!("mux select has {} bits, needs 1", s.width));
            return self.poison();
        }
        if a.width != b.width {
            self.report(format!("mux of {} and {} bits", a.width, b.width));
            return self.poison();
        }
        if a.id == b.id {
            return a;
        }
        if let Some(c) = s.constant() {
            return if c.is_zero() { b } else { a };
        }
        self.add_node(Op::Mux(s.id, a.id, b.id), a.width)
    }

    /// `choices[index]`; an index past the end takes the last choice.
    #[track_caller]
    pub fn select<'m>(&'m self, index: Sig<'_>, choices: &[Sig<'_>]) -> Sig<'m> {
        let place = Location::caller();
        let index = self.own(index, place);
        let Some(first) = choices.first() else {
            self.report("select among nothing".into());
            return self.poison();
        };
        let width = first.width;
        let mut ids = Vec::with_capacity(choices.len());
        for &c in choices {
            let c = self.own(c, place);
            if c.width == 0 || index.width == 0 {
                return self.poison();
            }
            if c.width != width {
                self.report(format!("select among {width} and {} bits", c.width));
                return self.poison();
            }
            ids.push(c.id);
        }
        if index.width < 32 && (choices.len() as u64) > 1 << index.width {
            self.report(format!(
                "{} choices cannot be reached by an index of {} bits",
                choices.len(),
                index.width
            ));
            return self.poison();
        }
        if let Some(c) = index.constant() {
            let k = (c.to_u128() as usize).min(ids.len() - 1);
            return self.sig(ids[k], width);
        }
        if ids.iter().all(|&c| c == ids[0]) {
            return self.sig(ids[0], width);
        }
        if index.width == 1 {
            let (c0, c1) = (self.sig(ids[0], width), self.sig(ids[1], width));
            return self.mux(index, c1, c0);
        }
        self.add_node(Op::Select(index.id, ids.into_boxed_slice()), width)
    }

    /// The signal beside the value `selector` has, else `default`. Values must differ.
    #[track_caller]
    pub fn case<'m>(
        &'m self,
        selector: Sig<'_>,
        arms: &[(u128, Sig<'_>)],
        default: Sig<'_>,
    ) -> Sig<'m> {
        let place = Location::caller();
        let (selector, default) = (self.own(selector, place), self.own(default, place));
        if selector.width == 0 || default.width == 0 {
            return self.poison();
        }
        let mut list: Vec<(Bits, NodeId)> = Vec::with_capacity(arms.len());
        let mut seen = std::collections::BTreeSet::new();
        for &(value, arm) in arms {
            let arm = self.own(arm, place);
            if arm.width == 0 {
                return self.poison();
            }
            if arm.width != default.width {
                self.report(format!(
                    "case arm {value} has {} bits, the default {}",
                    arm.width, default.width
                ));
                return self.poison();
            }
            if selector.width < 128 && value >> selector.width != 0 {
                self.report(format!(
                    "case value {value} does not fit the selector's {} bits",
                    selector.width
                ));
                return self.poison();
            }
            if !seen.insert(value) {
                self.report(format!("case value {value} appears twice"));
                return self.poison();
            }
            list.push((Bits::new(value, selector.width), arm.id));
        }
        if let Some(c) = selector.constant() {
            let arm = list.iter().find(|(value, _)| *value == c);
            return self.sig(arm.map_or(default.id, |(_, a)| *a), default.width);
        }
        if list.iter().all(|(_, arm)| *arm == default.id) {
            return default;
        }
        let op = Op::Case(selector.id, list.into_boxed_slice(), default.id);
        self.add_node(op, default.width)
    }
}
