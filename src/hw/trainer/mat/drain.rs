//! The drain, which runs while the next tile accumulates: rows of sums to FP32 results in their banks, tile exponent, retirement.

use super::core::{Fields, LANE_LOADS, MatPorts, Slot};
use super::emax::{exponent_max, max_latency};
use super::lane::{ADDEND_AT, NO_ADDEND, NO_SCALE, SCALE_AT, Scale, epilogue_lane};
use super::line::Line;
use super::normaliser::{BASE_BITS, BASE_LAG, BASE_OFFSET};
use super::rotator::{Turn, rotator};
use super::timing::MatTiming;
use super::{copies, fit, next_modulo, rot_bits};
use crate::dsl::*;
use crate::hw::trainer::READ_LATENCY;
use crate::trainer::isa::Shape;

/// Context of the drain.
pub(super) struct Drain<'c, 'm, 'a> {
    pub m: &'m Module,
    pub shape: &'c Shape,
    pub kind: Scale,
    pub t: &'c MatTiming,
    pub w: &'c MatPorts,
    pub fields: &'c Fields<'m, 'a>,
    pub slot: &'c Slot<'m>,
}

/// The drain's tokens: a row leaves, and it is the tile's first.
struct Rows<'m> {
    valid: Line<'m>,
    first: Line<'m>,
}

impl<'m> Drain<'_, 'm, '_> {
    fn b(&self) -> usize {
        self.shape.b
    }

    /// A field of the instruction, delayed with the slots of its rows.
    fn line(&self, name: &str) -> Line<'m> {
        Line::value(self.m, &format!("drain_{name}"), self.fields.held(name), 1)
    }

    /// A register that takes `first` with the tile's first row and `next(q)` with the others;
    /// it holds the row's value at cycle `t`.
    fn per_row(
        &self,
        name: &str,
        rows: &Rows<'m>,
        t: u32,
        first: Sig<'m>,
        next: impl Fn(Sig<'m>) -> Sig<'m>,
    ) -> Sig<'m> {
        let reg = self.m.reg(name, first.width());
        reg.set_next(self.m.mux(rows.first.at(t - 1), first, next(reg.q())))
            .with_enable(rows.valid.at(t - 1));
        reg.q()
    }

    /// A stream's address `addr + r` at cycle `t`.
    fn address(&self, rows: &Rows<'m>, side: &str, bits: u32, t: u32) -> Sig<'m> {
        let first = fit(self.line(&format!("{side}_addr")).at(t - 1), bits);
        self.per_row(&format!("{side}_addr_q"), rows, t, first, |a| {
            a.add_const(1)
        })
    }

    /// A stream's rotation `rot + r mod B` at cycle `t`.
    fn rotation(&self, rows: &Rows<'m>, side: &str, t: u32) -> Sig<'m> {
        let first = fit(
            self.line(&format!("{side}_rot")).at(t - 1),
            rot_bits(self.b()),
        );
        self.per_row(&format!("{side}_rot_q"), rows, t, first, |rot| {
            next_modulo(self.m, rot, self.b())
        })
    }

    /// Everything behind the array: `sums` are those of row 0 at `t.sum`.
    pub fn build(
        &self,
        emax: &[Line<'m>; 2],
        sums: &[Sig<'m>],
        operand_error: Sig<'m>,
    ) -> Result<(), DslError> {
        let (m, t) = (self.m, self.t);
        m.section("drain: one row of sums per slot");
        let rows = Rows {
            valid: Line::flag(m, "row_valid", self.slot.row, 1),
            first: Line::value(m, "row_first", self.slot.first_row, 1),
        };
        let addend = self.addend(&rows)?;
        let results = self.lanes(emax, sums, &addend)?;

        m.section("destination");
        let rot = self.rotation(&rows, "dst", t.result - 1);
        let def = rotator(Turn::ToBanks, 32, self.b(), None)?;
        let mut unit = m.instance("u_dst_rotate", &def).input("rot", rot);
        for (c, y) in results.iter().enumerate() {
            unit = unit.input(&format!("x_{c}"), *y);
        }
        m.port_group("destination: all banks of one address");
        m.output("dst_en", rows.valid.at(t.write));
        m.output("dst_grad", self.line("dst_grad").at(t.write));
        let group = fit(self.fields.held("dst_group"), self.w.group);
        m.output(
            "dst_group",
            Line::value(m, "dst_group", group, 1).at(t.write),
        );
        m.output(
            "dst_addr",
            self.address(&rows, "dst", self.w.dst_addr, t.write),
        );
        for bank in 0..self.b() {
            m.output(
                &format!("dst_data_{bank}"),
                unit.output(&format!("y_{bank}")),
            );
        }
        self.finish(&rows, &results, operand_error)
    }

    /// Addend in lane order at `t.sum + ADDEND_AT`.
    fn addend(&self, rows: &Rows<'m>) -> Result<Vec<Sig<'m>>, DslError> {
        let (m, t, b) = (self.m, self.t, self.b());
        m.section("addend");
        let none = Line::value(m, "add_none", self.fields.is("add_kind", 0), 1);
        let at = t.add_address;
        m.port_group("addend: all banks of one address");
        m.output(
            "add_en",
            m.reg_next("add_en_q", rows.valid.at(at - 1) & !none.at(at - 1))
                .with_reset(0)
                .q(),
        );
        // The position code is numbered behind the activation groups.
        let group = m.mux(
            self.fields.is("add_kind", 2),
            m.lit(self.shape.group_depth.len() as u128, self.w.add_group),
            fit(self.fields.held("add_group"), self.w.add_group),
        );
        m.output("add_group", Line::value(m, "add_from", group, 1).at(at));
        m.output("add_addr", self.address(rows, "add", self.w.add_addr, at));
        let data = at + READ_LATENCY;
        let def = rotator(Turn::ToLanes, 32, b, Some(NO_ADDEND.into()))?;
        let mut unit = m
            .instance("u_add_rotate", &def)
            .input("rot", self.rotation(rows, "add", data - 1))
            .input("idle", none.at(data - 1));
        for bank in 0..b {
            unit = unit.input(
                &format!("x_{bank}"),
                m.input(&format!("add_data_{bank}"), 32),
            );
        }
        Ok((0..b).map(|c| unit.output(&format!("y_{c}"))).collect())
    }

    /// Epilogue lanes: masked FP32 results at `t.result`.
    fn lanes(
        &self,
        emax: &[Line<'m>; 2],
        sums: &[Sig<'m>],
        addend: &[Sig<'m>],
    ) -> Result<Vec<Sig<'m>>, DslError> {
        let (m, t, b) = (self.m, self.t, self.b());
        m.section("exponent base, scale and lane mask");
        let [row, col] = emax.each_ref().map(|e| e.at(1).zext(BASE_BITS));
        // Kept from the last operand step: the next tile's exponents come while the rows leave.
        let base = (row + col).sub_const(BASE_OFFSET.into());
        let last_step = m.pipe("base_load", self.slot.last_step, 1);
        let base = m.reg_next("base_q", base).with_enable(last_step).q();
        let base = Line::value(m, "base", base, 2);
        let base = copies(m, "base_to", base.at(t.sum + BASE_LAG - 1), b, LANE_LOADS);
        let scale_at = t.sum + SCALE_AT;
        let scale = copies(m, "scale_to", self.scale(scale_at - 1), b, LANE_LOADS);
        let nc = self.line("nc").at(t.keep() - 1);
        debug_assert!(t.sum + ADDEND_AT == t.add_address + READ_LATENCY + (t.rotated - t.aligned));

        m.section("one epilogue per column");
        let def = epilogue_lane(self.kind)?;
        (0..b)
            .map(|c| {
                let inside = match (c as u128) >> nc.width() {
                    0 => m.lit(c as u128, nc.width()).ult(nc),
                    _ => m.lit(0, 1),
                };
                Ok(m.instance(&format!("u_lane_{c}"), &def)
                    .input("sum", sums[c])
                    .input("base", base[c])
                    .input("scale", scale[c])
                    .input("addend", addend[c])
                    .input("keep", m.pipe(&format!("keep_{c}"), inside, 1))
                    .output("y"))
            })
            .collect()
    }

    /// Scale of the tile at cycle `t`: an entry of the constant table, or 1.0; whether there is one.
    fn scale(&self, t: u32) -> Sig<'m> {
        let m = self.m;
        if let Scale::Halvings(_) = self.kind {
            return self.line("scale_en").at(t);
        }
        let one = m.lit(NO_SCALE.into(), 32);
        let index = self.line("scale").at(t - 1);
        let reachable = self.shape.constants.len().min(1 << index.width().min(16));
        let table: Vec<Sig<'m>> = self.shape.constants[..reachable]
            .iter()
            .map(|c| m.lit(u128::from(*c), 32))
            .collect();
        if table.is_empty() {
            return one;
        }
        let scaled = m.mux(
            self.line("scale_en").at(t - 1),
            m.select(index, &table),
            one,
        );
        m.reg_next("scale_value_q", scaled).q()
    }

    /// Tile exponent, error and retire pulses.
    fn finish(
        &self,
        rows: &Rows<'m>,
        results: &[Sig<'m>],
        operand_error: Sig<'m>,
    ) -> Result<(), DslError> {
        let (m, t, b) = (self.m, self.t, self.b());
        m.section("exponent of the tile");
        let mut unit = m.instance("u_row_max", &exponent_max(b)?);
        for (c, y) in results.iter().enumerate() {
            unit = unit.input(&format!("e_{c}"), y.slice(30, 23));
        }
        let row_max = unit.output("row_max");
        debug_assert_eq!(t.result + max_latency(b) + 1, t.exponent);
        let tile_max = self.per_row("tile_max_q", rows, t.exponent, row_max, |old| {
            m.mux(old.ult(row_max), row_max, old)
        });
        let last = self.slot.last_row;
        let update = last & self.fields.held("exp_en");
        m.port_group("exponent update");
        m.output("exp_we", Line::flag(m, "exp_we", update, 1).at(t.exponent));
        let id = fit(self.fields.held("exp"), self.w.exp_write);
        m.output("exp_id", Line::value(m, "exp", id, 1).at(t.exponent));
        m.output("exp_value", tile_max);
        m.output("exp_first", self.line("exp_first").at(t.exponent));
        m.port_group("the instruction's results are visible; Inf or NaN met");
        m.output("retire", Line::flag(m, "retire", last, 1).at(t.retire));
        let overflow = rows.valid.at(t.exponent - 1) & row_max.and_reduce();
        let error = m.reg_next("error_q", overflow | operand_error);
        m.output("error", error.with_reset(0).q());
        Ok(())
    }
}
