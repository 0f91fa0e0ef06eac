//! BitNet b1.58: GGUF files, exact reference, decoder.
