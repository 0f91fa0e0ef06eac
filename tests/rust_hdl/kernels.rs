//! The two leaves as rust-hdl kernels.

use rust_hdl::prelude::*;

/// fl(a + b), without registers.
#[derive(LogicBlock, Default)]
pub struct Fp32Add {
    pub a: Signal<In, Bits<32>>,
    pub b: Signal<In, Bits<32>>,
    pub y: Signal<Out, Bits<32>>,
    big: Signal<Local, Bits<32>>,
    small: Signal<Local, Bits<32>>,
    distance: Signal<Local, Bits<32>>,
    wide_big: Signal<Local, Bits<32>>,
    wide_small: Signal<Local, Bits<32>>,
    aligned: Signal<Local, Bits<32>>,
    subtract: Signal<Local, Bit>,
    sum: Signal<Local, Bits<32>>,
    by16: Signal<Local, Bits<32>>,
    by8: Signal<Local, Bits<32>>,
    by4: Signal<Local, Bits<32>>,
    by2: Signal<Local, Bits<32>>,
    by1: Signal<Local, Bits<32>>,
    zeros16: Signal<Local, Bits<12>>,
    zeros8: Signal<Local, Bits<12>>,
    zeros4: Signal<Local, Bits<12>>,
    zeros2: Signal<Local, Bits<12>>,
    zeros1: Signal<Local, Bits<12>>,
    exponent: Signal<Local, Bits<12>>,
    rounded: Signal<Local, Bits<36>>,
    magnitude: Signal<Local, Bits<32>>,
    sign: Signal<Local, Bits<32>>,
}

impl Logic for Fp32Add {
    #[hdl_gen]
    fn update(&mut self) {
        // Order by magnitude.
        self.big.next = self.a.val();
        self.small.next = self.b.val();
        if self.a.val().get_bits::<31>(0) < self.b.val().get_bits::<31>(0) {
            self.big.next = self.b.val();
            self.small.next = self.a.val();
        }
        // Significands with four bits below, zero for a subnormal.
        self.wide_big.next = bits::<32>(0);
        if self.big.val().get_bits::<8>(23).any() {
            self.wide_big.next =
                (bit_cast::<32, 23>(self.big.val().get_bits::<23>(0)) << 4) | 0x0800_0000;
        }
        self.wide_small.next = bits::<32>(0);
        if self.small.val().get_bits::<8>(23).any() {
            self.wide_small.next =
                (bit_cast::<32, 23>(self.small.val().get_bits::<23>(0)) << 4) | 0x0800_0000;
        }
        // Align; a lost one stays as the lowest bit.
        self.distance.next = bit_cast::<32, 8>(self.big.val().get_bits::<8>(23))
            - bit_cast::<32, 8>(self.small.val().get_bits::<8>(23));
        self.aligned.next = bits::<32>(0);
        if self.distance.val() < 28 {
            self.aligned.next = self.wide_small.val() >> self.distance.val();
            if ((self.wide_small.val() >> self.distance.val()) << self.distance.val())
                != self.wide_small.val()
            {
                self.aligned.next = (self.wide_small.val() >> self.distance.val()) | 1;
            }
        } else {
            if self.wide_small.val().any() {
                self.aligned.next = bits::<32>(1);
            }
        }
        self.subtract.next = self.a.val().get_bit(31) ^ self.b.val().get_bit(31);
        self.sum.next = self.wide_big.val() + self.aligned.val();
        if self.subtract.val() {
            self.sum.next = self.wide_big.val() - self.aligned.val();
        }
        // Bring the leading one to bit 31, counting the places.
        self.by16.next = self.sum.val();
        self.zeros16.next = bits::<12>(0);
        if !self.sum.val().get_bits::<16>(16).any() {
            self.by16.next = self.sum.val() << 16;
            self.zeros16.next = bits::<12>(16);
        }
        self.by8.next = self.by16.val();
        self.zeros8.next = self.zeros16.val();
        if !self.by16.val().get_bits::<8>(24).any() {
            self.by8.next = self.by16.val() << 8;
            self.zeros8.next = self.zeros16.val() + 8;
        }
        self.by4.next = self.by8.val();
        self.zeros4.next = self.zeros8.val();
        if !self.by8.val().get_bits::<4>(28).any() {
            self.by4.next = self.by8.val() << 4;
            self.zeros4.next = self.zeros8.val() + 4;
        }
        self.by2.next = self.by4.val();
        self.zeros2.next = self.zeros4.val();
        if !self.by4.val().get_bits::<2>(30).any() {
            self.by2.next = self.by4.val() << 2;
            self.zeros2.next = self.zeros4.val() + 2;
        }
        self.by1.next = self.by2.val();
        self.zeros1.next = self.zeros2.val();
        if !self.by2.val().get_bit(31) {
            self.by1.next = self.by2.val() << 1;
            self.zeros1.next = self.zeros2.val() + 1;
        }
        // A one in bit 27 of the sum has the larger operand's exponent; 256 keeps it positive.
        self.exponent.next =
            bit_cast::<12, 8>(self.big.val().get_bits::<8>(23)) + 260 - self.zeros1.val();
        self.rounded.next = (bit_cast::<36, 12>(self.exponent.val()) << 23)
            + bit_cast::<36, 23>(self.by1.val().get_bits::<23>(8));
        if self.by1.val().get_bit(7)
            && (self.by1.val().get_bits::<7>(0).any() || self.by1.val().get_bit(8))
        {
            self.rounded.next = (bit_cast::<36, 12>(self.exponent.val()) << 23)
                + bit_cast::<36, 23>(self.by1.val().get_bits::<23>(8))
                + 1;
        }
        self.magnitude.next = bit_cast::<32, 31>(self.rounded.val().get_bits::<31>(0));
        if self.rounded.val().get_bits::<12>(23) >= 511 {
            self.magnitude.next = bits::<32>(0x7f80_0000);
        }
        if self.rounded.val().get_bits::<12>(23) <= 256 {
            self.magnitude.next = bits::<32>(0);
        }
        self.sign.next = bit_cast::<32, 1>(self.big.val().get_bits::<1>(31)) << 31;
        if !self.sum.val().any() {
            self.magnitude.next = bits::<32>(0);
            if self.subtract.val() {
                self.sign.next = bits::<32>(0);
            }
        }
        if self.big.val().get_bits::<8>(23).all() {
            self.magnitude.next = bits::<32>(0x7f80_0000);
            if self.big.val().get_bits::<23>(0).any()
                || (self.small.val().get_bits::<8>(23).all() && self.subtract.val())
            {
                self.magnitude.next = bits::<32>(0x7fc0_0000);
                self.sign.next = bits::<32>(0);
            }
        }
        self.y.next = self.sign.val() | self.magnitude.val();
    }
}

/// One product of signed nibbles.
#[derive(LogicBlock, Default)]
pub struct NibbleProduct {
    pub a: Signal<In, Bits<4>>,
    pub w: Signal<In, Bits<4>>,
    pub y: Signal<Out, Bits<11>>,
    wide: Signal<Local, Bits<11>>,
    part0: Signal<Local, Bits<11>>,
    part1: Signal<Local, Bits<11>>,
    part2: Signal<Local, Bits<11>>,
    part3: Signal<Local, Bits<11>>,
}

impl Logic for NibbleProduct {
    #[hdl_gen]
    fn update(&mut self) {
        self.wide.next = bit_cast::<11, 4>(self.a.val());
        if self.a.val().get_bit(3) {
            self.wide.next = bit_cast::<11, 4>(self.a.val()) | 0x7f0;
        }
        self.part0.next = bits::<11>(0);
        self.part1.next = bits::<11>(0);
        self.part2.next = bits::<11>(0);
        self.part3.next = bits::<11>(0);
        if self.w.val().get_bit(0) {
            self.part0.next = self.wide.val();
        }
        if self.w.val().get_bit(1) {
            self.part1.next = self.wide.val() << 1;
        }
        if self.w.val().get_bit(2) {
            self.part2.next = self.wide.val() << 2;
        }
        if self.w.val().get_bit(3) {
            self.part3.next = self.wide.val() << 3;
        }
        self.y.next = self.part0.val() + self.part1.val() + self.part2.val() - self.part3.val();
    }
}

/// Sum of eight products of signed nibbles, without registers.
#[derive(LogicBlock, Default)]
pub struct Sma4Lane {
    pub a: Signal<In, Bits<32>>,
    pub w: Signal<In, Bits<32>>,
    pub sum: Signal<Out, Bits<11>>,
    product: [NibbleProduct; 8],
}

impl Logic for Sma4Lane {
    #[hdl_gen]
    fn update(&mut self) {
        for i in 0..8 {
            self.product[i].a.next = self.a.val().get_bits::<4>(4 * i);
            self.product[i].w.next = self.w.val().get_bits::<4>(4 * i);
        }
        self.sum.next = self.product[0].y.val()
            + self.product[1].y.val()
            + self.product[2].y.val()
            + self.product[3].y.val()
            + self.product[4].y.val()
            + self.product[5].y.val()
            + self.product[6].y.val()
            + self.product[7].y.val();
    }
}
