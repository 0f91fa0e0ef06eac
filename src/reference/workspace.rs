//! Buffers of one sample, shared by the team's threads.

use super::error::{ReferenceError, Result};
use super::gemm::Scratch;
use super::tensors::TensorId;
use crate::config::model::ModelConfig;
use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};

/// Elements past the end of a buffer, so that a vector may be read across it.
const PAD: usize = 64;

/// A row-major FP32 buffer that several threads fill, each its own part, between barriers.
pub(crate) struct Shared {
    data: Box<[UnsafeCell<f32>]>,
    len: usize,
}

// SAFETY: access goes through the unsafe functions below, whose callers keep threads apart.
unsafe impl Sync for Shared {}

impl Shared {
    pub fn new(len: usize) -> Self {
        let data = (0..len + PAD).map(|_| UnsafeCell::new(0.0)).collect();
        Self { data, len }
    }

    pub fn ptr(&self) -> *mut f32 {
        UnsafeCell::raw_get(self.data.as_ptr())
    }

    /// # Safety
    /// No thread may write this part while the slice lives.
    pub unsafe fn part(&self, range: std::ops::Range<usize>) -> &[f32] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds; aliasing is the caller's.
        unsafe { std::slice::from_raw_parts(self.ptr().add(range.start), range.len()) }
    }

    /// # Safety
    /// No other thread may use this part while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part_mut(&self, range: std::ops::Range<usize>) -> &mut [f32] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds; aliasing is the caller's.
        unsafe { std::slice::from_raw_parts_mut(self.ptr().add(range.start), range.len()) }
    }

    pub fn whole(&mut self) -> &[f32] {
        // SAFETY: the exclusive borrow keeps every other user away.
        unsafe { std::slice::from_raw_parts(self.ptr(), self.len) }
    }
}

/// Activations of one layer that backward needs.
pub(crate) struct LayerBuffers {
    /// Input of the layer [T, d].
    pub x: Shared,
    pub xhat1: Shared,
    pub rstd1: Shared,
    pub n1: Shared,
    pub qkv: Shared,
    /// Probabilities [H, T, T].
    pub p: Shared,
    pub o: Shared,
    /// Between attention and feed-forward [T, d].
    pub x_mid: Shared,
    pub xhat2: Shared,
    pub rstd2: Shared,
    pub n2: Shared,
    /// [T, f].
    pub h: Shared,
    pub g: Shared,
}

/// Exponent slots of one layer, before the per-head ones.
#[derive(Clone, Copy)]
pub(crate) enum Slot {
    N1,
    Qkv,
    O,
    N2,
    G,
    Dh,
    P2,
    Dn2,
    DxMid,
    Do,
    Dqkv,
    P1,
    Dn1,
    Dx,
}

const SLOT_NAMES: [&str; 14] = [
    "n1", "qkv", "o", "n2", "g", "dh", "p2", "dn2", "dx_mid", "do", "dqkv", "p1", "dn1", "dx",
];

/// Largest exponents of the tensors of one sample, gathered by all threads.
pub(crate) struct Exponents {
    slots: Vec<AtomicU32>,
    heads: usize,
}

impl Exponents {
    fn new(model: &ModelConfig) -> Self {
        let per_layer = SLOT_NAMES.len() + 2 * model.heads;
        let count = 3 + model.layers * per_layer;
        Self {
            slots: (0..count).map(|_| AtomicU32::new(0)).collect(),
            heads: model.heads,
        }
    }

    fn base(&self, layer: usize) -> usize {
        3 + layer * (SLOT_NAMES.len() + 2 * self.heads)
    }

    pub fn layer(&self, layer: usize, slot: Slot) -> usize {
        self.base(layer) + slot as usize
    }

    /// Probabilities of a head.
    pub fn p(&self, layer: usize, head: usize) -> usize {
        self.base(layer) + SLOT_NAMES.len() + head
    }

    /// Score gradients of a head.
    pub fn ds(&self, layer: usize, head: usize) -> usize {
        self.p(layer, head) + self.heads
    }

    /// Output of the last layer, gradient of the logits, gradient of that output.
    pub const X_OUT: usize = 0;
    pub const DZ: usize = 1;
    pub const DX_OUT: usize = 2;

    pub fn publish(&self, slot: usize, exponent: u32) {
        self.slots[slot].fetch_max(exponent, Ordering::Relaxed);
    }

    /// The exponent of a complete tensor; an error if the tensor holds Inf or NaN.
    pub fn get(&self, slot: usize) -> Result<u32> {
        match self.slots[slot].load(Ordering::Relaxed) {
            255 => Err(ReferenceError::NotFinite {
                tensor: self.name(slot),
            }),
            exponent => Ok(exponent),
        }
    }

    fn name(&self, slot: usize) -> String {
        if slot < 3 {
            return ["x_out", "dz", "dx_out"][slot].into();
        }
        let per_layer = SLOT_NAMES.len() + 2 * self.heads;
        let (layer, place) = ((slot - 3) / per_layer, (slot - 3) % per_layer);
        let tensor = match place.checked_sub(SLOT_NAMES.len()) {
            None => SLOT_NAMES[place].to_string(),
            Some(h) if h < self.heads => format!("p.{h}"),
            Some(h) => format!("ds.{}", h - self.heads),
        };
        format!("layers.{layer}.{tensor}")
    }

    pub fn clear(&self) {
        for slot in &self.slots {
            slot.store(0, Ordering::Relaxed);
        }
    }
}

/// Everything one sample needs beside the state.
pub(crate) struct Workspace {
    pub layers: Vec<LayerBuffers>,
    /// Output of the last layer [T, d].
    pub x_out: Shared,
    /// Logits, then their gradient [T, V].
    pub z: Shared,
    pub de_out: Shared,
    pub dx: Shared,
    pub dx_mid: Shared,
    pub dg: Shared,
    pub dn1: Shared,
    pub p1: Shared,
    pub dn2: Shared,
    pub p2: Shared,
    pub do_: Shared,
    pub ds: Shared,
    pub dqkv: Shared,
    /// Gradients by [`TensorId::index`].
    pub grads: Vec<Shared>,
    pub exponents: Exponents,
    /// Exponents of the weights in use, and of those just written.
    pub weights: Vec<AtomicU32>,
    pub new_weights: Vec<AtomicU32>,
    pub loss_q24: AtomicI64,
    pub correct: AtomicUsize,
    pub scratch: Vec<Mutex<Scratch>>,
}

impl Workspace {
    pub fn new(model: &ModelConfig, threads: usize) -> Self {
        let (t, d, f, v, heads) = (
            model.seq_len,
            model.embed_dim,
            model.ff_dim,
            model.vocab,
            model.heads,
        );
        let layer = || LayerBuffers {
            x: Shared::new(t * d),
            xhat1: Shared::new(t * d),
            rstd1: Shared::new(t),
            n1: Shared::new(t * d),
            qkv: Shared::new(t * 3 * d),
            p: Shared::new(heads * t * t),
            o: Shared::new(t * d),
            x_mid: Shared::new(t * d),
            xhat2: Shared::new(t * d),
            rstd2: Shared::new(t),
            n2: Shared::new(t * d),
            h: Shared::new(t * f),
            g: Shared::new(t * f),
        };
        let ids = TensorId::all(model);
        let exponents = || ids.iter().map(|_| AtomicU32::new(0)).collect();
        Self {
            layers: (0..model.layers).map(|_| layer()).collect(),
            x_out: Shared::new(t * d),
            z: Shared::new(t * v),
            de_out: Shared::new(v * d),
            dx: Shared::new(t * d),
            dx_mid: Shared::new(t * d),
            dg: Shared::new(t * f),
            dn1: Shared::new(t * d),
            p1: Shared::new(t * d),
            dn2: Shared::new(t * d),
            p2: Shared::new(t * d),
            do_: Shared::new(t * d),
            ds: Shared::new(heads * t * t),
            dqkv: Shared::new(t * 3 * d),
            grads: ids
                .iter()
                .map(|id| Shared::new(id.shape(model).iter().product()))
                .collect(),
            exponents: Exponents::new(model),
            weights: exponents(),
            new_weights: exponents(),
            loss_q24: AtomicI64::new(0),
            correct: AtomicUsize::new(0),
            scratch: (0..threads)
                .map(|_| Mutex::new(Scratch::default()))
                .collect(),
        }
    }
}
