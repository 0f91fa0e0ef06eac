//! Small tables with bars, for people who look at a terminal.

/// Width of the longest bar.
const BAR: f32 = 40.0;

/// Losses of a run at ten or so of its samples, each with a bar from zero.
pub fn loss_table(losses: &[f32]) -> String {
    let largest = losses.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    let every = losses.len().div_ceil(10).max(1);
    let mut out = String::from("sample    loss");
    for (n, loss) in losses.iter().enumerate() {
        let last = n + 1 == losses.len();
        if n % every == 0 || last {
            let bar = "█".repeat((loss / largest * BAR).round().max(0.0) as usize);
            out += &format!("\n{:>6}  {loss:.4}  {bar}", n + 1);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_first_and_last_and_no_more_than_a_dozen() {
        let losses: Vec<f32> = (0..47).map(|n| 6.0 - n as f32 / 10.0).collect();
        let table = loss_table(&losses);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines.len() <= 13, "{table}");
        assert!(lines[1].starts_with("     1  6.0000  "));
        assert!(lines[lines.len() - 1].starts_with("    47  1.4000  "));
        assert_eq!(lines[1].matches('█').count(), 40);
        assert_eq!(lines[lines.len() - 1].matches('█').count(), 9);
        assert_eq!(loss_table(&[f32::NAN]).lines().count(), 2);
    }
}
