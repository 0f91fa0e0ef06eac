//! Time of one training step of the paper's model: `cargo bench --bench step -- [THREADS] [STEPS]`.

use nfgen::config::load_model;
use nfgen::reference::{State, Trainer};
use std::time::Instant;

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let threads = numbers.first().copied().unwrap_or(1);
    let steps = numbers.get(1).copied().unwrap_or(300);
    for compute in ["block18", "fp32"] {
        let set = vec![format!("compute={compute}")];
        let model = match load_model("shakespeare-334k", &set) {
            Ok(model) => model,
            Err(problems) => {
                eprintln!("{problems:?}");
                return;
            }
        };
        let mut trainer = match Trainer::new(&model, State::init(&model), threads) {
            Ok(trainer) => trainer,
            Err(error) => {
                eprintln!("{error}");
                return;
            }
        };
        let window: Vec<u32> = (0..129u32).map(|i| 32 + i * i * 7 % 61).collect();
        let mut times: Vec<f64> = Vec::new();
        for _ in 0..steps {
            let start = Instant::now();
            if let Err(error) = trainer.step(&window) {
                eprintln!("{error}");
                return;
            }
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        println!(
            "{compute}, {threads} threads: ms/sample min {:.3}, p10 {:.3}, median {:.3}",
            times[0],
            times[times.len() / 10],
            times[times.len() / 2]
        );
    }
}
