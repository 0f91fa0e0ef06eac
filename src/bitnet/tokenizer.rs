//! The file's own tokenizer: byte-level BPE (`tokenizer.ggml.model = "gpt2"`) with the
//! `llama-bpe` pre-tokeniser, which BitNet files need even though the published one forgets
//! to name it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use unicode_general_category::{GeneralCategory as G, get_general_category};

use super::gguf::{GgufFile, Value};
use super::{Error, Result};

/// Longest list of tokens that is accepted.
const MAX_TOKENS: usize = 1 << 22;

/// Text to tokens and back.
pub struct Tokenizer {
    /// Token text in the byte alphabet of byte-level BPE.
    tokens: Vec<String>,
    ids: HashMap<String, u32>,
    ranks: HashMap<(u32, u32), (usize, u32)>,
    /// Control tokens, matched in the text before anything else; longest first.
    special: Vec<(String, u32)>,
    byte_char: [char; 256],
    char_byte: BTreeMap<char, u8>,
    /// Token that starts a sequence, when the file asks for one.
    pub bos: Option<u32>,
    /// Tokens that end a turn.
    pub stops: Vec<u32>,
}

impl Tokenizer {
    /// Reads the keys `tokenizer.ggml.*`.
    pub fn from_gguf(file: &GgufFile) -> Result<Self> {
        let key = |name: &str| file.get(&format!("tokenizer.ggml.{name}"));
        match key("model").and_then(|v| v.as_str()) {
            Some("gpt2") => {}
            Some(other) => {
                return Err(Error::Unsupported(format!(
                    "tokenizer.ggml.model {other:?}; accepted: \"gpt2\""
                )));
            }
            None => {
                return Err(Error::Format(
                    "key `tokenizer.ggml.model` is missing; accepted: \"gpt2\"".into(),
                ));
            }
        }
        match key("pre").and_then(|v| v.as_str()) {
            None | Some("llama-bpe" | "llama3" | "llama-v3") => {}
            Some(other) => {
                return Err(Error::Unsupported(format!(
                    "tokenizer.ggml.pre \"{other}\"; accepted: \"llama-bpe\", or absent, which \
                     means the same for BitNet files"
                )));
            }
        }
        let tokens = strings(key("tokens"), "tokens")?;
        let merges = strings(key("merges"), "merges")?;
        let mut ids = HashMap::with_capacity(tokens.len());
        for (id, token) in tokens.iter().enumerate() {
            ids.entry(token.clone()).or_insert(id as u32);
        }
        let mut ranks = HashMap::with_capacity(merges.len());
        for (rank, merge) in merges.iter().enumerate() {
            let parts = merge.split_once(' ').and_then(|(a, b)| {
                Some((
                    *ids.get(a)?,
                    *ids.get(b)?,
                    *ids.get(format!("{a}{b}").as_str())?,
                ))
            });
            let (a, b, joined) = parts.ok_or_else(|| {
                Error::Format(format!(
                    "merge {rank} \"{merge}\" does not join two tokens into a third"
                ))
            })?;
            ranks.entry((a, b)).or_insert((rank, joined));
        }
        let id = |name: &str| -> Result<Option<u32>> {
            match key(name) {
                None => Ok(None),
                Some(value) => match value.as_u64() {
                    Some(v) if (v as usize) < tokens.len() => Ok(Some(v as u32)),
                    _ => Err(Error::Format(format!(
                        "tokenizer.ggml.{name} is {}; the file has {} tokens",
                        value.summary(),
                        tokens.len()
                    ))),
                },
            }
        };
        let add_bos = key("add_bos_token")
            .and_then(Value::as_bool)
            .unwrap_or(true);
        let bos = id("bos_token_id")?.filter(|_| add_bos);
        let mut stops: Vec<u32> = id("eos_token_id")?.into_iter().collect();
        // The turn end of the Llama 3 vocabulary; the published file names another token.
        stops.extend(ids.get("<|eot_id|>").copied());
        stops.dedup();
        let types = key("token_type").into_iter().flat_map(Value::integers);
        let mut special: Vec<(String, u32)> = types
            .zip(&tokens)
            .enumerate()
            .filter(|(_, (kind, token))| {
                // 3 control, 4 user defined.
                matches!(kind, Some(3 | 4)) && !token.is_empty()
            })
            .map(|(id, (_, token))| (token.clone(), id as u32))
            .collect();
        special.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then(a.1.cmp(&b.1)));
        let byte_char = byte_alphabet();
        let char_byte = byte_char
            .iter()
            .enumerate()
            .map(|(b, &c)| (c, b as u8))
            .collect();
        Ok(Self {
            tokens,
            ids,
            ranks,
            special,
            byte_char,
            char_byte,
            bos,
            stops,
        })
    }

    /// Number of tokens.
    pub fn vocab(&self) -> usize {
        self.tokens.len()
    }

    /// Encodes text; the start token comes first when the file asks for it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut out: Vec<u32> = self.bos.into_iter().collect();
        // Where each control token comes next; found again only when the text has moved past it.
        let mut nexts: Vec<(usize, usize, u32)> = self
            .special
            .iter()
            .enumerate()
            .filter_map(|(s, (token, id))| Some((text.find(token.as_str())?, s, *id)))
            .collect();
        let mut from = 0;
        while from < text.len() {
            nexts.retain_mut(|(at, s, _)| {
                let token = self.special[*s].0.as_str();
                match *at < from {
                    false => true,
                    true => match text[from..].find(token) {
                        Some(found) => {
                            *at = from + found;
                            true
                        }
                        None => false,
                    },
                }
            });
            let length = |s: usize| self.special[s].0.len();
            let next = nexts
                .iter()
                .min_by_key(|&&(at, s, _)| (at, Reverse(length(s))));
            let (end, after) = match next {
                Some(&(at, s, _)) => (at, at + length(s)),
                None => (text.len(), text.len()),
            };
            for piece in split_pieces(&text[from..end]) {
                self.encode_piece(piece, &mut out)?;
            }
            out.extend(next.map(|&(_, _, id)| id));
            from = after;
        }
        Ok(out)
    }

    fn encode_piece(&self, piece: &str, out: &mut Vec<u32>) -> Result<()> {
        let text: String = piece
            .bytes()
            .map(|b| self.byte_char[usize::from(b)])
            .collect();
        if let Some(&id) = self.ids.get(&text) {
            out.push(id);
            return Ok(());
        }
        let mut parts = Vec::with_capacity(text.len());
        for c in text.chars() {
            let mut buffer = [0; 4];
            let symbol: &str = c.encode_utf8(&mut buffer);
            parts.push(*self.ids.get(symbol).ok_or_else(|| {
                Error::Data(format!(
                    "the vocabulary has no token for byte 0x{:02x}",
                    self.char_byte[&c]
                ))
            })?);
        }
        self.merge(&mut parts);
        out.extend(parts);
        Ok(())
    }

    /// Joins the pair of the lowest rank, the leftmost of equals, until none is left: a list of neighbours and a
    /// queue of pairs, since pieces without a space may be as long as the text.
    fn merge(&self, parts: &mut Vec<u32>) {
        const GONE: u32 = u32::MAX;
        let end = parts.len();
        let mut before: Vec<usize> = (0..end).map(|i| i.wrapping_sub(1)).collect();
        let mut after: Vec<usize> = (1..=end).collect();
        let mut queue = BinaryHeap::new();
        let pair = |parts: &[u32], a: usize, b: usize| {
            let key = (*parts.get(a)?, *parts.get(b)?);
            let &(rank, joined) = self.ranks.get(&key)?;
            Some(Reverse((rank, a, b, key, joined)))
        };
        queue.extend((1..end).filter_map(|b| pair(parts, b - 1, b)));
        while let Some(Reverse((_, a, b, key, joined))) = queue.pop() {
            // A pair that has changed since it was queued.
            if after[a] != b || (parts[a], parts[b]) != key {
                continue;
            }
            parts[a] = joined;
            parts[b] = GONE;
            after[a] = after[b];
            if let Some(next) = before.get_mut(after[b]) {
                *next = a;
            }
            queue.extend(pair(parts, before[a], a));
            queue.extend(pair(parts, a, after[a]));
        }
        parts.retain(|&p| p != GONE);
    }

    /// Bytes of a token.
    pub fn token_bytes(&self, token: u32) -> Vec<u8> {
        let Some(text) = self.tokens.get(token as usize) else {
            return Vec::new();
        };
        let bytes: Option<Vec<u8>> = text
            .chars()
            .map(|c| self.char_byte.get(&c).copied())
            .collect();
        bytes.unwrap_or_else(|| text.as_bytes().to_vec())
    }

    /// Text of tokens; bytes that are not UTF-8 become replacement characters.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&t| self.token_bytes(t)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn strings(value: Option<&Value>, name: &str) -> Result<Vec<String>> {
    let items = value
        .and_then(|v| v.as_array())
        .filter(|items| items.len() <= MAX_TOKENS)
        .ok_or_else(|| {
            Error::Format(format!("key `tokenizer.ggml.{name}` is missing or no list"))
        })?;
    items
        .iter()
        .map(|v| {
            v.as_str().map(str::to_owned).ok_or_else(|| {
                Error::Format(format!(
                    "key `tokenizer.ggml.{name}` holds a value that is no text"
                ))
            })
        })
        .collect()
}

/// The printable stand-in of every byte: itself where it is printable in Latin-1, otherwise the
/// next code point from 256 on.
pub(super) fn byte_alphabet() -> [char; 256] {
    let mut next = 256u32;
    std::array::from_fn(|byte| {
        let byte = byte as u32;
        let printable = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let code = if printable {
            byte
        } else {
            next += 1;
            next - 1
        };
        char::from_u32(code).unwrap_or('?')
    })
}

fn is_letter(c: char) -> bool {
    use G::{LowercaseLetter, ModifierLetter, OtherLetter, TitlecaseLetter, UppercaseLetter};
    matches!(
        get_general_category(c),
        UppercaseLetter | LowercaseLetter | TitlecaseLetter | ModifierLetter | OtherLetter
    )
}

fn is_number(c: char) -> bool {
    c.is_numeric()
}

/// Splits text as the Llama 3 expression does, alternatives in its order:
/// contractions; letters with one leading other character; up to three digits; a run of signs
/// with an optional leading space and trailing line ends; white space up to line ends; white
/// space but its last character; white space.
pub fn split_pieces(text: &str) -> Vec<&str> {
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let length = piece_length(&chars[at..]);
        let end = chars.get(at + length).map_or(text.len(), |&(i, _)| i);
        pieces.push(&text[chars[at].0..end]);
        at += length;
    }
    pieces
}

fn piece_length(chars: &[(usize, char)]) -> usize {
    let c = |i: usize| chars.get(i).map(|&(_, c)| c);
    let run = |from: usize, test: &dyn Fn(char) -> bool| {
        chars[from.min(chars.len())..]
            .iter()
            .take_while(|&&(_, c)| test(c))
            .count()
    };
    let first = chars[0].1;
    let line_end = |c: char| c == '\r' || c == '\n';
    let sign = |c: char| !c.is_whitespace() && !is_letter(c) && !is_number(c);

    if first == '\'' {
        let next: String = [c(1), c(2)]
            .into_iter()
            .flatten()
            .flat_map(char::to_lowercase)
            .collect();
        for ending in ["s", "t", "re", "ve", "m", "ll", "d"] {
            if next.starts_with(ending) {
                return 1 + ending.len();
            }
        }
    }
    if is_letter(first) {
        return run(0, &is_letter);
    }
    if !line_end(first) && !is_number(first) && c(1).is_some_and(is_letter) {
        return 1 + run(1, &is_letter);
    }
    if is_number(first) {
        return run(0, &is_number).min(3);
    }
    let lead = usize::from(first == ' ');
    let signs = run(lead, &sign);
    if signs > 0 {
        return lead + signs + run(lead + signs, &line_end);
    }
    let spaces = run(0, &char::is_whitespace);
    if let Some(last) = (0..spaces).rev().find(|&i| line_end(chars[i].1)) {
        return last + 1;
    }
    if spaces > 1 && spaces < chars.len() {
        return spaces - 1;
    }
    spaces.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_the_expression() {
        let split = |text| split_pieces(text);
        assert_eq!(split("Hello world"), ["Hello", " world"]);
        assert_eq!(
            split("I'll don't IT'S"),
            ["I", "'ll", " don", "'t", " IT", "'S"]
        );
        assert_eq!(split("read_file"), ["read", "_file"]);
        assert_eq!(split("12345 6"), ["123", "45", " ", "6"]);
        assert_eq!(split("a  b"), ["a", " ", " b"]);
        assert_eq!(split("a \n\n b"), ["a", " \n\n", " b"]);
        assert_eq!(split("x = {}\n\ny"), ["x", " =", " {}\n\n", "y"]);
        assert_eq!(split("end  "), ["end", "  "]);
        assert_eq!(split("déjà 日本"), ["déjà", " 日本"]);
        assert_eq!(split("\tif"), ["\tif"]);
    }

    #[test]
    fn pieces_cover_the_text() {
        for text in ["", " ", "\n", "a\u{301}b ' '", "🦀🦀 x\u{a0}y\r\n\r\n  z"] {
            assert_eq!(split_pieces(text).concat(), text);
        }
    }
}
