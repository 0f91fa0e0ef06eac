//! The edges of the array: operand streams, aligners, rotators, and the rows of cells.

use super::aligner::{UNIT_LAG, aligner};
use super::cell::{MODE_LAG, OPERAND_BITS, SUM_BITS};
use super::core::{Fields, LANE_LOADS, MatConfig, MatPorts, Slot};
use super::line::Line;
use super::neuron::{ROW_LATENCY, WEIGHT_LATENCY, neuron_core};
use super::rotator::{Turn, rotator};
use super::stream::stream;
use super::timing::MatTiming;
use super::{copies, fit, rot_bits};
use crate::dsl::*;
use crate::hw::trainer::{READ_LATENCY, register_delay};
use crate::trainer::encode::bits_for;
use crate::trainer::isa::segment_rows;

// The weights arrive with the activations; the row's operand register and the mode register of
// the rows agree with the cell.
const _: () = assert!(WEIGHT_LATENCY == READ_LATENCY && ROW_LATENCY == 1 && MODE_LAG == 1);

/// Rows that share one copy of the column operands.
const COLUMN_LOADS: usize = 16;
/// Columns that share one copy of the segment's number.
const SEGMENT_LOADS: usize = 2;

/// Context of the operand side.
pub(super) struct Edge<'c, 'm, 'a> {
    pub m: &'m Module,
    pub cfg: &'c MatConfig<'a>,
    pub t: &'c MatTiming,
    pub w: &'c MatPorts,
    pub fields: &'c Fields<'m, 'a>,
    pub slot: &'c Slot<'m>,
}

impl<'m> Edge<'_, 'm, '_> {
    fn b(&self) -> usize {
        self.cfg.shape.b
    }

    /// Address generator of the operand `side`: rotation of the slot, bank addresses at
    /// `t.address`.
    fn addresses(&self, side: &str, bits: u32) -> Result<(Sig<'m>, Vec<Sig<'m>>), DslError> {
        let field = |name: &str| self.fields.incoming(&format!("{side}_{name}"));
        let unit = self
            .m
            .instance(&format!("u_{side}_stream"), &stream(bits, self.b())?)
            .input("load", self.slot.start)
            .input("addr", fit(field("addr"), bits))
            .input("rot0", fit(field("rot"), rot_bits(self.b())))
            .input("pitch", fit(field("pitch"), bits))
            .input("h", field("h"))
            .input("step", self.slot.step);
        let rot = unit.output("rot");
        let addr = (0..self.b()).map(|k| unit.output(&format!("addr_{k}")));
        Ok((rot, addr.collect()))
    }

    /// Read port of the activation groups for `side`.
    fn act_port(&self, side: &str, enable: Sig<'m>, addr: &[Sig<'m>]) -> Vec<Sig<'m>> {
        let m = self.m;
        m.port_group(&format!("activations of the {side} lanes"));
        let en = Line::flag(m, &format!("{side}_en"), enable, 0).at(self.t.address);
        m.output(&format!("{side}_en"), en);
        let group = fit(self.fields.held(&format!("{side}_group")), self.w.group);
        let group = Line::value(m, &format!("{side}_group"), group, 0).at(self.t.address);
        m.output(&format!("{side}_group"), group);
        for (k, addr) in addr.iter().enumerate() {
            m.output(&format!("{side}_addr_{k}"), fit(*addr, self.w.act_addr));
        }
        (0..self.b())
            .map(|k| m.input(&format!("{side}_data_{k}"), 32))
            .collect()
    }

    /// Rotates aligned words to lanes; `rot` belongs to the slot.
    fn to_lanes(
        &self,
        side: &str,
        rot: Sig<'m>,
        words: &[Sig<'m>],
    ) -> Result<Vec<Sig<'m>>, DslError> {
        let def = rotator(Turn::ToLanes, OPERAND_BITS, self.b(), None)?;
        let rot = Line::value(self.m, &format!("{side}_rot"), rot, 0).at(self.t.aligned - 1);
        let mut unit = self
            .m
            .instance(&format!("u_{side}_rotate"), &def)
            .input("rot", rot);
        for (k, word) in words.iter().enumerate() {
            unit = unit.input(&format!("x_{k}"), *word);
        }
        Ok((0..self.b())
            .map(|k| unit.output(&format!("y_{k}")))
            .collect())
    }

    /// Column operands at the cells, one copy per row.
    pub fn columns(&self, emax: &Line<'m>) -> Result<Vec<Vec<Sig<'m>>>, DslError> {
        let (m, t, b) = (self.m, self.t, self.b());
        m.section("column operands");
        let (rot, addr) = self.addresses("col", self.w.act_addr)?;
        let one_hot = self.fields.is("col_kind", 1);
        let data = self.act_port("col", self.slot.step & !one_hot, &addr);
        let hits = self.token_hits(one_hot);
        let emax = copies(m, "col_emax_to", emax.at(t.data - 1), b, LANE_LOADS);
        let hot = Line::value(m, "col_one_hot", one_hot, 0).at(t.data + UNIT_LAG - 1);
        let hot = copies(m, "col_one_hot_to", hot, b, 2 * LANE_LOADS);
        let aligner = aligner()?;
        let aligned: Vec<Sig<'m>> = (0..b)
            .map(|k| {
                m.instance(&format!("u_col_aligner_{k}"), &aligner)
                    .input("x", data[k])
                    .input("emax", emax[k])
                    .input("unit", hot[k])
                    .input("hit", hits[k])
                    .output("q")
            })
            .collect();
        // The one-hot of lane c comes from bank c.
        let rot = rot & (!one_hot).repeat(rot.width());
        let lanes = self.to_lanes("col", rot, &aligned)?;
        let rows = segment_rows(b);
        let per_lane: Vec<Vec<Sig<'m>>> = lanes
            .iter()
            .enumerate()
            .map(|(c, lane)| {
                // Every segment works as many cycles behind the one above as it has rows.
                let mut lane = *lane;
                let mut list = vec![];
                for (g, first) in (0..b).step_by(rows).enumerate() {
                    if g > 0 {
                        let name = format!("col_{c}_to_s{g}");
                        lane = register_delay(m, &name, lane, rows as u32);
                    }
                    let loads = rows.min(b - first);
                    list.extend(copies(
                        m,
                        &format!("col_{c}_s{g}"),
                        lane,
                        loads,
                        COLUMN_LOADS,
                    ));
                }
                list
            })
            .collect();
        Ok((0..b)
            .map(|r| per_lane.iter().map(|copy| copy[r]).collect())
            .collect())
    }

    /// Whether column lane c is hot, at `t.data + UNIT_LAG`. V: token of lane c is the step.
    /// H: token of the step is `v0 + c`.
    fn token_hits(&self, one_hot: Sig<'m>) -> Vec<Sig<'m>> {
        let (m, t, w, b) = (self.m, self.t, self.w, self.b());
        m.section("one-hot of the tokens");
        // One cycle earlier than the banks: the comparison takes two.
        let port = t.address - 1;
        let answer = port + READ_LATENCY;
        let by_row = self.fields.held("col_h");
        let start = self.fields.held("col_addr");
        let width = w.token.max(w.token_index);
        let number = m.reg("step_number_q", width);
        number
            .set_next(m.mux(self.slot.start, m.lit(0, width), number.q().add_const(1)))
            .with_enable(self.slot.start | self.slot.step);
        let step = Line::value(m, "step_number", number.q(), 0);
        m.port_group("tokens");
        let v_en = self.slot.step & one_hot & !by_row;
        m.output("tok_v_en", Line::flag(m, "tok_v_en", v_en, 0).at(port));
        let tile = Line::value(m, "tok_tile", fit(start, w.token_tile), 0);
        m.output("tok_v_addr", tile.at(port));
        let lanes: Vec<Sig<'m>> = (0..b)
            .map(|c| m.input(&format!("tok_lane_{c}"), w.token))
            .collect();
        m.output("tok_h_addr", fit(step.at(port), w.token_index));
        let token = m.input("tok_h", w.token);

        let compared = fit(step.at(answer - 1), w.token);
        let compared = copies(m, "step_number_to", compared, b, LANE_LOADS);
        // A lane beyond the last token value may match after wrapping; it is never used.
        let wide = w.token.max(bits_for(b - 1));
        let v0 = Line::value(m, "one_hot_v0", fit(start, wide), 0).at(answer);
        let lane_of_token = token.zext(wide) - v0;
        let lane_of_token = copies(m, "hot_lane", lane_of_token, b, LANE_LOADS);
        let h = Line::value(m, "one_hot_h", by_row, 0).at(answer);
        let h = copies(m, "one_hot_h_to", h, b, 2 * LANE_LOADS);
        (0..b)
            .map(|c| {
                let v = m.pipe(&format!("v_hit_{c}"), lanes[c].eq(compared[c]), 1);
                let hit = m.mux(h[c], lane_of_token[c].eq_const(c as u128), v);
                m.pipe(&format!("hit_{c}"), hit, 1)
            })
            .collect()
    }

    /// Row operands and the array. Returns the sums of the row that leaves, at `t.sum`.
    pub fn rows(&self, emax: &Line<'m>, cols: &[Vec<Sig<'m>>]) -> Result<Vec<Sig<'m>>, DslError> {
        let (m, t, w, b) = (self.m, self.t, self.w, self.b());
        m.section("row operands");
        let (rot, addr) = self.addresses("row", w.act_addr.max(w.weight_addr))?;
        let weights = self.fields.is("row_kind", 0);
        let acts = self.fields.is("row_kind", 1);
        let data = self.act_port("row", self.slot.step & acts, &addr);
        let weight_en = Line::flag(m, "weight_en", self.slot.step & weights, 0).at(t.address);
        let use_weight = Line::value(m, "use_weight", weights, 0).at(t.data - 1);
        let use_weight = copies(m, "use_weight_to", use_weight, b, LANE_LOADS);
        let emax = copies(m, "row_emax_to", emax.at(t.data - 1), b, LANE_LOADS);
        let ones = self.fields.is("row_kind", 2);
        let ones = Line::value(m, "row_ones", ones, 0).at(t.data + UNIT_LAG - 1);
        let ones = copies(m, "row_ones_to", ones, b, 2 * LANE_LOADS);
        let rows = segment_rows(b);
        // The row adds its own register, so the mode enters with the operands.
        let first = self.slot.first_step;
        let mode = [
            ("mul", self.slot.step),
            ("keep", !(first | self.slot.shift)),
            ("shift", self.slot.shift),
        ]
        .map(|(name, s)| {
            let line = Line::value(m, name, s, 0);
            let mut list = vec![];
            for (g, first) in (0..b).step_by(rows).enumerate() {
                let early = line.at(t.operands - 1 + first as u32);
                let loads = rows.min(b - first);
                list.extend(copies(m, &format!("{name}_s{g}"), early, loads, LANE_LOADS));
            }
            (name, list)
        });

        m.section("rows of the array; in a segment the sums of row r + 1 move to row r");
        m.port_group("port B of the weight banks");
        let def = neuron_core(self.cfg.format, self.cfg.shape.weight_depth, b)?;
        let mut units = Vec::with_capacity(b);
        for r in 0..b {
            let mut unit = m
                .instance(&format!("u_neuron_{r}"), &def)
                .input("wa_addr", fit(addr[r], w.weight_addr))
                .input("wa_en", weight_en)
                .input("act", data[r])
                .input("use_weight", use_weight[r])
                .input("emax", emax[r])
                .input("ones", ones[r]);
            for (name, width) in [
                ("wb_addr", w.weight_addr),
                ("wb_en", 1),
                ("wb_we", 1),
                ("wb_wdata", w.weight),
            ] {
                unit = unit.input(name, m.input(&format!("{name}_{r}"), width));
            }
            for (name, copy) in &mode {
                unit = unit.input(name, copy[r]);
            }
            for (c, col) in cols[r].iter().enumerate() {
                unit = unit.input(&format!("col_{c}"), *col);
            }
            units.push(unit);
        }
        for (r, unit) in units.iter().enumerate() {
            m.output(&format!("wb_rdata_{r}"), unit.output("wb_rdata"));
        }
        let aligned: Vec<Sig<'m>> = units.iter().map(|u| u.output("q")).collect();
        let lanes = self.to_lanes("row", rot, &aligned)?;
        for (r, unit) in units.iter().enumerate() {
            let behind = (r / rows * rows) as u32;
            let lane = register_delay(m, &format!("row_{r}"), lanes[r], behind);
            unit.input("row", lane);
            for c in 0..b {
                let next = match units.get(r + 1) {
                    Some(below) if (r + 1) % rows != 0 => below.output(&format!("pc_out_{c}")),
                    _ => m.lit(0, SUM_BITS),
                };
                unit.input(&format!("pc_in_{c}"), next);
            }
        }
        m.section("the row that leaves is the first of its segment");
        let segment = Line::value(m, "segment", self.slot.segment, 1).at(t.heads - 1);
        let segment = copies(m, "segment_to", segment, b, SEGMENT_LOADS);
        let heads: Vec<&Instance<'m>> = units.iter().step_by(rows).collect();
        Ok((0..b)
            .map(|c| {
                let port = format!("p_{c}");
                let sums: Vec<Sig<'m>> = heads.iter().map(|u| u.output(&port)).collect();
                m.pipe(&format!("sum_{c}"), m.select(segment[c], &sums), 1)
            })
            .collect())
    }
}
