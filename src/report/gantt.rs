//! What array, vector unit and Adam unit do over one sample.

use super::svg::{Anchor, Svg, step};
use super::{class, colour};
use crate::config::schema::grouped;
use crate::trainer::cycles::Timeline;
use crate::trainer::plan::Plan;

const WIDTH: f64 = 1160.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 40.0;
const ROW: f64 = 26.0;
const ENGINES: [&str; 3] = ["array", "vector unit", "Adam unit"];

/// One busy span of an engine: cycles from, to, class, operator.
struct Span {
    from: u64,
    to: u64,
    class: &'static str,
    operator: &'static str,
}

/// Spans in which an engine is at work.
fn spans(plan: &Plan, timeline: &Timeline, engine: usize) -> Vec<Span> {
    let operators = &plan.operators[engine];
    (0..timeline.start[engine].len().min(operators.len()))
        .map(|n| {
            let busy = timeline.busy[engine][n];
            // The Adam unit works up to the retirement; the others from the start.
            let from = match engine {
                2 => timeline.retire[engine][n].saturating_sub(busy),
                _ => timeline.start[engine][n],
            };
            Span {
                from,
                to: from + busy,
                class: class(engine, operators[n]),
                operator: operators[n],
            }
        })
        .collect()
}

/// The picture: the whole sample, then a part of the backward pass enlarged. With a simulated timeline both show it
/// under the planned one.
pub fn picture(plan: &Plan, simulated: Option<&Timeline>) -> String {
    let sources: Vec<(&str, &Timeline)> =
        [("planned", Some(&plan.timeline)), ("simulated", simulated)]
            .into_iter()
            .filter_map(|(kind, t)| Some((kind, t?)))
            .collect();
    let total = sources
        .iter()
        .map(|(_, t)| t.total)
        .max()
        .unwrap_or(1)
        .max(1);
    let panel = 46.0 + sources.len() as f64 * (3.0 * ROW + 14.0);
    let mut svg = Svg::new(WIDTH, 92.0 + 2.0 * panel);
    svg.text(
        (LEFT, 24.0),
        Anchor::Start,
        15,
        &format!(
            "One training sample of {} on {}: {} cycles planned{}",
            plan.model.name,
            plan.target.name,
            grouped(plan.timeline.total),
            simulated.map_or(String::new(), |t| format!(
                ", {} simulated",
                grouped(t.total)
            ))
        ),
    );
    svg.legend(
        (LEFT, 46.0),
        &[
            (colour("encode"), "encode"),
            (colour("forward"), "forward"),
            (colour("recompute"), "recompute"),
            (colour("backward"), "backward: dX, element-wise"),
            (colour("gradient"), "backward: weight gradients"),
            (colour("adam"), "Adam"),
            ("#f1f1f1", "waiting"),
        ],
    );
    draw(&mut svg, plan, &sources, 62.0, (0, total), false);
    let window = zoom(plan);
    draw(&mut svg, plan, &sources, 62.0 + panel + 14.0, window, true);
    svg.finish()
}

/// A window that shows single instructions: a twelfth of the sample, a third into the backward pass.
fn zoom(plan: &Plan) -> (u64, u64) {
    let total = plan.timeline.total.max(1);
    let backward = plan.timeline.phase_starts(&plan.program)[2].min(total);
    let from = backward + (total - backward) / 3;
    (from, (from + total / 12).min(total).max(from + 1))
}

fn draw(
    svg: &mut Svg,
    plan: &Plan,
    sources: &[(&str, &Timeline)],
    top: f64,
    (from, to): (u64, u64),
    named: bool,
) {
    let span = (to - from).max(1) as f64;
    let x =
        |cycle: u64| LEFT + (WIDTH - LEFT - RIGHT) * (cycle.clamp(from, to) - from) as f64 / span;
    let mut y = top;
    for (kind, timeline) in sources {
        svg.text((LEFT - 8.0, y + 10.0), Anchor::End, 11, kind);
        y += 14.0;
        for (engine, name) in ENGINES.iter().enumerate() {
            svg.text((LEFT - 8.0, y + ROW / 2.0 + 2.0), Anchor::End, 11, name);
            svg.rect((LEFT, y), (WIDTH - LEFT - RIGHT, ROW - 4.0), "#f1f1f1");
            row(
                svg,
                &spans(plan, timeline, engine),
                &x,
                y,
                (from, to),
                named,
            );
            y += ROW;
        }
    }
    axis(svg, &x, y, (from, to));
    // Where the phases begin, in the first source.
    if let Some((_, timeline)) = sources.first().filter(|_| !named) {
        let starts = timeline.phase_starts(&plan.program);
        for (start, name) in starts.into_iter().zip(["", "forward", "backward"]) {
            if !name.is_empty() && start <= to {
                svg.line((x(start), top + 8.0), (x(start), y), "#555");
                svg.text((x(start) + 3.0, top + 8.0), Anchor::Start, 11, name);
            }
        }
    }
}

/// One engine's row. Spans closer than half a pixel are drawn as one.
fn row(
    svg: &mut Svg,
    spans: &[Span],
    x: &impl Fn(u64) -> f64,
    y: f64,
    (from, to): (u64, u64),
    named: bool,
) {
    let mut bars: Vec<(f64, f64, &Span)> = vec![];
    for span in spans.iter().filter(|s| s.to > from && s.from < to) {
        let (a, b) = (x(span.from), x(span.to));
        match bars.last_mut() {
            Some((_, end, last))
                if last.class == span.class
                    && a - *end < 0.5
                    && (!named || last.operator == span.operator) =>
            {
                *end = b.max(*end)
            }
            _ => bars.push((a, b, span)),
        }
    }
    if !named {
        let mut classes: Vec<&str> = bars.iter().map(|b| b.2.class).collect();
        classes.sort_unstable();
        classes.dedup();
        for class in classes {
            let list: Vec<[f64; 4]> = bars
                .iter()
                .filter(|b| b.2.class == class)
                .map(|(a, b, _)| [*a, y, (b - a).max(0.2), ROW - 4.0])
                .collect();
            svg.rects(colour(class), &list);
        }
        return;
    }
    for (a, b, span) in bars {
        let title = format!("{}: cycles {} to {}", span.operator, span.from, span.to);
        svg.titled(
            (a, y),
            ((b - a).max(0.2), ROW - 4.0),
            colour(span.class),
            &title,
        );
        let short = span
            .operator
            .split('.')
            .next_back()
            .unwrap_or(span.operator);
        if b - a > 6.0 * short.len() as f64 {
            svg.text(((a + b) / 2.0, y + 15.0), Anchor::Middle, 10, short);
        }
    }
}

fn axis(svg: &mut Svg, x: &impl Fn(u64) -> f64, y: f64, (from, to): (u64, u64)) {
    let step = step((to - from) as f64, 10.0).max(1.0) as u64;
    svg.line((x(from), y), (x(to), y), "#555");
    let mut at = from.div_ceil(step) * step;
    while at <= to {
        svg.line((x(at), y), (x(at), y + 4.0), "#555");
        svg.text((x(at), y + 16.0), Anchor::Middle, 11, &grouped(at));
        at += step;
    }
    svg.text((x(from) - 8.0, y + 16.0), Anchor::End, 11, "cycle");
}
