//! Text to train on and how windows are taken from it.

use super::error::{ReferenceError, Result};
use crate::files::{MOST_DATA, read_bytes};
use crate::num::threefry::threefry2x32;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use sha2::{Digest, Sha256};
use std::path::Path;

/// Line endings of the text as the model sees it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum LineEndings {
    /// CR LF becomes LF.
    Lf,
    /// Every LF becomes CR LF (the paper's text).
    Crlf,
    /// As the file has them.
    Keep,
}

/// A text of bytes, the first 90 % for training, the rest for validation.
#[derive(Clone, Debug)]
pub struct Corpus {
    tokens: Vec<u32>,
    train: usize,
    sha256: String,
}

impl Corpus {
    /// Reads a file; every byte must be below `vocab`.
    pub fn load(path: &Path, endings: LineEndings, vocab: usize) -> Result<Self> {
        let bytes = read_bytes(path, MOST_DATA).map_err(|e| ReferenceError::read(path, e))?;
        Self::from_bytes(&bytes, endings, vocab).map_err(|error| match error {
            ReferenceError::Corpus { problem, accepts } => {
                ReferenceError::corpus(format!("{}: {problem}", path.display()), accepts)
            }
            other => other,
        })
    }

    pub fn from_bytes(bytes: &[u8], endings: LineEndings, vocab: usize) -> Result<Self> {
        if bytes.is_empty() {
            return Err(ReferenceError::corpus(
                "the corpus is empty",
                "a text of more bytes than seq_len is needed",
            ));
        }
        let bytes = convert(bytes, endings);
        if let Some(i) = bytes.iter().position(|&b| usize::from(b) >= vocab) {
            let before = &bytes[..i];
            let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
            let start = before
                .iter()
                .rposition(|&b| b == b'\n')
                .map_or(0, |n| n + 1);
            let highest = bytes.iter().max().copied().unwrap_or_default();
            return Err(ReferenceError::corpus(
                format!(
                    "line {line}, byte {}: {} is outside the vocabulary of {vocab}",
                    i - start + 1,
                    bytes[i]
                ),
                format!(
                    "use a text of bytes below {vocab}, or a model with vocab = {} or more",
                    usize::from(highest) + 1
                ),
            ));
        }
        let hash = Sha256::digest(&bytes);
        Ok(Self {
            train: bytes.len() * 9 / 10,
            tokens: bytes.iter().map(|&b| u32::from(b)).collect(),
            sha256: hash.iter().map(|b| format!("{b:02x}")).collect(),
        })
    }

    /// The part to train on.
    pub fn train(&self) -> &[u32] {
        &self.tokens[..self.train]
    }

    /// The part to validate on.
    pub fn validation(&self) -> &[u32] {
        &self.tokens[self.train..]
    }

    /// The whole text.
    pub fn all(&self) -> &[u32] {
        &self.tokens
    }

    /// SHA-256 of the text after line endings were converted.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

/// A `part` of a text with `tokens` tokens that is too short for windows of `seq_len + 1`: the text must have `bytes`.
pub fn too_short((part, tokens, seq_len): (&str, usize, usize), bytes: usize) -> ReferenceError {
    let longest = match tokens.saturating_sub(2) {
        0 => String::new(),
        n => format!(", or set seq_len to {n} or less"),
    };
    ReferenceError::corpus(
        format!(
            "the {part} part of the text has {tokens} tokens; seq_len = {seq_len} needs at least {}",
            seq_len + 2
        ),
        format!("use a text of at least {bytes} bytes{longest}"),
    )
}

/// The text with other line endings.
pub fn convert(bytes: &[u8], endings: LineEndings) -> Vec<u8> {
    if endings == LineEndings::Keep {
        return bytes.to_vec();
    }
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    for (i, &b) in bytes.iter().enumerate() {
        match b {
            b'\r' if bytes.get(i + 1) == Some(&b'\n') => {}
            b'\n' if endings == LineEndings::Crlf => out.extend(b"\r\n"),
            _ => out.push(b),
        }
    }
    out
}

/// Order in which training windows are drawn.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Uniform random starts, with replacement (the paper's).
    Random,
    /// Consecutive windows, each once per epoch, shuffled anew in each.
    Epoch,
}

/// Draws the n-th training window of a run. Nothing is remembered from draw to draw, so a run can
/// continue anywhere.
pub struct Sampler {
    order: Order,
    seed: u32,
    /// Tokens of a window, T + 1.
    width: usize,
    tokens: usize,
    epoch: Option<(u64, Vec<u32>)>,
}

/// Keeps the random numbers of data order apart from those of stochastic rounding.
const DATA_KEY: u32 = 0x6461_7461;

impl Sampler {
    /// Windows of `seq_len + 1` tokens out of `tokens`.
    pub fn new(order: Order, seed: u32, seq_len: usize, tokens: usize) -> Result<Self> {
        let width = seq_len + 1;
        if tokens <= width {
            return Err(too_short(
                ("training", tokens, seq_len),
                // Nine tenths of the bytes, rounded down.
                ((width + 1) * 10).div_ceil(9),
            ));
        }
        Ok(Self {
            order,
            seed,
            width,
            tokens,
            epoch: None,
        })
    }

    /// Windows of one epoch.
    pub fn windows_per_epoch(&self) -> usize {
        (self.tokens - 1) / (self.width - 1)
    }

    /// First token of window `number` (from 0).
    pub fn start(&mut self, number: u64) -> usize {
        match self.order {
            Order::Random => {
                let counter = [number as u32, (number >> 32) as u32];
                let [low, high] = threefry2x32([self.seed, DATA_KEY], counter);
                let random = u64::from(low) | u64::from(high) << 32;
                let range = (self.tokens - self.width) as u128;
                ((u128::from(random) * range) >> 64) as usize
            }
            Order::Epoch => {
                let per_epoch = self.windows_per_epoch();
                let epoch = number / per_epoch as u64;
                let seed = self.seed;
                let (known, list) = self.epoch.get_or_insert_with(|| (u64::MAX, Vec::new()));
                if *known != epoch {
                    *list = (0..per_epoch as u32).collect();
                    let mut rng = Pcg64::seed_from_u64(u64::from(seed) << 32 ^ epoch);
                    list.shuffle(&mut rng);
                    *known = epoch;
                }
                list[(number % per_epoch as u64) as usize] as usize * (self.width - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_endings() {
        let text = b"a\nb\r\nc\r\r\n";
        assert_eq!(convert(text, LineEndings::Lf), b"a\nb\nc\r\n");
        assert_eq!(convert(text, LineEndings::Crlf), b"a\r\nb\r\nc\r\r\n");
        assert_eq!(convert(text, LineEndings::Keep), text);
        let once = convert(text, LineEndings::Crlf);
        assert_eq!(convert(&once, LineEndings::Crlf), once);
    }

    #[test]
    fn split_is_ninety_to_ten() {
        let c = Corpus::from_bytes(&[7; 109], LineEndings::Keep, 8).unwrap();
        assert_eq!((c.train().len(), c.validation().len()), (98, 11));
        assert_eq!(c.sha256().len(), 64);
    }

    #[test]
    fn bad_texts_are_errors() {
        let error = |b: &[u8]| {
            Corpus::from_bytes(b, LineEndings::Keep, 64)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(error(b""), "the corpus is empty");
        assert_eq!(
            error(b"!!A"),
            "line 1, byte 3: 65 is outside the vocabulary of 64"
        );
        assert_eq!(
            error(b"!\n!\n?z"),
            "line 3, byte 2: 122 is outside the vocabulary of 64"
        );
    }

    #[test]
    fn the_shortest_text_that_is_named_is_accepted_and_none_shorter() {
        for seq_len in [1, 7, 8, 128] {
            let part = |bytes: usize| {
                let c = Corpus::from_bytes(&vec![7; bytes], LineEndings::Keep, 8).unwrap();
                Sampler::new(Order::Random, 1, seq_len, c.train().len()).map(|_| ())
            };
            let Err(ReferenceError::Corpus { problem, accepts }) = part(seq_len) else {
                panic!("{seq_len}");
            };
            assert!(problem.starts_with("the training part"), "{problem}");
            let words: Vec<&str> = accepts.split(' ').collect();
            let bytes: usize = words[6].parse().unwrap();
            assert!(part(bytes).is_ok() && part(bytes - 1).is_err(), "{accepts}");
        }
    }

    #[test]
    fn every_epoch_covers_every_window_once() {
        let mut s = Sampler::new(Order::Epoch, 3, 8, 83).unwrap();
        assert_eq!(s.windows_per_epoch(), 10);
        let mut orders = Vec::new();
        for epoch in 0..3 {
            let order: Vec<usize> = (0..10).map(|i| s.start(epoch * 10 + i)).collect();
            let mut sorted = order.clone();
            sorted.sort();
            assert_eq!(sorted, (0..10).map(|i| i * 8).collect::<Vec<_>>());
            orders.push(order);
        }
        assert_ne!(orders[0], orders[1]);
        let again = s.start(4);
        assert_eq!(again, orders[0][4]);
    }

    #[test]
    fn random_starts_fill_the_range() {
        let mut s = Sampler::new(Order::Random, 3, 8, 20).unwrap();
        let mut seen = [0u32; 11];
        for n in 0..11_000 {
            seen[s.start(n)] += 1;
        }
        assert!(seen.iter().all(|&c| (850..1150).contains(&c)), "{seen:?}");
    }
}
