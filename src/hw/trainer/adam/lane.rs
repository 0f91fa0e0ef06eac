//! One Adam lane: an update per cycle (`docs/arithmetic.md` section 5).
//!
//! Area of a plain lane, synthesised with Yosys 0.70 (`synth_xilinx -family xcup`, flattened):
//!
//! | weights, moments | LUT1-6 | shift-register LUT | FF | DSP |
//! |---|---|---|---|---|
//! | BF16 nearest, FP32 | 3552 | 259 | 3058 | 12 |
//! | BF16 stochastic, BF16 | 4167 | 307 | 3640 | 10 |
//!
//! The sums of `v'` and of the divisor never cancel; adders without a normaliser there would
//! save some 200 LUT each.

use super::format;
use super::hash;
use crate::config::model::{LayerNormOptimizer, MomentFormat, Rounding, WeightFormat};
use crate::dsl::{DslError, Module, ModuleDef, Sig};
use crate::hw::fp::{
    self, ADD_LATENCY as ADD, DIV_LATENCY as DIV, MUL_LATENCY as MUL, SQRT_LATENCY as SQRT,
};
use std::sync::Arc;

/// The hash counter enters this many cycles before the operands it belongs to: the address
/// generator has it as early as that, and the random bits are then ready for the moments.
pub const HASH_LEAD: u32 = 2;

/// Formats and role of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdamLane {
    pub weights: WeightFormat,
    pub moments: MomentFormat,
    pub rounding: Rounding,
    /// The lane that also updates LayerNorm parameters, and by which rule.
    pub layernorm: Option<LayerNormOptimizer>,
}

impl AdamLane {
    /// Whether random bits are needed at all.
    pub fn hashes(&self) -> bool {
        self.moments != MomentFormat::Fp32
            || format::weight_random_bits(self.weights, self.rounding) > 0
    }

    /// Cycles from 8-bit codes to FP32 moments; all other operands are delayed as much.
    fn decode_latency(&self) -> u32 {
        match self.moments {
            MomentFormat::Int8 => 1 + MUL,
            _ => 0,
        }
    }

    fn moment_ready(&self) -> u32 {
        let arithmetic = 2 * MUL + ADD;
        match self.moments {
            MomentFormat::Fp32 => arithmetic,
            MomentFormat::Bf16 => arithmetic.max(hash::LATENCY - HASH_LEAD),
            // The code of v' is that of its root.
            MomentFormat::Int8 => self.decode_latency() + arithmetic + SQRT,
        }
    }

    /// Cycles from the operands to `m_new`, `v_new`.
    pub fn moment_latency(&self) -> u32 {
        self.moment_ready() + 1
    }

    /// Cycles from the operands to `w_new`.
    pub fn weight_latency(&self) -> u32 {
        self.decode_latency() + 3 * MUL + 3 * ADD + SQRT + DIV + 1
    }

    /// Module `nf_adam_lane`, or `nf_adam_lane_layernorm` with [`AdamLane::layernorm`].
    ///
    /// Operands of one parameter per cycle: `valid`, `g` (FP32), `w`, `m`, `v` (stored bits);
    /// `hash_x0`, `hash_x1` [`HASH_LEAD`] cycles earlier; with LayerNorm also `layernorm` and
    /// `ln_w`, `ln_m`, `ln_v` (FP32), which replace the stored operands. Held scalars: `beta1`,
    /// `one_minus_beta1`, `beta2`, `one_minus_beta2`, `alpha`, `eps_t`, (`lr`), `seed`, `step`.
    ///
    /// Results: `moment_valid`, `m_new`, `v_new` (`ln_m_new`, `ln_v_new`) after
    /// [`AdamLane::moment_latency`]; `weight_valid`, `w_new` (`ln_w_new`) after
    /// [`AdamLane::weight_latency`]; `moment_bad` and `weight_bad` mark an Inf or NaN among them.
    /// Gradient descent delivers `ln_w_new` with the moments, and `weight_valid` stays low.
    ///
    /// With 8-bit blocks `m` and `v` are codes, and `m_scale`, `v_scale` come one cycle after them. Results are then
    /// `m_new` (FP32), `root_new` (of v', without sign), `m_random` and `v_random`.
    pub fn build(&self) -> Result<Arc<ModuleDef>, DslError> {
        let module = Module::new(match self.layernorm {
            Some(_) => "nf_adam_lane_layernorm",
            None => "nf_adam_lane",
        });
        let m = &module;
        m.doc(&format!(
            "Adam update, one parameter per cycle; moments after {} cycles, weight after {}.",
            self.moment_latency(),
            self.weight_latency()
        ));
        let sgd = self.layernorm == Some(LayerNormOptimizer::Sgd);
        for pair in ["valid", "moment", "weight"] {
            m.valid_only(pair);
        }

        m.port_group("Operands");
        let valid = m.input("valid", 1);
        let g = m.input("g", 32);
        let stored = [
            m.input("w", self.weights.bits()),
            m.input("m", format::moment_bits(self.moments)),
            m.input("v", format::moment_bits(self.moments)),
        ];
        let layernorm = self.layernorm.map(|_| m.input("layernorm", 1));
        let blocks = self.moments == MomentFormat::Int8;
        let decode = self.decode_latency();
        let valid = m.delay("valid_in", valid, decode);
        let g = m.delay("g_in", g, decode);
        let layernorm = layernorm.map(|flag| m.delay("layernorm_in", flag, decode));
        let stored = [m.delay("w_in", stored[0], decode), stored[1], stored[2]];
        // Delay lines carry the stored bits; only a LayerNorm operand needs all 32.
        let operand = |k: usize, name: &str| match layernorm {
            Some(flag) if k == 0 || !sgd => {
                let word = m.delay(&format!("{name}_in"), m.input(name, 32), decode);
                m.mux(flag, word, format::unpack(m, stored[k]))
            }
            _ => stored[k],
        };
        let (w0, m0, v0) = match blocks {
            true => self.decode(m, operand(0, "ln_w"), [stored[1], stored[2]], layernorm),
            false => (operand(0, "ln_w"), operand(1, "ln_m"), operand(2, "ln_v")),
        };
        m.port_group("Scalars of the step");
        let beta1 = m.input("beta1", 32);
        let one_minus_beta1 = m.input("one_minus_beta1", 32);
        let beta2 = m.input("beta2", 32);
        let one_minus_beta2 = m.input("one_minus_beta2", 32);
        let alpha = m.input("alpha", 32);
        let eps_t = m.input("eps_t", 32);
        let random = self.hash(m)?;

        m.section("m' = b1*m + c1*g");
        let sgd_flag = layernorm.filter(|_| sgd);
        let g_factor = match sgd_flag {
            Some(flag) => m.mux(flag, m.input("lr", 32), one_minus_beta1),
            None => one_minus_beta1,
        };
        let beta1_m = fp::mul(m, "u_beta1_m", beta1, format::unpack(m, m0));
        let scaled_g = fp::mul(m, "u_scaled_g", g_factor, g);
        let w_mul = m.delay("w_mul", w0, MUL);
        // Gradient descent passes through the same adder: w - lr*g.
        let (m_left, m_right) = match sgd_flag {
            Some(flag) => {
                let late = m.delay("sgd_flag", flag, MUL);
                (
                    m.mux(late, w_mul, beta1_m),
                    m.mux(late, format::negate(m, scaled_g), scaled_g),
                )
            }
            None => (beta1_m, scaled_g),
        };
        let m_new = fp::add(m, "u_m_new", m_left, m_right).named("m_fp32");

        m.section("v' = b2*v + c2*(g*g)");
        let g_squared = fp::mul(m, "u_g_squared", g, g);
        let scaled_g2 = fp::mul(m, "u_scaled_g2", one_minus_beta2, g_squared);
        let v_mul = match blocks {
            true => v0,
            false => m.delay("v_mul", v0, MUL),
        };
        let beta2_v = fp::mul(m, "u_beta2_v", beta2, format::unpack(m, v_mul));
        let v_new = fp::add(m, "u_v_new", beta2_v, scaled_g2).named("v_fp32");

        m.section("Moments leave");
        let m_at_v = m.delay("m_at_v", m_new, MUL);
        let root = blocks.then(|| fp::sqrt(m, "u_root", v_new));
        let wait = self.moment_ready() - (decode + 2 * MUL + ADD);
        let m_out = m.delay("m_out", m_at_v, wait);
        let v_out = match root {
            Some(root) if layernorm.is_none() || sgd => root,
            _ => m.delay("v_out", v_new, wait),
        };
        let (m_random, v_random) = random.map_or((None, None), |[y0, y1]| {
            let age = hash::LATENCY - HASH_LEAD;
            let late = |name: &str, bits| m.delay(name, bits, self.moment_ready() - age);
            match self.moments {
                MomentFormat::Bf16 | MomentFormat::Int8 => (
                    Some(late("m_random", y0.slice(31, 16))),
                    Some(late("v_random", y1.trunc(16))),
                ),
                _ => (None, None),
            }
        });
        let store = |x, random| match random {
            Some(random) if !blocks => format::round(m, x, 16, random),
            _ => x,
        };
        let moment_valid = m.delay("moment_valid", valid, self.moment_ready() - decode);
        m.output("moment_valid", m.pipe("moment_out_valid", moment_valid, 1));
        m.output("m_new", m.pipe("m_new", store(m_out, m_random), 1));
        match root {
            Some(root) => {
                m.output("root_new", m.pipe("root_new", root.trunc(31), 1));
                for (name, random) in [("m_random", m_random), ("v_random", v_random)] {
                    let bits = random.unwrap_or(m.lit(0, 16));
                    m.output(name, m.pipe(&format!("{name}_out"), bits, 1));
                }
            }
            None => m.output("v_new", m.pipe("v_new", store(v_out, v_random), 1)),
        }
        // Gradient descent has no second moment: what its path computes means nothing.
        let v_bad = match sgd_flag {
            Some(flag) => {
                let late = m.delay("sgd_late", flag, self.moment_ready() - decode);
                format::not_finite(v_out) & !late
            }
            None => format::not_finite(v_out),
        };
        let bad = moment_valid & (format::not_finite(m_out) | v_bad);
        m.output("moment_bad", m.pipe("moment_bad", bad, 1));
        if layernorm.is_some() && !sgd {
            m.output("ln_m_new", m.pipe("ln_m_new", m_out, 1));
            m.output("ln_v_new", m.pipe("ln_v_new", v_out, 1));
        }
        if sgd {
            m.output("ln_w_new", m.pipe("ln_w_new", m_out, 1));
        }

        m.section("u = m' / (sqrt(v') + eps_t)");
        let root = match root {
            Some(root) => root,
            None => fp::sqrt(m, "u_root", v_new),
        };
        let divisor = fp::add(m, "u_divisor", root, eps_t);
        let dividend = match blocks {
            true => m.delay("dividend", m_out, ADD),
            false => m.delay("dividend", m_at_v, SQRT + ADD),
        };
        let update = fp::div(m, "u_update", dividend, divisor);

        m.section("w' = w - alpha*u");
        let change = fp::mul(m, "u_change", alpha, update);
        let w_ready = self.weight_latency() - 1;
        let w_old = m.delay("w_old", w_mul, w_ready - decode - ADD - MUL);
        let w_new = fp::sub(m, "u_w_new", format::unpack(m, w_old), change).named("w_fp32");
        let updates_weight = sgd_flag.map_or(valid, |flag| valid & !flag);
        let weight_valid = m.delay("weight_valid", updates_weight, w_ready - decode);
        let w_random = random
            .filter(|_| format::weight_random_bits(self.weights, self.rounding) > 0)
            .map(|[y0, _]| {
                let bits = format::weight_random_bits(self.weights, self.rounding);
                m.delay(
                    "w_random",
                    y0.trunc(bits),
                    w_ready + HASH_LEAD - hash::LATENCY,
                )
            });
        let stored = match format::weight_addend(m, self.weights, self.rounding, w_random) {
            Some(addend) => format::round(m, w_new, self.weights.bits(), addend),
            None => w_new,
        };
        m.output("weight_valid", m.pipe("weight_out_valid", weight_valid, 1));
        m.output("w_new", m.pipe("w_new", stored, 1));
        let bad = weight_valid & format::not_finite(w_new);
        m.output("weight_bad", m.pipe("weight_bad", bad, 1));
        if layernorm.is_some() && !sgd {
            m.output("ln_w_new", m.pipe("ln_w_new", w_new, 1));
        }
        module.finish()
    }

    /// Operands of a lane with 8-bit blocks: w, m, and v (the latter one multiplication later than the others).
    fn decode<'m>(
        &self,
        m: &'m Module,
        w: Sig<'m>,
        codes: [Sig<'m>; 2],
        layernorm: Option<Sig<'m>>,
    ) -> (Sig<'m>, Sig<'m>, Sig<'m>) {
        m.section("Moments of codes: m = cm*sm, v = (cv*sv)^2");
        let sign = codes[0].msb();
        let magnitude = (codes[0] ^ sign.repeat(8)) + sign.zext(8);
        let m_code = format::small_integer(m, sign, magnitude);
        let m_code = m.reg_next("m_code_q", m_code).q();
        let v_code = format::small_integer(m, m.lit(0, 1), codes[1]);
        let v_code = m.reg_next("v_code_q", v_code).q();
        let m_old = fp::mul(m, "u_m_old", m_code, m.input("m_scale", 32));
        let rho = fp::mul(m, "u_rho", v_code, m.input("v_scale", 32));
        let v_old = fp::mul(m, "u_v_old", rho, rho);
        match layernorm.filter(|_| self.layernorm != Some(LayerNormOptimizer::Sgd)) {
            Some(flag) => {
                let ln_m = m.delay("ln_m_in", m.input("ln_m", 32), 1 + MUL);
                let ln_v = m.delay("ln_v_in", m.input("ln_v", 32), 1 + 2 * MUL);
                let late = m.delay("layernorm_at_v", flag, MUL);
                (w, m.mux(flag, ln_m, m_old), m.mux(late, ln_v, v_old))
            }
            None => (w, m_old, v_old),
        }
    }

    /// The random words of the update, `hash::LATENCY - HASH_LEAD` cycles after the operands.
    fn hash<'m>(&self, m: &'m Module) -> Result<Option<[Sig<'m>; 2]>, DslError> {
        if !self.hashes() {
            return Ok(None);
        }
        m.port_group("Random bits: key, and counter with the first key injection");
        let hash = m.instance("u_hash", &hash::threefry8()?);
        for (port, name) in [
            ("k0", "seed"),
            ("k1", "step"),
            ("x0", "hash_x0"),
            ("x1", "hash_x1"),
        ] {
            hash.input(port, m.input(name, 32));
        }
        Ok(Some([hash.output("y0"), hash.output("y1")]))
    }
}
