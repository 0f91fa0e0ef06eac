//! State machines with named states.

use super::module::Module;
use super::signal::Sig;
use super::state::{Reg, addr_width};

/// A state register and the named constants of its states. Resets to the first state.
pub struct Fsm<'m> {
    module: &'m Module,
    reg: Reg<'m>,
    states: Vec<(String, Sig<'m>)>,
}

impl<'m> Fsm<'m> {
    /// The state register's value.
    pub fn q(&self) -> Sig<'m> {
        self.reg.q()
    }

    /// The constant of a state.
    #[track_caller]
    pub fn state(&self, name: &str) -> Sig<'m> {
        match self.states.iter().find(|(n, _)| n == name) {
            Some((_, s)) => *s,
            None => {
                let known: Vec<&str> = self.states.iter().map(|(n, _)| n.as_str()).collect();
                self.module
                    .report(format!("no state `{name}`; known: {}", known.join(", ")));
                self.module.poison()
            }
        }
    }

    /// Whether the machine is in a state, 1 bit.
    #[track_caller]
    pub fn is(&self, name: &str) -> Sig<'m> {
        self.q().eq(self.state(name))
    }

    /// Whether the machine is in one of several states, 1 bit.
    #[track_caller]
    pub fn is_any(&self, names: &[&str]) -> Sig<'m> {
        let mut any = self.module.lit(0, 1);
        for name in names {
            any = any.or(self.is(name));
        }
        any
    }

    /// Connects the next state directly.
    #[track_caller]
    pub fn set_next(&self, next: Sig<'_>) {
        self.reg.set_next(next);
    }

    /// Connects the next state from a list of `(from, condition, to)`. Of one state the first
    /// condition that holds wins; without one the machine stays. Returns the next state.
    #[track_caller]
    pub fn transitions(&self, table: &[(&str, Sig<'m>, &str)]) -> Sig<'m> {
        let mut arms = vec![];
        for (value, (name, _)) in self.states.iter().enumerate() {
            let mut next = self.q();
            for (_, condition, to) in table.iter().rev().filter(|(from, ..)| from == name) {
                next = self.module.mux(*condition, self.state(to), next);
            }
            arms.push((value as u128, next));
        }
        for (from, ..) in table {
            self.state(from);
        }
        let next = self.module.case(self.q(), &arms, self.states[0].1);
        self.reg.set_next(next);
        next
    }
}

impl Module {
    /// A state machine with register `name` and the given states, in binary code.
    /// State `Idle` of `state_q` becomes the constant `STATE_IDLE`.
    #[track_caller]
    pub fn fsm<'m>(&'m self, name: &str, states: &[&str]) -> Fsm<'m> {
        if states.is_empty() {
            self.report(format!("state machine `{name}` has no states"));
        }
        let width = addr_width(states.len() as u32);
        let prefix = name.strip_suffix("_q").unwrap_or(name).to_uppercase();
        let reg = self.reg(name, width).with_reset(0);
        let list = states
            .iter()
            .enumerate()
            .map(|(value, state)| {
                let constant = format!("{prefix}_{}", upper_snake(state));
                let sig = self.localparam(&constant, value as u128, width);
                (state.to_string(), sig)
            })
            .collect();
        Fsm {
            module: self,
            reg,
            states: list,
        }
    }
}

/// `WeightRead` and `weight_read` become `WEIGHT_READ`.
fn upper_snake(name: &str) -> String {
    let mut out = String::new();
    let mut after_lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && after_lower {
            out.push('_');
        }
        after_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        out.push(c.to_ascii_uppercase());
    }
    out
}
