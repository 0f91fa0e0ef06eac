//! Many mutants in one model: each changed expression becomes `mutant == n ? changed : original`.
//!
//! Building a model takes far longer than running one, so all mutants share a build and a run
//! picks one by a plusarg; without it the model is the unchanged design.

use std::ops::Range;

use super::Site;

/// Plusarg that picks a mutant, `+nf_mutant=3`; mutants count from 1.
pub const ARGUMENT: &str = "+nf_mutant=";

/// A package variable, so that no module needs another port.
const PACKAGE: &str = "package nf_mutation;
    function automatic int chosen();
        int n;
        n = 0;
        if (!$value$plusargs(\"nf_mutant=%d\", n)) n = 0;
        return n;
    endfunction
    int id = chosen();
endpackage
";

/// Files that hold all mutants, and the site of each; mutant n is `sites[n - 1]`.
pub struct Woven {
    pub files: Vec<(String, String)>,
    pub sites: Vec<Site>,
}

/// Weaves the sites that lie in an expression; others (case labels, say) are left out.
pub fn weave(files: &[(String, String)], sites: &[Site]) -> Woven {
    let mut out = Woven {
        files: vec![("nf_mutation.sv".into(), PACKAGE.into())],
        sites: vec![],
    };
    for (index, (name, text)) in files.iter().enumerate() {
        let spans = expressions(text);
        let mut chosen: Vec<Vec<(usize, &Site)>> = vec![vec![]; spans.len()];
        for site in sites.iter().filter(|s| s.file_index == index) {
            let around = spans
                .iter()
                .position(|e| e.start <= site.start && site.end <= e.end);
            if let Some(k) = around {
                out.sites.push(site.clone());
                chosen[k].push((out.sites.len(), site));
            }
        }
        let mut woven = text.clone();
        for (span, mutants) in spans.iter().zip(&chosen).rev() {
            if mutants.is_empty() {
                continue;
            }
            let original = &text[span.clone()];
            let mut expression = String::new();
            for (number, site) in mutants {
                let mut changed = original.to_string();
                changed.replace_range(site.start - span.start..site.end - span.start, &site.to);
                expression += &format!("(nf_mutation::id == {number}) ? ({changed}) : ");
            }
            expression += &format!("({original})");
            woven.replace_range(span.clone(), &expression);
        }
        out.files.push((name.clone(), woven));
    }
    out
}

/// Byte ranges of right-hand sides, conditions and connected nets, in order, none overlapping.
fn expressions(text: &str) -> Vec<Range<usize>> {
    let code = without_comments(text);
    let bytes = code.as_bytes();
    let mut out = vec![];
    let (mut at, mut depth) = (0, 0usize);
    while at < bytes.len() {
        let rest = &code[at..];
        let opens = ["if (", "case ("].iter().find(|k| rest.starts_with(**k));
        let word_before =
            at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        if let (Some(keyword), false) = (opens, word_before) {
            let start = at + keyword.len();
            let end = closing(bytes, start);
            if rest.starts_with("if (") {
                out.push(start..end);
            }
            at = end + 1;
            continue;
        }
        // A connection: .port(net)
        if bytes[at] == b'.'
            && code[..at].ends_with([' ', '\n'])
            && let Some(open) = rest.find('(')
        {
            let start = at + open + 1;
            let end = closing(bytes, start);
            if end > start {
                out.push(start..end);
            }
            at = end + 1;
            continue;
        }
        match bytes[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'=' if depth == 0 && code[..at].ends_with([' ', '<']) => {
                let start = at + 1;
                let end = start + code[start..].find(';').unwrap_or(code.len() - start);
                out.push(start..end);
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    out
}

/// Index of the bracket that closes the one before `start`.
fn closing(bytes: &[u8], start: usize) -> usize {
    let mut depth = 1;
    for (k, b) in bytes.iter().enumerate().skip(start) {
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return k;
        }
    }
    bytes.len()
}

/// The text with comments blanked, every byte at its place.
fn without_comments(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.find("//") {
            Some(at) => format!(
                "{}{}",
                &line[..at],
                line[at..]
                    .bytes()
                    .map(|b| if b == b'\n' { '\n' } else { ' ' })
                    .collect::<String>()
            ),
            None => line.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::sites;
    use super::*;

    const TEXT: &str = "module nf_x (\n    input wire [7:0] a\n);\n    // a = b\n    \
        assign y = a + 8'd12;\n    nf_sub u_sub (\n        .d(a)\n    );\n    \
        always @* begin\n        case (a)\n            8'd1: z = a - b;\n            \
        default: z = 8'd0;\n        endcase\n        if (a <= b) begin\n            \
        q <= a;\n        end\n    end\nendmodule\n";

    fn files() -> Vec<(String, String)> {
        vec![("nf_x.v".into(), TEXT.into())]
    }

    #[test]
    fn finds_every_expression() {
        let found: Vec<&str> = expressions(TEXT)
            .into_iter()
            .map(|r| TEXT[r].trim())
            .collect();
        assert_eq!(found, ["a + 8'd12", "a", "a - b", "8'd0", "a <= b", "a"]);
    }

    #[test]
    fn mutants_share_one_text() {
        let woven = weave(&files(), &sites(&files()));
        let text = &woven.files[1].1;
        assert!(
            text.contains(
                "assign y =(nf_mutation::id == 1) ? ( a - 8'd12) : \
                 (nf_mutation::id == 2) ? ( a + 8'd13) : ( a + 8'd12);"
            ),
            "{text}"
        );
        assert!(
            text.contains(".d((nf_mutation::id == 3) ? (~(a)) : (a))"),
            "{text}"
        );
        // The case label is no expression.
        assert!(text.contains("8'd1: z"), "{text}");
        assert_eq!(woven.sites.len(), 5);
    }

    #[test]
    fn no_site_leaves_the_text_alone() {
        assert_eq!(weave(&files(), &[]).files[1], files()[0]);
    }
}
