//! Which buffer lies where in the activation groups, and when.

use super::colour;
use super::svg::{Anchor, Svg, step};
use crate::config::schema::grouped;
use crate::trainer::plan::Plan;

const WIDTH: f64 = 1160.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 40.0;
const GROUP: f64 = 120.0;

/// One panel per group: address (of every bank) against the instructions of the sample.
pub fn picture(plan: &Plan) -> String {
    let groups = &plan.shape.group_depth;
    let instructions: usize = plan.operators.iter().map(Vec::len).sum();
    let deepest = groups.iter().copied().max().unwrap_or(1).max(1) as f64;
    let heights: Vec<f64> = groups.iter().map(|d| GROUP * *d as f64 / deepest).collect();
    let height = 84.0 + heights.iter().map(|h| h + 22.0).sum::<f64>();
    let mut svg = Svg::new(WIDTH, height);
    svg.text(
        (LEFT, 24.0),
        Anchor::Start,
        15,
        &format!(
            "Activation memory of {}: buffers over one sample (planned)",
            plan.model.name
        ),
    );
    svg.legend(
        (LEFT, 46.0),
        &[
            (colour("forward"), "written in forward, read in backward"),
            (colour("recompute"), "alive within forward only"),
            (colour("backward"), "born in backward"),
            ("#f1f1f1", "free"),
        ],
    );
    let x = |n: usize| LEFT + (WIDTH - LEFT - RIGHT) * n as f64 / instructions.max(1) as f64;
    // First instruction of the backward pass, in the global order that the buffers count in.
    let forward: usize = plan
        .operators
        .iter()
        .flatten()
        .filter(|o| o.starts_with("forward") || **o == "encode")
        .count();
    let mut y = 60.0;
    for (group, (&depth, &high)) in groups.iter().zip(&heights).enumerate() {
        svg.text(
            (LEFT - 8.0, y + 14.0),
            Anchor::End,
            11,
            &format!("group {group}"),
        );
        svg.text(
            (LEFT - 8.0, y + 28.0),
            Anchor::End,
            10,
            &format!("{} words", grouped(depth as u64)),
        );
        svg.rect((LEFT, y), (WIDTH - LEFT - RIGHT, high), "#f1f1f1");
        for b in plan.buffers.iter().filter(|b| b.group == group) {
            let top = y + high * b.base as f64 / depth.max(1) as f64;
            let tall = high * b.words as f64 / depth.max(1) as f64;
            let (from, to) = (x(b.first), x(b.last + 1));
            let fill = match (b.first < forward, b.last < forward) {
                (true, false) => colour("forward"),
                (true, true) => colour("recompute"),
                _ => colour("backward"),
            };
            let title = format!(
                "{}: {} words from {}, instructions {} to {}",
                b.name, b.words, b.base, b.first, b.last
            );
            svg.titled((from, top), ((to - from).max(0.3), tall), fill, &title);
            if to - from > 5.6 * b.name.len() as f64 && tall > 9.0 {
                svg.text(
                    ((from + to) / 2.0, top + tall / 2.0 + 3.5),
                    Anchor::Middle,
                    9,
                    &b.name,
                );
            }
        }
        y += high + 22.0;
    }
    let step = step(instructions as f64, 10.0).max(1.0) as usize;
    let axis = y - 16.0;
    for n in (0..=instructions).step_by(step) {
        svg.line((x(n), axis - 4.0), (x(n), axis), "#555");
        svg.text((x(n), axis + 12.0), Anchor::Middle, 11, &grouped(n as u64));
    }
    svg.text((LEFT - 8.0, axis + 12.0), Anchor::End, 11, "instruction");
    svg.finish()
}
