//! In-order retirement of instructions that finish after different times.

use crate::dsl::{MemSpec, MemStyle, Module, Reg, Sig};

/// Instructions in flight at most.
pub const QUEUE: u32 = 16;

/// Kinds of the started instructions in order, and finished ones not yet retired.
pub struct RetireQueue<'m> {
    m: &'m Module,
    /// Instructions started and not retired.
    count: Reg<'m>,
    bits: u32,
}

impl<'m> RetireQueue<'m> {
    pub fn new(m: &'m Module) -> Self {
        let bits = crate::trainer::encode::bits_for(QUEUE as usize);
        RetireQueue {
            m,
            count: m.reg("in_flight_q", bits).with_reset(0),
            bits,
        }
    }

    /// One more instruction may start.
    pub fn room(&self) -> Sig<'m> {
        self.count.q().ne(self.m.lit(u128::from(QUEUE), self.bits))
    }

    /// Connects the queue and returns the `retire` pulse. An instruction `started` is finished
    /// by `posted` if it has a post operation (`posts`), else by `plain`; each of the two pulses
    /// belongs to the oldest unfinished instruction of its kind.
    pub fn connect(
        self,
        started: Sig<'m>,
        posts: Sig<'m>,
        plain: Sig<'m>,
        posted: Sig<'m>,
        clear: Sig<'m>,
    ) -> Sig<'m> {
        let (m, bits) = (self.m, self.bits);
        m.section("Retirement in order");
        let zero = m.lit(0, bits);
        let pointer = |name: &str, step: Sig<'m>| {
            let r = m.reg(name, bits - 1).with_reset(0);
            let next = m.mux(step, r.q().add_const(1), r.q());
            r.set_next(m.mux(clear, m.lit(0, bits - 1), next)).q()
        };
        let kinds = m.mem(
            "kinds",
            MemSpec {
                depth: QUEUE,
                width: 1,
                style: MemStyle::Distributed,
                ..MemSpec::default()
            },
        );
        kinds.write(pointer("tail_at_q", started), posts, started);
        let head = m.reg("head_at_q", bits - 1).with_reset(0);
        let kind = kinds.read_comb(head.q());
        // Finished but not retired, by kind.
        let (plain_count, posted_count) = (
            m.reg("plain_done_q", bits).with_reset(0),
            m.reg("posted_done_q", bits).with_reset(0),
        );
        let some = |r: Reg<'m>, pulse: Sig<'m>| r.q().or_reduce().or(pulse);
        let go = self
            .count
            .q()
            .or_reduce()
            .and(m.mux(kind, some(posted_count, posted), some(plain_count, plain)))
            .named("retire_now");
        let head_next = m.mux(go, head.q().add_const(1), head.q());
        head.set_next(m.mux(clear, m.lit(0, bits - 1), head_next));
        let count = |r: Reg<'m>, up: Sig<'m>, down: Sig<'m>| {
            let sum = r.q().add(up.zext(bits)).sub(down.zext(bits));
            r.set_next(m.mux(clear, zero, sum));
        };
        count(self.count, started, go);
        count(plain_count, plain, go.and(kind.not()));
        count(posted_count, posted, go.and(kind));
        m.reg_next("retire_q", go).with_reset(0).q()
    }
}
